"""PLAIN (RFC 4616): user name and password in one token. Only safe over TLS."""

from __future__ import annotations

from aiokafka.errors import AuthenticationFailedError

__all__ = ["Plain"]


class Plain:
    """One token out; the broker answers with an empty one or with an error code."""

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password
        self.done = False

    async def prepare(self) -> None:
        """Nothing to fetch."""

    def start(self) -> bytes:
        """No authorization id, then name and password, each after a zero byte."""
        self.done = True
        return f"\0{self._username}\0{self._password}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """PLAIN has no challenges."""
        if challenge:
            raise AuthenticationFailedError(
                "SASL PLAIN: the broker answered with an unexpected challenge"
            )
        return None
