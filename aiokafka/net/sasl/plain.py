"""PLAIN (RFC 4616): user name and password in one token. Only safe over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.net.sasl.credentials import Credentials

if TYPE_CHECKING:
    from aiokafka._config import Credential

__all__ = ["Plain"]


class Plain:
    """One token out; the broker answers with an empty one or with an error code."""

    name = "PLAIN"
    is_slow = False

    def __init__(self, username: Credential, password: Credential) -> None:
        self._credentials = Credentials(username, password)
        self.done = False

    @property
    def sent_secret(self) -> str:
        """The password."""
        return self._credentials.password

    @property
    def user(self) -> str:
        """The user name."""
        return self._credentials.user

    async def prepare(self) -> None:
        """Ask for name and password where functions give them."""
        await self._credentials.fetch()

    def start(self) -> bytes:
        """Return an empty authorization id, name and password, each after a zero byte."""
        self.done = True
        return f"\0{self._credentials.user}\0{self._credentials.password}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Look at no challenge: PLAIN has none, and what a server adds to the code of success, as
        Tencent's does, is no refusal."""
        return None

    def note_refusal(self) -> None:
        """Do nothing: name and password are asked for each time."""
