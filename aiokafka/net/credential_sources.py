"""Backoff for functions of the application that return credentials and TLS contexts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from aiokafka._retry import Backoff
from aiokafka.errors import KafkaError, renewed

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig

__all__ = ["CredentialSource", "CredentialSources"]

T = TypeVar("T")


class CredentialSource:
    """Calls the application's credential functions, with a backoff. Owns the last failure."""

    def __init__(self, config: ClientConfig) -> None:
        self._delays = Backoff(config.reconnect_backoff, config.reconnect_backoff_max)
        self._failure: KafkaError | None = None
        self._retry_at = 0.0
        self._lock = asyncio.Lock()

    async def call(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `ask`, or raise the exception of `ask`.

        After a failure, one caller calls its `ask` after the backoff, while other callers wait. If
        this call fails, the other callers raise the same error; otherwise they call their own
        `ask`.
        """
        failures = self._delays.failures
        if not failures:
            return await self._ask(ask)
        async with self._lock:
            if self._delays.failures == failures:
                loop = asyncio.get_running_loop()
                await asyncio.sleep(max(0.0, self._retry_at - loop.time()))
                return await self._ask(ask)
        failure = self._failure
        if failure is not None:
            raise renewed(failure) from failure.__cause__
        return await self._ask(ask)

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await ask()
        except KafkaError as error:
            self._failure = error
            self._retry_at = asyncio.get_running_loop().time() + self._delays.next()
            raise
        self._failure = None
        self._delays.reset()
        return result


class CredentialSources:
    """The credential sources of one client, shared by its connections.

    The backoff of a source is shared: with only the backoff of each connection, many connections
    together would call a failing source many times a second.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.sasl = CredentialSource(config)
        self.tls = CredentialSource(config)
