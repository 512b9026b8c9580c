"""OAUTHBEARER (RFC 7628, KIP-255): a token of an authorization server, and extensions (KIP-342)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafka._tasks import is_task_cancelled
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError
from aiokafka.net.failures import sanitized

if TYPE_CHECKING:
    from aiokafka.abc import AbstractTokenProvider

__all__ = ["OAuthBearer"]

log = logging.getLogger("aiokafka.conn")

_SEPARATOR = "\x01"

# The syntax of a token (RFC 6750), and of the keys and values of extensions (RFC 7628).
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x20-\x7e\t\r\n]*")


class OAuthBearer:
    """Sends one token. The broker rejects the token by a challenge that needs a response."""

    name = "OAUTHBEARER"
    user = ""
    is_slow = False

    def __init__(self, provider: AbstractTokenProvider) -> None:
        self._provider = provider
        self._message = b""
        self._token = ""
        self._refusal: str | None = None
        self.done = False

    @property
    def sent_secret(self) -> str:
        """The token, which the broker gets in plain text; "" before `prepare`."""
        return self._token

    async def prepare(self) -> None:
        """Get the token and extensions from the provider. Raises KafkaConnectionError, which is
        retriable, if the provider fails, and AuthenticationFailedError if the token or an extension
        is invalid."""
        try:
            token: object = await self._provider.token()
            if inspect.isawaitable(token):
                # The result of `token()` may be awaitable again: some providers return the future
                # of an executor.
                token = await token
            extensions = self._provider.extensions() or {}
        except KafkaError:
            raise
        except asyncio.CancelledError as error:
            if is_task_cancelled():
                raise
            raise KafkaConnectionError(
                f"{self.name}: the token provider {type(self._provider).__name__} awaited a "
                "cancelled task or future"
            ) from error
        except Exception as error:
            raise KafkaConnectionError(
                f"{self.name}: the token provider {type(self._provider).__name__} failed: "
                f"{type(error).__name__}"
            ) from error
        self._message = _client_message(token, extensions)
        self._token = str(token)

    def start(self) -> bytes:
        """Return the token with its extensions."""
        self.done = True
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        """Return None for an empty challenge, which means success.

        Any other challenge contains the reason of a rejection: return its acknowledgement (RFC
        7628, 3.2.3), and raise AuthenticationFailedError at the next challenge.
        """
        if self._refusal is not None:
            raise self._refused(self._refusal)
        if not challenge:
            return None
        self._refusal = sanitized(bytes(challenge).decode(errors="replace"), self._token)
        self._notify_provider()
        return _SEPARATOR.encode()

    def note_refusal(self) -> None:
        """Notify the provider of the rejected token, unless `step` has notified it."""
        if self._refusal is None:
            self._notify_provider()

    def _refused(self, reason: str) -> AuthenticationFailedError:
        return AuthenticationFailedError(f"{self.name}: the broker refused the token: {reason}")

    def _notify_provider(self) -> None:
        # `refused` is optional: a provider may not derive from AbstractTokenProvider.
        refused = getattr(self._provider, "refused", None)
        if refused is None:
            return
        try:
            refused(self._token)
        except Exception:
            # Only log it: the caller must get the broker's rejection, not this error.
            log.exception("refused() of %s failed", type(self._provider).__name__)


def _client_message(token: object, extensions: object) -> bytes:
    # The token is a secret, so no error message contains it.
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise AuthenticationFailedError(
            "OAUTHBEARER: the token provider returned no valid token (a non-empty str, RFC 6750)"
        )
    parts = [f"auth=Bearer {token}"]
    if not isinstance(extensions, Mapping):
        raise AuthenticationFailedError(
            f"OAUTHBEARER: the token provider returned {type(extensions).__name__} as extensions, "
            "not a dict of strings"
        )
    for key, value in extensions.items():
        if key == "auth" or not _matches(_KEY, key) or not _matches(_VALUE, value):
            raise AuthenticationFailedError(
                f"OAUTHBEARER: {key!r} is not a valid extension: its name must have letters only, "
                "and its value printable characters only"
            )
        parts.append(f"{key}={value}")
    return ("n,," + _SEPARATOR + _SEPARATOR.join(parts) + _SEPARATOR * 2).encode()


def _matches(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None
