"""SASL mechanisms of the application (`aiokafka.abc.AbstractSaslMechanism`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from aiokafka._tasks import is_task_cancelled
from aiokafka.abc import AbstractSaslMechanism
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError

__all__ = ["CustomMechanism"]

log = logging.getLogger("aiokafka.conn")


class CustomMechanism:
    """One authentication by a mechanism of the application. Owns the generator of its tokens."""

    sent_secret = ""
    user = ""
    is_slow = False

    def __init__(self, mechanism: AbstractSaslMechanism, host: str) -> None:
        self.name = mechanism.name
        self.done = False
        self._mechanism = mechanism
        self._host = host
        self._tokens: AsyncGenerator[bytes, bytes] | None = None
        self._first: bytes | None = None

    async def prepare(self) -> None:
        """Get the first token. Raises KafkaConnectionError, which is retriable, if the mechanism
        fails, and AuthenticationFailedError if the mechanism returns no token or a token that is
        not bytes."""
        self._first = await self._next(None, KafkaConnectionError)
        if self._first is None:
            kind = type(self._mechanism).__name__
            raise AuthenticationFailedError(f"{self.name}: the mechanism {kind} returned no token")

    def start(self) -> bytes:
        """Return the first token."""
        assert self._first is not None
        return self._first

    async def step(self, challenge: bytes) -> bytes | None:
        """Pass the broker's response to the mechanism, and return its next token; None at its end.
        Raises AuthenticationFailedError if the mechanism fails."""
        token = await self._next(bytes(challenge), AuthenticationFailedError)
        self.done = token is None
        return token

    def note_refusal(self) -> None:
        """Notify the mechanism that the broker has rejected the client."""
        try:
            self._mechanism.refused()
        except Exception:
            # Only log it: the caller must get the broker's rejection, not this error.
            log.exception("refused() of %s failed", type(self._mechanism).__name__)

    async def _next(self, challenge: bytes | None, failure: type[KafkaError]) -> bytes | None:
        """Return the next token; None at the end. Raises `failure` if the mechanism fails."""
        mechanism = f"{self.name}: the mechanism {type(self._mechanism).__name__}"
        try:
            if self._tokens is None:
                self._tokens = self._mechanism.exchange(self._host)
            # `challenge` is None in the first call: asend() of a generator that has not started
            # takes None only.
            token: object = await self._tokens.asend(challenge)  # type: ignore[arg-type]
        except StopAsyncIteration:
            return None
        except KafkaError:
            raise
        except asyncio.CancelledError as error:
            if is_task_cancelled():
                raise
            text = f"{self.name}: the mechanism awaited a cancelled task or future"
            raise KafkaConnectionError(text) from error
        except Exception as error:
            # The text of the exception may contain a secret.
            raise failure(f"{mechanism} failed: {type(error).__name__}") from error
        if not isinstance(token, bytes):
            await self._tokens.aclose()
            given = type(token).__name__
            raise AuthenticationFailedError(f"{mechanism} returned {given} as a token, not bytes")
        return token
