"""Whether somebody answers: a broker, the coordinator of a group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)

__all__ = ["Contact"]

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

    def silent_since(self, now: float) -> float | None:
        """Since when (loop time) there is no answer though one was due; None if all is well."""
        if self.failing_since is not None:
            return self.failing_since
        heard = -1.0 if self.answered_at is None else self.answered_at
        overdue = [due for due in self._due if heard < due < now]
        return min(overdue, default=None)
