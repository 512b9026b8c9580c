"""SaslHandshake: which mechanism a login is by."""

from __future__ import annotations

from aiokafka.protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = SaslHandshakeRequest


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin a login, or say that this listener has none."""
    session, security = context.session, context.services.security
    if session is None or security is None:
        return refuse(context, request, codes.ILLEGAL_SASL_STATE)
    errno = session.shake_hands(request.mechanism, context.api_version)
    return SaslHandshakeResponse(error_code=errno, mechanisms=list(security.mechanisms))


def refuse(
    context: RequestContext, request: SaslHandshakeRequest, errno: int
) -> SaslHandshakeResponse:
    """Say no."""
    security = context.services.security
    offered = security.mechanisms if security and errno == codes.UNSUPPORTED_SASL_MECHANISM else ()
    return SaslHandshakeResponse(error_code=errno, mechanisms=list(offered))
