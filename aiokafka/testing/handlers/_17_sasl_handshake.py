"""SaslHandshake: the fake brokers have no SASL."""

from __future__ import annotations

from aiokafka.protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = SaslHandshakeRequest


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """What a broker answers on a listener without SASL."""
    return refuse(context, request, codes.ILLEGAL_SASL_STATE)


def refuse(
    context: RequestContext, request: SaslHandshakeRequest, errno: int
) -> SaslHandshakeResponse:
    """Say no."""
    return SaslHandshakeResponse(error_code=errno, mechanisms=[])
