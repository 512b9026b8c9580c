"""What clients know of how they are doing: which broker responds, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aiokafka._log import SubjectLog
from aiokafka._subject import Subject, about
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
    renewed,
)

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.health import StateChange

__all__ = [
    "Contact",
    "Due",
    "StateLog",
    "Trouble",
    "Verdict",
    "broker_contact",
    "newest",
    "together",
]

Failure = tuple[float, BaseException | None]
"""The time (loop time) and the error."""

Due = tuple[float, str, float]
"""When a request was made (loop time), what it is called, and the seconds that a healthy broker
takes to answer it."""

# No response, or that of a broker that is not, or not yet, the coordinator.
_AWAY = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)

# What a coordinator responds in the first moments of a cluster, while its internal topic is made.
_SETTLING = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)
# Seconds for which these are no outage of a party that has not responded yet.
_SETTLED_AFTER = 5.0

# Changes of its state that a client remembers.
_REMEMBERED = 20

# Expected response time of a healthy broker, in seconds, for a request that does not block.
PROMPT = 1.0


class Contact:
    """How long one party has not responded, and why; written by the code that sends it requests.

    A failure counts from when its response was due, silence as well. Each change is logged once,
    however often the party is asked meanwhile.
    """

    __slots__ = (
        "_address",
        "_due",
        "_first_failed_at",
        "_is_closed",
        "_log",
        "_loop",
        "_resumed_at",
        "_resumes_at",
        "answered_at",
        "error",
        "error_at",
        "failing_since",
        "name",
        "on_change",
    )

    def __init__(
        self,
        name: str,
        log: logging.Logger | SubjectLog,
        on_change: Callable[[], None] | None = None,
        address: Callable[[], str] | None = None,
        resumes_at: Callable[[], float] | None = None,
    ) -> None:
        """Begin without requests. `address()` is where the party is, `resumes_at()` the loop time
        until which it has asked this client to wait."""
        self.name = name
        self._address = address
        self._resumes_at = resumes_at
        self._resumed_at = 0.0
        self.on_change = on_change
        """Called when it begins or ceases to fail."""
        self.answered_at: float | None = None
        self.failing_since: float | None = None
        self.error: KafkaError | None = None
        """The last failure, which may be over."""
        self.error_at = 0.0
        self._first_failed_at: float | None = None
        self._is_closed = False
        self._due: list[Due] = []
        self._log = log
        self._loop = asyncio.get_running_loop()

    def asked(self, request: str, patience: float = 0.0) -> _Question:
        """Note while the block runs that a request is out; the arguments are those of `expect`."""
        return _Question(self, request, patience)

    def expect(self, request: str, patience: float = 0.0) -> Due:
        """Note that a request is out, until `forgive` is called with what this returns.

        Args:
            request: What the request is called in a message, such as "Fetch".
            patience: Seconds that the broker may take, beyond :data:`PROMPT`.
        """
        due = (self._loop.time(), request, patience + PROMPT)
        self._due.append(due)
        return due

    def forgive(self, due: Due) -> None:
        """Note that a request has ended, one way or the other."""
        self._due.remove(due)

    @property
    def is_asked(self) -> bool:
        """Whether a request is out."""
        return bool(self._due)

    def succeed(self) -> None:
        """Note that the party has responded."""
        self.answered_at = now = self._loop.time()
        if self.failing_since is not None:
            self._log.info("%s answers again after %.1f s", self.name, now - self.failing_since)
            self.failing_since = None
            self._changed()

    def fail(self, error: KafkaError) -> None:
        """Note that the party has not responded, or cannot do its work."""
        if self._is_closed:
            return
        now = self._loop.time()
        # Without the traceback, which would keep the callers of the failed call in memory.
        self.error = renewed(error)
        self.error_at = now
        if self._is_settling(now, error):
            return
        if self.failing_since is None:
            self._log.warning("%s does not answer: %s", self.place, error)
            # Not from now on: the response may have been due for long, as when a request ran into
            # its timeout.
            self.failing_since = min([now, *(due for due, _ in self._dues())])
            self._changed()
        else:
            self._log.debug("%s does not answer: %s", self.place, error)

    def _is_settling(self, now: float, error: KafkaError) -> bool:
        """Tell a cluster that is making its internal topics from an outage."""
        if self.answered_at is not None or self.failing_since is not None:
            return False
        if self._first_failed_at is None:
            self._first_failed_at = now
        is_settling = isinstance(error, _SETTLING) and now < self._first_failed_at + _SETTLED_AFTER
        if is_settling:
            self._log.debug("%s is not ready yet: %s", self.place, error)
        return is_settling

    def note(self, error: KafkaError) -> None:
        """Note how a request ended: with an error code in its response, or without a response."""
        is_answer = isinstance(error, (BrokerResponseError, CommitFailedError))
        if is_answer and not isinstance(error, _AWAY):
            self.succeed()
        else:
            self.fail(error)

    def close(self) -> None:
        """Note no failure from here on: this client closes its connections."""
        self._is_closed = True

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def forget(self) -> None:
        """Forget a failure: the party was not asked for a while, and might respond by now."""
        self.failing_since = None

    def silent_since(self, now: float) -> float | None:
        """Return since when (loop time) a response is missing that was due; None if all is well."""
        if self.failing_since is not None:
            return self.failing_since
        return min((due for due, _ in self._overdue(now)), default=None)

    def _overdue(self, now: float) -> list[tuple[float, str]]:
        heard = -1.0 if self.answered_at is None else self.answered_at
        return [(due, request) for due, request in self._dues() if heard < due < now]

    def _dues(self) -> list[tuple[float, str]]:
        """Return by when the requests that are out are to be answered (loop time)."""
        # A party that throttles this client reads nothing before, as it has said itself.
        if self._due and self._resumes_at is not None:
            self._resumed_at = max(self._resumed_at, self._resumes_at())
        since = self._resumed_at
        return [(max(asked_at, since) + limit, request) for asked_at, request, limit in self._due]

    @property
    def place(self) -> str:
        """The name, with the address if that is known."""
        address = self._address() if self._address is not None else ""
        text = f"{self.name} at {address}" if address else self.name
        return Subject(text, **about(self.name))

    def outage(self, now: float) -> Trouble | None:
        """Return what is wrong with this party at the moment (`now`: loop time), None if nothing.

        An error counts only for the outage in which it came: a party that is silent now is not
        explained by the error of an outage that is over.
        """
        since = self.silent_since(now)
        if since is None:
            return None
        if self.failing_since is not None and self.error is not None:
            text = f"{self.place} does not answer: {self.error}"
            return Trouble(since, (self.name,), self.error, text)
        _, request = min(self._overdue(now))
        text = f"{self.place} has not answered {request} for {now - since + PROMPT:.1f} s"
        return Trouble(since, (self.name,), None, text)


def broker_contact(
    client: AIOKafkaClient,
    node_id: int,
    log: logging.Logger | SubjectLog,
    on_change: Callable[[], None] | None,
) -> Contact:
    """Return what is known of whether a broker responds; nothing yet."""
    return Contact(
        Subject(f"Broker {node_id}", node_id=node_id),
        log,
        on_change,
        partial(client.address_of_node, node_id),
        partial(client.throttled_until, node_id),
    )


class _Question:
    """A request that is out. There is one for each request: a generator would cost several times
    as much."""

    __slots__ = ("_contact", "_due", "_patience", "_request")

    def __init__(self, contact: Contact, request: str, patience: float) -> None:
        self._contact = contact
        self._request = request
        self._patience = patience

    def __enter__(self) -> None:
        self._due = self._contact.expect(self._request, self._patience)

    def __exit__(self, *_: object) -> None:
        self._contact.forgive(self._due)


class Trouble(NamedTuple):
    """An outage of one party or of several."""

    since: float
    """Since when (loop time)."""
    parties: tuple[str, ...]
    """The parties that do not respond."""
    error: BaseException | None
    """The last error of this outage, None if there is silence only."""
    text: str
    """Which party does not respond, where, and to what, or with which error."""

    def __str__(self) -> str:
        return self.text


def together(troubles: Collection[Trouble]) -> Trouble:
    """Return one outage for those of several parties that are all needed.

    It began when the last of the parties went away. Each party is explained by its own error.
    """
    if len(troubles) == 1:
        return next(iter(troubles))
    since = max(trouble.since for trouble in troubles)
    parties = tuple(name for trouble in troubles for name in trouble.parties)
    failed = [trouble for trouble in troubles if trouble.error is not None]
    error = max(failed, key=lambda trouble: trouble.since).error if failed else None
    return Trouble(since, parties, error, "; ".join(trouble.text for trouble in troubles))


class Verdict(NamedTuple):
    """A state by name, why, and since when if that is known (loop time)."""

    state: str
    reason: str = ""
    since: float | None = None


class StateLog:
    """Owns the state of a client that was seen last, since when, and the last few before; logs each
    change once.

    Args:
        subject: What lines in the log call the client.
        first: The state to begin with.
        alarming: The states whose beginning and end are warnings.
    """

    def __init__(self, subject: str, first: str, alarming: Collection[str]) -> None:
        self.verdict = Verdict(first)
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self._subject = subject
        self._alarming = alarming
        self._before: deque[tuple[float, Verdict]] = deque(maxlen=_REMEMBERED)

    def note(self, verdict: Verdict, log: logging.Logger, *, is_last: bool = False) -> bool:
        """Take note of a state; whether it is another one than before."""
        before, self.verdict = self.verdict, verdict
        if verdict.state == before.state:
            return False
        self._before.append((self.since, before))
        self.since = self._loop.time() if verdict.since is None else verdict.since
        is_over = before.state in self._alarming and not is_last
        log.log(
            logging.WARNING if is_over or verdict.state in self._alarming else logging.INFO,
            "%s: %s -> %s%s",
            self._subject,
            before.state,
            verdict.state,
            f": {verdict.reason}" if verdict.reason else "",
            extra=about(self._subject),
        )
        return True

    def changes(self) -> tuple[StateChange, ...]:
        """Return the states that the client was in before, the last one first."""
        from aiokafka.health import StateChange  # a dataclass: only who asks pays

        now = self._loop.time()
        return tuple(
            StateChange(str(verdict.state), verdict.reason, (now - since) * 1000)
            for since, verdict in reversed(self._before)
        )


def newest(failures: Iterable[Failure], contacts: Iterable[Contact]) -> Failure:
    """Return the last failure of all."""
    known = [*failures, *((contact.error_at, contact.error) for contact in contacts)]
    return max((one for one in known if one[1] is not None), key=_when, default=(0.0, None))


def _when(failure: Failure) -> float:
    return failure[0]
