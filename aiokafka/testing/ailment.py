"""What makes one broker of a fake cluster slow, or dead to some requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from random import Random

from aiokafka.testing.arguments import check_seconds
from aiokafka.testing.replication import Seconds, drawn


class Ailment:
    """What a broker cannot do at the moment."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._lag: Seconds = 0.0
        self._slow: Collection[int] | None = ()  # API keys; None for all
        self._hung: Collection[int] | None = ()
        self._revived = asyncio.Event()
        #: Whether anything is wrong.
        self.is_felt = False

    def hang(self, api_keys: Collection[int] | None) -> None:
        """Let requests of these APIs wait, None for all, until :meth:`heal`."""
        self._hung = api_keys
        self._revived.clear()
        self.is_felt = True

    def slow(self, seconds: Seconds, api_keys: Collection[int] | None) -> None:
        """Let requests of these APIs wait for some time."""
        for each in seconds if isinstance(seconds, tuple) else (seconds,):
            check_seconds("seconds", each)
        self._lag, self._slow = seconds, api_keys
        self.is_felt = True

    def heal(self) -> None:
        """End all that ails the broker; the requests that wait are answered."""
        self._hung = self._slow = ()
        self.is_felt = False
        self._revived.set()

    async def wait(self, api_key: int) -> None:
        """Let a request wait for as long as it has to."""
        if self._slow is None or api_key in self._slow:
            await asyncio.sleep(drawn(self._lag, self._random))
        if self._hung is None or api_key in self._hung:
            await self._revived.wait()
