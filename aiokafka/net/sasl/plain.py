"""PLAIN (RFC 4616): user name and password in one token. Only safe over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.net.sasl.credentials import Credentials

if TYPE_CHECKING:
    from aiokafka._config import Credential

__all__ = ["Plain"]


class Plain:
    """Sends one token; the broker responds with an empty token or an error code."""

    name = "PLAIN"
    is_slow = False

    def __init__(self, username: Credential, password: Credential) -> None:
        self._credentials = Credentials(username, password)
        self.done = False

    @property
    def sent_secret(self) -> str:
        """The password, which the broker gets in plain text."""
        return self._credentials.password

    @property
    def user(self) -> str:
        """The user name; "" before `prepare` if the name is a function."""
        return self._credentials.user

    async def prepare(self) -> None:
        """Fetch user name and password, see `Credentials.fetch`."""
        await self._credentials.fetch()

    def start(self) -> bytes:
        """Return the token: an empty authorization id, name and password, separated by zero
        bytes."""
        self.done = True
        return f"\0{self._credentials.user}\0{self._credentials.password}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Return None for any challenge. PLAIN has no challenges, but some servers (Tencent) add a
        text to a success."""
        return None

    def note_refusal(self) -> None:
        """Do nothing: each authentication fetches name and password again."""
