"""Know what a client waits for, since when and why; log once what lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from aiokafka._log import SubjectLog
from aiokafka._retry import OutOfTimeError
from aiokafka.errors import KafkaTimeoutError, renewed
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.health import StalledWait

__all__ = ["LASTING", "Stall", "Wait", "Waits", "named", "told"]

LASTING = 5.0
"""Seconds after which a wait is logged, and listed by `health()`."""

# Seconds between two looks at what is waited for.
_INTERVAL = 1.0
# A call that ran out of time and is made again within so many seconds goes on with the same wait;
# within `LASTING` if it was given up early.
_GAP = 30.0
# How many such calls are remembered.
_MOST_LATE = 100
# Names in one line of the log.
_MOST_NAMES = 5

_LATE = (KafkaTimeoutError, OutOfTimeError, asyncio.TimeoutError, asyncio.CancelledError)

Source = Callable[[float], Iterable["Stall"]]
"""Returns what the parts of a client wait for at a time (loop time)."""


class Stall(NamedTuple):
    """What is waited for at one moment, since when and why."""

    kind: str
    """What is waited for, such as "records of"; `partition` completes it, if there is one."""
    since: float
    """Loop time."""
    error: BaseException | None = None
    """The last failure, None if there was none."""
    error_at: float = 0.0
    """When that was (loop time)."""
    reason: str = ""
    """Why it is waited for, in words; "" if that is not known."""
    partition: TopicPartition | None = None
    is_logged: bool = False
    """Whether the cause has been logged by the part that met it."""

    @property
    def key(self) -> object:
        """What is the same at the next look, though the text may be another one."""
        return self.partition or self.kind.partition(" (")[0]

    @property
    def what(self) -> str:
        """What is waited for, in words."""
        return self.kind if self.partition is None else f"{self.kind} {named([self.partition])}"


class Wait:
    """A call that waits, while its block runs."""

    __slots__ = (
        "_is_logged",
        "_partitions",
        "_reason",
        "_waits",
        "_why",
        "error",
        "error_at",
        "key",
        "since",
    )

    def __init__(
        self,
        waits: Waits,
        key: str,
        partitions: Collection[TopicPartition],
        reason: str,
        why: Callable[[], BaseException | None] | None,
        is_logged: Callable[[], bool] | None,
    ) -> None:
        self._waits = waits
        self.key = key
        self._partitions = partitions
        self._reason = reason
        self._why = why
        self._is_logged = is_logged
        self.since = 0.0
        self.error: BaseException | None = None
        self.error_at = 0.0

    def __enter__(self) -> Wait:
        self._waits.begin(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._waits.end(self, error)

    def note(self, error: BaseException) -> None:
        """Note why the last attempt has failed."""
        # Without the traceback, which would keep the callers of the failed call in memory.
        self.error = renewed(error)
        self.error_at = self._waits.time()

    def stall(self) -> Stall:
        """Return what is waited for at this moment."""
        if self._why is not None and (error := self._why()) is not None:
            self.note(error)
        about = f" ({named(self._partitions)})" if self._partitions else ""
        reason = self._reason if self.error is None else str(self.error) or repr(self.error)
        is_logged = self._is_logged is not None and self._is_logged()
        kind = f"{self.key}{about}"
        return Stall(kind, self.since, self.error, self.error_at, reason, None, is_logged)


class Waits:
    """Lists what a client waits for: calls, which register here, and what its parts report.

    Whatever lasts longer than `LASTING` is logged once as a WARNING, and once more at INFO when it
    is over. Nothing here runs per record or per request.

    Owns: the calls that wait; those that ran out of time lately, so that a program that repeats
    them gets one WARNING; what has been logged.
    """

    def __init__(self, log: logging.Logger, subject: str) -> None:
        self._log = SubjectLog(log, subject)
        self._loop = asyncio.get_running_loop()
        self._calls: dict[Wait, None] = {}
        self._late: dict[str, tuple[float, float]] = {}
        self._logged: dict[object, Stall] = {}
        self.is_followed = False
        """Whether a producer or consumer lists its waits. Other clients do not: each of their calls
        has a deadline, and raises."""
        self._looked_at = self._loop.time()
        self._source: Source = lambda _: ()
        self._judge: Callable[[], bool] = lambda: False

    def follow(self, log: logging.Logger, source: Source, judge: Callable[[], bool]) -> None:
        """List what `source` tells, too, and log by another logger. `judge()` is called with each
        look, and returns whether the state of the client, which is logged, explains everything."""
        self.is_followed = True
        self._log = SubjectLog(log, self._log.subject)
        self._source = source
        self._judge = judge

    def on(
        self,
        key: str,
        partitions: Collection[TopicPartition] = (),
        reason: str = "no response",
        why: Callable[[], BaseException | None] | None = None,
        is_logged: Callable[[], bool] | None = None,
    ) -> Wait:
        """Return a block in which a call waits for `key`, such as "OffsetCommit of group 'g'".

        Args:
            partitions: Which partitions the call is about.
            reason: Why it waits, before anything has failed.
            why: Returns the reason of the moment, of a wait whose owner notes none.
            is_logged: Returns whether the cause has been logged by another part.
        """
        return Wait(self, key, partitions, reason, why, is_logged)

    def time(self) -> float:
        """Return the time of the loop, in which this may not run."""
        return self._loop.time()

    def begin(self, wait: Wait) -> None:
        """Count in a call."""
        wait.since = now = self._loop.time()
        if self._late:
            since, ended_at = self._late.get(wait.key, (now, now))
            gap = _GAP if ended_at - since >= LASTING else LASTING
            wait.since = since if now - ended_at <= gap else now
        self._calls[wait] = None

    def end(self, wait: Wait, error: BaseException | None) -> None:
        """Count out a call; `error`: what it raises."""
        del self._calls[wait]
        now = self._loop.time()
        has_lasted = error is not None and now - wait.since >= LASTING
        if has_lasted or isinstance(error, _LATE):
            self._late.pop(wait.key, None)
            self._late[wait.key] = (wait.since, now)
            if len(self._late) > _MOST_LATE:
                del self._late[next(iter(self._late))]
        elif self._late:
            self._late.pop(wait.key, None)

    def lasting(self) -> list[Stall]:
        """Return what has been waited for longer than `LASTING`, the oldest first."""
        now = self._loop.time()
        found: dict[str, Stall] = {}
        for wait in list(self._calls):
            if now - wait.since >= LASTING:
                stall = wait.stall()
                # Many calls may wait for the same: the first tells since when, the last why.
                other = found.get(wait.key, stall)
                last = max(stall, other, key=lambda one: one.error_at)
                found[wait.key] = last._replace(since=min(stall.since, other.since))
        stalls = [*found.values(), *self._source(now)]
        lasting = [stall for stall in stalls if now - stall.since >= LASTING]
        return sorted(lasting, key=lambda stall: stall.since)

    def gauges(self) -> dict[str, float]:
        """Return how many waits last, and how many seconds the oldest of them has lasted."""
        lasting = self.lasting()
        age = self._loop.time() - lasting[0].since if lasting else 0.0
        return {"stalled_count": len(lasting), "stalled_age": age}

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        self._looked_at = self._loop.time()
        while True:
            await asyncio.sleep(_INTERVAL)
            if not self.has_stood_still:
                self.look()
            self._looked_at = self._loop.time()

    @property
    def has_stood_still(self) -> bool:
        """Whether the program has kept the loop from running for a while: what brokers have sent
        meanwhile is not read yet."""
        return self._loop.time() - self._looked_at > 2 * _INTERVAL

    def look(self) -> None:
        """Log what has begun to last, and what does not last any more."""
        is_explained = self._judge()
        if is_explained and not self._logged:
            return  # during an outage of very many partitions, nothing is to be logged
        lasting = {stall.key: stall for stall in self.lasting()}
        if not lasting and not self._logged:
            return
        now = self._loop.time()
        new = [
            stall
            for key, stall in lasting.items()
            if key not in self._logged and not stall.is_logged and not is_explained
        ]
        if new:
            seconds = now - min(stall.since for stall in new)
            self._log.warning("No progress for %.1f s: %s", seconds, _described(new))
            self._logged.update((stall.key, stall) for stall in new)
        over = [key for key in self._logged if key not in lasting and not self._may_go_on(key)]
        if over:
            ended = [self._logged.pop(key)._replace(reason="") for key in over]
            self._log.info("Not waiting any more: %s", _described(ended))

    def _may_go_on(self, key: object) -> bool:
        """Return whether a call has run out of time lately, and may be made again."""
        late = self._late.get(key) if isinstance(key, str) else None
        return late is not None and self._loop.time() - late[1] <= _GAP


def named(partitions: Collection[TopicPartition]) -> str:
    """Name the first few of these partitions, and say how many more there are."""
    first = ", ".join(f"{tp[0]}-{tp[1]}" for tp in sorted(partitions)[:_MOST_NAMES])
    more = len(partitions) - _MOST_NAMES
    return f"{first} and {more} more" if more > 0 else first


def told(stalls: Iterable[Stall], now: float) -> tuple[StalledWait, ...]:
    """Return what `health()` says of these at this time (loop time)."""
    from aiokafka.health import StalledWait  # a dataclass: only who asks pays

    return tuple(StalledWait(each.what, each.reason, (now - each.since) * 1000) for each in stalls)


def _described(stalls: Iterable[Stall]) -> str:
    """Return what is waited for, and why; partitions with the same kind of error together."""
    groups: dict[tuple[str, object], list[Stall]] = {}
    for stall in stalls:
        cause = type(stall.error) if stall.error is not None else stall.reason
        groups.setdefault((stall.kind, cause), []).append(stall)
    texts = []
    for first, *others in groups.values():
        partitions = [each.partition for each in (first, *others) if each.partition is not None]
        what = f"{first.kind} {named(partitions)}" if partitions else first.kind
        texts.append(f"{what}: {first.reason}" if first.reason else what)
    more = len(texts) - _MOST_NAMES
    return "; ".join(texts[:_MOST_NAMES]) + (f"; and {more} more" if more > 0 else "")
