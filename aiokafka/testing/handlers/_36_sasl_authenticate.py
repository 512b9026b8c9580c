"""SaslAuthenticate: the fake brokers have no SASL."""

from __future__ import annotations

from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = SaslAuthenticateRequest


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """What a broker answers on a listener without SASL."""
    return refuse(context, request, codes.ILLEGAL_SASL_STATE)


def refuse(
    context: RequestContext, request: SaslAuthenticateRequest, errno: int
) -> SaslAuthenticateResponse:
    """Say no."""
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=errno, error_message=message, auth_bytes=b"")
