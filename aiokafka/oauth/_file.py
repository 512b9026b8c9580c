"""Tokens and keys in files, which are read again each time, within bounds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from aiokafka import _seams
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.oauth._cache import CachedTokenProvider, Token
from aiokafka.oauth._jwt import expiry_of

__all__ = ["FileTokenProvider", "read_file"]

_MAX_FILE = 256 * 1024

# Seconds: the clock skew that Kafka tolerates (sasl.oauthbearer.clock.skew.seconds).
_CLOCK_SKEW = 30.0


def read_file(path: str, what: str) -> bytes:
    """Read a small file. Blocks.

    Raises KafkaConnectionError, which is retriable: the file may be about to be replaced.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise KafkaConnectionError(f"cannot read the {what} {path!r}: {reason}") from error
    if not content.strip():
        raise KafkaConnectionError(f"the {what} {path!r} is empty")
    if len(content) > _MAX_FILE:
        raise KafkaConnectionError(f"the {what} {path!r} has more than {_MAX_FILE} bytes")
    return content


def read_text(path: str, what: str) -> str:
    """Read a small file as text, without white space around it."""
    try:
        return read_file(path, what).decode("ascii").strip()
    except UnicodeDecodeError:
        raise AuthenticationFailedError(f"the {what} {path!r} is not ASCII text") from None


class FileTokenProvider(CachedTokenProvider):
    """Tokens that another program writes into a file, such as Kubernetes for a service account.

    The file is read for every connection and every re-authentication, so a new token is used as
    soon as it is there. While the file cannot be read, the last token is used until it expires.

    Args:
        path: the file; white space around the token does not matter.
        extensions: the SASL extensions to send with it (KIP-342).
        options: those of `OAuthConfig`; the ones about refreshing have no effect.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        extensions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(extensions=extensions, **options)
        self._path = os.fspath(path)

    async def fetch(self) -> Token:
        """Read the file, in the executor."""
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(None, read_text, self._path, "token file")
        expiry = expiry_of(value)
        if expiry is None:
            return Token(value, None)
        left = expiry - _seams.wall_time()
        if left < -_CLOCK_SKEW:
            raise AuthenticationFailedError(
                f"the token in {self._path!r} expired {-left:.0f} s ago: nothing has replaced "
                "it, or the clock is wrong"
            )
        return Token(value, max(left, 1.0))

    def _refresh_after(self, lifetime: float) -> float:
        return 0.0
