"""What clients know of how they are doing: who answers, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)

__all__ = ["Contact", "StateLog", "Trouble", "Verdict", "newest"]

Failure = tuple[float, BaseException | None]
"""When (loop time) and what."""

# No answer, or that of a broker that is not, or not yet, the coordinator.
_AWAY = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)

# How long a party that is well may take for an answer that it need not wait for itself.
PROMPT = 1.0


class Contact:
    """Since when one party does not answer, and why; written by whoever asks it.

    A failure counts from when its answer was due, silence as well. Each change is logged once,
    however often the party is asked meanwhile.
    """

    __slots__ = (
        "_due",
        "_log",
        "answered_at",
        "error",
        "error_at",
        "failing_since",
        "name",
        "on_change",
    )

    def __init__(
        self, name: str, log: logging.Logger, on_change: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.on_change = on_change
        """Called when it begins or ceases to fail."""
        self.answered_at: float | None = None
        self.failing_since: float | None = None
        self.error: KafkaError | None = None
        """The last failure, which may be over."""
        self.error_at = 0.0
        self._due: list[float] = []
        self._log = log

    @contextmanager
    def asked(self, patience: float = 0.0) -> Iterator[None]:
        """Around a request that the party answers within `patience` seconds, give or take."""
        due = asyncio.get_running_loop().time() + patience + PROMPT
        self._due.append(due)
        try:
            yield
        finally:
            self._due.remove(due)

    def succeed(self) -> None:
        """It answered."""
        self.answered_at = now = asyncio.get_running_loop().time()
        if self.failing_since is not None:
            self._log.info("%s answers again after %.1f s", self.name, now - self.failing_since)
            self.failing_since = None
            self._changed()

    def fail(self, error: KafkaError) -> None:
        """It did not answer, or cannot do its work."""
        now = asyncio.get_running_loop().time()
        self.error = error
        self.error_at = now
        if self.failing_since is None:
            self._log.warning("%s does not answer: %s", self.name, error)
            self.failing_since = min([now, *self._due])
            self._changed()
        else:
            self._log.debug("%s does not answer: %s", self.name, error)

    def note(self, error: KafkaError) -> None:
        """A request ended like this: answered with an error, or not answered."""
        is_answer = isinstance(error, (BrokerResponseError, CommitFailedError))
        if is_answer and not isinstance(error, _AWAY):
            self.succeed()
        else:
            self.fail(error)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def forget(self) -> None:
        """It was not asked for a while: nobody knows whether it would answer."""
        self.failing_since = None

    def silent_since(self, now: float) -> float | None:
        """Since when (loop time) there is no answer though one was due; None if all is well."""
        if self.failing_since is not None:
            return self.failing_since
        heard = -1.0 if self.answered_at is None else self.answered_at
        overdue = [due for due in self._due if heard < due < now]
        return min(overdue, default=None)


class Trouble(NamedTuple):
    """Who does not answer, since when (loop time), and the last that is known of it."""

    since: float
    parties: tuple[str, ...]
    error: BaseException | None

    def __str__(self) -> str:
        names = " and ".join(self.parties)
        verb = "does" if len(self.parties) == 1 else "do"
        cause = f": {self.error}" if self.error is not None else ""
        return f"{names} {verb} not answer{cause}"


class Verdict(NamedTuple):
    """A state by name, why, and since when if that is known (loop time)."""

    state: str
    reason: str = ""
    since: float | None = None


class StateLog:
    """Owns the state of a client that was seen last, and since when; logs each change once.

    `alarming`: the states whose beginning and end are warnings.
    """

    def __init__(self, subject: str, first: str, alarming: Collection[str]) -> None:
        self.verdict = Verdict(first)
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self._subject = subject
        self._alarming = alarming

    def note(self, verdict: Verdict, log: logging.Logger, *, is_last: bool = False) -> bool:
        """Take note of a state; whether it is another one than before."""
        before, self.verdict = self.verdict, verdict
        if verdict.state == before.state:
            return False
        self.since = self._loop.time() if verdict.since is None else verdict.since
        is_over = before.state in self._alarming and not is_last
        log.log(
            logging.WARNING if is_over or verdict.state in self._alarming else logging.INFO,
            "%s: %s -> %s%s",
            self._subject,
            before.state,
            verdict.state,
            f": {verdict.reason}" if verdict.reason else "",
        )
        return True


def newest(failures: Iterable[Failure], contacts: Iterable[Contact]) -> Failure:
    """The last failure of all."""
    known = [*failures, *((contact.error_at, contact.error) for contact in contacts)]
    return max((one for one in known if one[1] is not None), key=_when, default=(0.0, None))


def _when(failure: Failure) -> float:
    return failure[0]
