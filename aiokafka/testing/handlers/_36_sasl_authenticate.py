"""SaslAuthenticate: the tokens of a login."""

from __future__ import annotations

from aiokafka.errors import for_code
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = SaslAuthenticateRequest


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Take one token, or say that this listener has no logins."""
    if context.session is None:
        return refuse(context, request, codes.ILLEGAL_SASL_STATE)
    verdict = context.session.authenticate(request.auth_bytes)
    answer = SaslAuthenticateResponse(
        error_code=verdict.errno, error_message=verdict.message, auth_bytes=verdict.challenge
    )
    if context.api_version >= 1:
        answer.session_lifetime_ms = verdict.lifetime_ms
    return answer


def refuse(
    context: RequestContext, request: SaslAuthenticateRequest, errno: int
) -> SaslAuthenticateResponse:
    """Say no."""
    message = for_code(errno).description
    if errno == codes.ILLEGAL_SASL_STATE:
        message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=errno, error_message=message, auth_bytes=b"")
