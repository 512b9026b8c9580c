"""What tests of tokens share."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.oauth import CachedTokenProvider, ClientCredentialsTokenProvider, Token
from tests.oauth.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider

SECRET = "c2VjcmV0"
UNREACHABLE = KafkaConnectionError("the identity provider is away")
REFUSED = AuthenticationFailedError("not you")


class Source(CachedTokenProvider):
    """Gives what it is told to: tokens by their lifetime, or errors."""

    def __init__(self, *steps: float | Exception | None, **options: object) -> None:
        super().__init__(**{"retry_backoff_ms": 1, "retry_backoff_max_ms": 4, **options})
        self.steps = list(steps)
        self.fetched = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.is_fetching = asyncio.Event()

    async def fetch(self) -> Token:
        self.fetched += 1
        number = self.fetched
        self.is_fetching.set()
        await self.may_go_on.wait()
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return Token(f"{SECRET}-{number}", step)


# Of a token that comes in the end, also on a busy machine.
PATIENCE_MS = 50_000
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 10}


def client(
    provider: IdentityProvider, secret: Any = CLIENT_SECRET, **options: Any
) -> ClientCredentialsTokenProvider:
    return ClientCredentialsTokenProvider(
        provider.url(),
        client_id=CLIENT_ID,
        client_secret=secret,
        **{**QUICK, "token_timeout_ms": PATIENCE_MS, **options},
    )
