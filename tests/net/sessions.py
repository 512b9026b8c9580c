"""What tests of re-authentication share: secrets that change, and short sessions."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.tokens import Token

# Brokers here serve a session so many times longer than they say: a machine that stalls ends none.
LENIENCE = 20


class Secrets:
    """A store of credentials that change."""

    def __init__(self, user: str = "alice", password: str = "first") -> None:
        self.user, self.password = user, password
        self.asked = 0

    async def give_user(self) -> str:
        await asyncio.sleep(0)
        return self.user

    def give_password(self) -> str:
        self.asked += 1
        return self.password


def options(mechanism: str = "PLAIN", secrets: Secrets | None = None) -> dict[str, Any]:
    secrets = secrets or Secrets()
    found = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return {**found, "sasl_oauth_token_provider": Token()}
    return {
        **found,
        "sasl_plain_username": secrets.give_user,
        "sasl_plain_password": secrets.give_password,
    }


def shorten(response: Any) -> None:
    response.session_lifetime_ms //= LENIENCE
