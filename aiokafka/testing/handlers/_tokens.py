"""What the handlers of delegation tokens have in common."""

from __future__ import annotations

from aiokafka.testing import codes
from aiokafka.testing.delegation_tokens import Token, TokenRefusedError
from aiokafka.testing.script import RequestContext

__all__ = ["parts", "principal_of", "requester_of"]

_FIRST_WITH_REQUESTER = 3  # versions


def principal_of(context: RequestContext) -> str:
    """Return the client's principal; raise TokenRefusedError if it may not ask about tokens."""
    session = context.session
    if session is None or session.is_by_token:
        raise TokenRefusedError(codes.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return f"User:{session.user}"


def requester_of(context: RequestContext, token: Token) -> tuple[str, str]:
    """Return type and name of the principal that created a token, if the version has them."""
    return parts(token.requester) if context.api_version >= _FIRST_WITH_REQUESTER else ("", "")


def parts(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
