"""Interceptors of the programs: slow, failing, and busy with what else a program may do meanwhile.

Each client has two of them. The first makes the trouble, the second sees what is left of it.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.simulation.calls import AllowedError

if TYPE_CHECKING:
    from tests.simulation.scenario import Draft

_FORMS = ("plain", "coroutine", "coroutine", "either")
#: Seconds that a program waits for a position that its consumer knows.
AT_ONCE = 0.1


def draw_interceptors(draft: Draft, kind: str) -> dict[str, Any]:
    """Options for the interceptors of one program, as JSON can hold them."""
    source = draft.random
    return {
        "form": source.choice(_FORMS),
        "slow_s": source.choice((0, 0, 0.001, 0.01, 0.1, 0.5)),
        "raise_rate": source.choice((0, 0, 0.1, 0.3)),
        "replace_rate": source.choice((0, 0.3)),
        "drop_rate": source.choice((0, 0, 0.2)) if kind in ("lone", "group") else 0,
        "seek_rate": source.choice((0, 0, 0.05)) if kind == "lone" else 0,
        "pause_rate": source.choice((0, 0, 0.1)),
        "commit_rate": source.choice((0, 0, 0.1)) if kind == "group" else 0,
        "stop_rate": source.choice((0, 0, 0, 0.01)) if kind == "group" else 0,
        "notes": source.choice(_FORMS),
        "note_s": source.choice((0, 0, 0.001, 0.02)),
    }


def slowness(options: dict[str, Any]) -> float:
    """Return the seconds that the interceptors of a program look at records, at the most."""
    found = options.get("interceptors")
    return 4 * float(found["slow_s"]) + AT_ONCE if found else 0.0


def longest_slowness(options: dict[str, Any]) -> float:
    """Return that of the slowest program of a workload."""
    return max(slowness(program) for program in (options, *options.get("members", ())))


class Behaviour:
    """How interceptors behave, by their options and by chance of their own."""

    def __init__(self, source: random.Random, options: dict[str, Any]) -> None:
        self.random = source
        self.options = options

    def happens(self, rate: str) -> bool:
        """Return whether what has this rate happens now."""
        probability = self.options.get(rate, 0)
        return bool(probability) and self.random.random() < probability

    def is_coroutine(self, form: str = "form") -> bool:
        """Return whether this call is one of a coroutine function."""
        found = self.options[form]
        return found == "coroutine" or (found == "either" and self.random.random() < 0.5)

    async def take_time(self, how: str = "slow_s") -> None:
        """Wait as long as these take."""
        await asyncio.sleep(2 * self.options[how] * self.random.random())

    async def maybe_fail(self) -> None:
        """Raise what must change nothing, or await what was cancelled."""
        if self.happens("raise_rate"):
            if self.random.random() < 0.3:
                task = asyncio.ensure_future(asyncio.sleep(1.0))
                task.cancel()
                await task
            self.raise_on_purpose()

    def maybe_raise(self) -> None:
        """Raise what must change nothing, now and then."""
        if self.happens("raise_rate"):
            self.raise_on_purpose()

    def raise_on_purpose(self) -> None:
        """Raise an error that the log may have."""
        raise AllowedError("the interceptor raises on purpose")


class Turns:
    """The coroutines of notifications of one client: they run in their order, never two at once."""

    def __init__(self) -> None:
        self._order: list[int] = []
        self._count = 0
        self.is_running = False

    def next(self) -> int:
        """Return the number of a coroutine that is given to the client now."""
        self._count += 1
        self._order.append(self._count)
        return self._count

    def begin(self, number: int) -> str:
        """Let a coroutine begin; what is wrong about that, in words."""
        complaint = ""
        if self.is_running:
            complaint = f"notification {number} begins while another is at work"
        elif self._order[0] != number:
            complaint = f"notification {number} begins before {self._order[0]}"
        if number in self._order:
            self._order.remove(number)
        self.is_running = True
        return complaint

    def end(self) -> None:
        """Let the next one begin."""
        self.is_running = False


def copies(records: Iterable[Any]) -> list[Any]:
    """Return other objects with the same contents."""
    return [copy.copy(record) for record in records]
