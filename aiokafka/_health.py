"""The health of a client: its state, outages of brokers, and waits longer than five seconds."""

from __future__ import annotations

import asyncio
import enum
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka._retry import OutOfTimeError
from aiokafka._subject import Subject, about
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
    renewed,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = [
    "LASTING",
    "THROTTLES",
    "ConsumerState",
    "Due",
    "NodeHealth",
    "Outage",
    "ProducerState",
    "Stall",
    "StateLog",
    "StateReason",
    "StrEnum",
    "Wait",
    "Waits",
    "broker_health",
    "joint_outage",
    "named",
    "newest",
]


# -- States


class StrEnum(str, enum.Enum):
    """A copy of `enum.StrEnum`, which Python 3.10 lacks: `str()` of a member is its value."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(str(self.value), spec)


class ConsumerState(StrEnum):
    """The states of a consumer. Members are equal to strings such as `"running"`."""

    NEW = "new"
    """`start` was not called."""

    STARTING = "starting"
    """`start` was called and has not returned."""

    UNSUBSCRIBED = "unsubscribed"
    """There is neither a subscription nor a manual assignment."""

    REBALANCING = "rebalancing"
    """The consumer joins or rejoins its group, or has got no response to a heartbeat for longer
    than the session timeout. With eager assignors it owns no partitions until the rebalance
    ends."""

    RUNNING = "running"
    """The consumer fetches. With a group, it is a member with an assignment."""

    POLL_OVERDUE = "poll_overdue"
    """The consumer left its group because the application requested no records for
    `max_poll_interval_ms`. It rejoins with the next call of `getone` or `getmany`."""

    UNREACHABLE = "unreachable"
    """The group's coordinator, or the brokers of all partitions that the consumer reads, do not
    respond, or have returned only errors for five seconds. The consumer keeps retrying."""

    FAILED = "failed"
    """The consumer failed, for example because another member took its `group_instance_id`. Every
    call raises the error."""

    CLOSED = "closed"
    """`stop` was called."""


class ProducerState(StrEnum):
    """The states of a producer. Members are equal to strings such as `"running"`."""

    NEW = "new"
    """`start` was not called, or has not returned yet."""

    RUNNING = "running"
    """The producer has started and can send."""

    UNREACHABLE = "unreachable"
    """No pending record can be delivered: the leaders do not respond, or for five seconds the
    partitions have had no leader or the leaders have accepted no batch. Without pending records: no
    broker responds. The producer keeps retrying."""

    FAILED = "failed"
    """The producer failed, for example because another producer took its `transactional_id`."""

    CLOSING = "closing"
    """`stop` was called and has not returned: the producer delivers the pending records."""

    CLOSED = "closed"
    """`stop` has returned, or `start` has failed."""


# -- Outages of brokers


Failure = tuple[float, BaseException | None]
"""The time of an error (loop time), and the error; None without an error."""

# Error responses that start or continue an outage: the broker responds, but it is not the
# coordinator, or cannot serve requests of the group yet, or got no response from another broker.
_OUTAGE_ERRORS = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)

# Errors that coordinator requests get while a new cluster creates its internal topics.
_SETTLING = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)
# Seconds for which `_SETTLING` errors start no outage, if no request has succeeded yet.
_SETTLED_AFTER = 5.0

# Number of earlier states that a StateLog keeps.
_REMEMBERED = 20

THROTTLES = "throttles this client, which has exceeded a quota, for another {:.1f} s"
"""The text after the name of a broker; its field is for the remaining time in seconds."""

# Seconds within which a healthy broker responds. A later response counts as missing, that is, as an
# outage; for a request that the broker may delay, such as Fetch, the permitted delay is added.
PROMPT = 1.0


class Due:
    """A request in flight whose response a NodeHealth awaits, or the oldest request in flight of a
    queue (see `NodeHealth.follow`).

    Args:
        asked_at: The send time (loop time); infinity while no request is in flight.
        request: The name of the request in messages.
        patience: Seconds for which the broker may delay the response.
    """

    def __init__(self, asked_at: float, request: str, patience: float) -> None:
        self.asked_at = asked_at
        self.request = request
        self.limit = patience + PROMPT

    def restart(self, asked_at: float) -> None:
        """Set the loop time from which the response is awaited; infinity if no request is in
        flight."""
        self.asked_at = asked_at


class NodeHealth:
    """Tracks the outages of one broker, or of the coordinator of one group.

    Senders report each request in flight with `asked` or `expect`, and its result with `succeed`,
    `fail` or `note`. An outage starts at the time when the missing response was due, and ends with
    the next response, or with `forget`. One line is logged when an outage starts, and one when a
    response ends it.
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
        """
        Args:
            address: Returns the current address of the broker or coordinator, "" if unknown.
            resumes_at: Returns the loop time until which the broker throttles this client.
        """
        self.name = name
        self._address = address
        self._resumes_at = resumes_at
        self._resumed_at = 0.0
        self.on_change = on_change
        """Called when an outage starts or ends."""
        self.answered_at: float | None = None
        self.failing_since: float | None = None
        self.error: KafkaError | None = None
        """The last error, kept after its outage has ended."""
        self.error_at = 0.0
        self._first_failed_at: float | None = None
        self._is_closed = False
        self._due: list[Due] = []
        self._log = log
        self._loop = asyncio.get_running_loop()

    def asked(self, request: str, patience: float = 0.0) -> _RequestInFlight:
        """Return a context manager for the time in which a request is in flight. The arguments are
        those of `expect`."""
        return _RequestInFlight(self, request, patience)

    def expect(self, request: str, patience: float = 0.0) -> Due:
        """Register a request in flight; return the argument for `forgive`, which removes the
        request.

        Args:
            request: The name of the request in messages, such as "Fetch".
            patience: Seconds for which the broker may delay the response, as for a Fetch.
        """
        due = Due(self._loop.time(), request, patience)
        self._due.append(due)
        return due

    def follow(self, due: Due) -> None:
        """Register a queue of requests. The queue calls `due.restart` with the time from which the
        response to its oldest request is awaited. For a sender of many requests this costs less
        than calls of `expect` and `forgive`."""
        self._due.append(due)

    def forgive(self, due: Due) -> None:
        """Remove `due`, the result of `expect`, because its request is not in flight any more. Do
        nothing if `succeed` has removed it."""
        if due in self._due:
            self._due.remove(due)

    @property
    def is_asked(self) -> bool:
        """Whether a request is in flight."""
        # NodeFetcher reads this before each fetch: a loop costs less than `any` with a generator.
        for due in self._due:  # noqa: SIM110
            if due.asked_at < math.inf:
                return True
        return False

    def succeed(self, now: float | None = None, due: Due | None = None) -> None:
        """Record a response of the broker or coordinator, read at `now` (loop time, by default the
        present time); it ends an outage. `due`: the request, if `expect` has registered it."""
        if due is not None:
            self._due.remove(due)
        if now is None:
            now = self._loop.time()
        self.answered_at = now
        if self.failing_since is not None:
            self._log.info("%s answers again after %.1f s", self.name, now - self.failing_since)
            self.failing_since = None
            self._changed()

    def fail(self, error: KafkaError) -> None:
        """Record a failed request, which starts or continues an outage: there was no response, or
        the response says that the broker or coordinator cannot serve requests. Start no outage
        while a new cluster creates its internal topics (`_is_settling`). After `close()` do
        nothing."""
        if self._is_closed:
            return
        now = self._loop.time()
        # Store a copy without the traceback, which would keep the failed call's frames in memory.
        self.error = renewed(error)
        self.error_at = now
        if self._is_settling(now, error):
            return
        if self.failing_since is None:
            self._log.warning("%s does not answer: %s", self.place, error)
            # The outage began when the response was due, long before the request failed.
            self.failing_since = min([now, *(due for due, _ in self._dues())])
            self._changed()
        else:
            self._log.debug("%s does not answer: %s", self.place, error)

    def _is_settling(self, now: float, error: KafkaError) -> bool:
        """Return whether `error` is normal, because a new cluster creates its internal topics: the
        error is in `_SETTLING`, no request has succeeded yet, and the first failure was less than
        `_SETTLED_AFTER` seconds ago."""
        if self.answered_at is not None or self.failing_since is not None:
            return False
        if self._first_failed_at is None:
            self._first_failed_at = now
        is_settling = isinstance(error, _SETTLING) and now < self._first_failed_at + _SETTLED_AFTER
        if is_settling:
            self._log.debug("%s is not ready yet: %s", self.place, error)
        return is_settling

    def note(self, error: KafkaError) -> None:
        """Record an error of a request: as a response (`succeed`) if it is an error code that is
        not in `_OUTAGE_ERRORS`, else as a failure (`fail`)."""
        is_answer = isinstance(error, (BrokerResponseError, CommitFailedError))
        if is_answer and not isinstance(error, _OUTAGE_ERRORS):
            self.succeed()
        else:
            self.fail(error)

    def close(self) -> None:
        """Ignore all later failures: this client closes its connections, which fails requests."""
        self._is_closed = True

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def forget(self) -> None:
        """End the outage without a response, because no request is in flight or needed: it is
        unknown whether the broker or coordinator responds again."""
        self.failing_since = None

    def silent_since(self, now: float) -> float | None:
        """Return the start of the outage (loop time), or without an outage the time when the oldest
        overdue response was due; None if no response is overdue."""
        if self.failing_since is not None:
            return self.failing_since
        return min((due for due, _ in self._overdue(now)), default=None)

    def _overdue(self, now: float) -> list[tuple[float, str]]:
        heard = -1.0 if self.answered_at is None else self.answered_at
        return [(due, request) for due, request in self._dues() if heard < due < now]

    def _dues(self) -> list[tuple[float, str]]:
        """Return (due time of the response as loop time, name) of each request in flight."""
        # A broker that throttles this client reads no requests: count the time from the end of the
        # throttling.
        if self._due and self._resumes_at is not None:
            self._resumed_at = max(self._resumed_at, self._resumes_at())
        since = self._resumed_at
        return [
            (max(due.asked_at, since) + due.limit, due.request)
            for due in self._due
            if due.asked_at < math.inf
        ]

    @property
    def place(self) -> str:
        """The name of the broker or coordinator with its address, if known, for logs and errors."""
        address = self._address() if self._address is not None else ""
        text = f"{self.name} at {address}" if address else self.name
        return Subject(text, **about(self.name))

    def outage(self, now: float) -> Outage | None:
        """Return the outage at the loop time `now`; None if there is no outage.

        `Outage.error` is an error of this outage, not of an earlier outage.
        """
        since = self.silent_since(now)
        if since is None:
            return None
        if self.failing_since is not None and self.error is not None:
            text = f"{self.place} does not answer: {self.error}"
            return Outage(since, (self.name,), self.error, text)
        _, request = min(self._overdue(now))
        text = f"{self.place} has not answered {request} for {now - since + PROMPT:.1f} s"
        return Outage(since, (self.name,), None, text)

    def throttle(self, now: float) -> Outage | None:
        """Return, as an Outage, the wait until the broker stops throttling this client; None if the
        broker does not throttle the client, or no request is in flight. This wait does not change
        the state of the client: a broker that throttles the client is reachable."""
        until = 0.0 if self._resumes_at is None else self._resumes_at()
        if until <= now or not self.is_asked:
            return None
        text = f"{self.place} {THROTTLES.format(until - now)}"
        return Outage(min(due.asked_at for due in self._due), (self.name,), None, text)


def broker_health(
    client: AIOKafkaClient,
    node_id: int,
    log: logging.Logger | SubjectLog,
    on_change: Callable[[], None] | None,
) -> NodeHealth:
    """Return a new NodeHealth for the broker `node_id` of `client`."""
    return NodeHealth(
        Subject(f"Broker {node_id}", node_id=node_id),
        log,
        on_change,
        partial(client.address_of_node, node_id),
        partial(client.throttled_until, node_id),
    )


class _RequestInFlight:
    """The context manager of `NodeHealth.asked`. A class, because one is created for each request,
    and `contextlib.contextmanager` would take several times as long."""

    __slots__ = ("_due", "_health", "_patience", "_request")

    def __init__(self, health: NodeHealth, request: str, patience: float) -> None:
        self._health = health
        self._request = request
        self._patience = patience

    def __enter__(self) -> None:
        self._due = self._health.expect(self._request, self._patience)

    def __exit__(self, *_: object) -> None:
        self._health.forgive(self._due)


class Outage:
    """An outage of one broker or coordinator; or a joint outage: several outages that together
    block a client completely.

    Args:
        since: The start of the outage (loop time).
        parties: The names of the brokers and coordinators that do not respond, and of partitions
            that cannot be fetched: "Broker 1", "The coordinator of group g", "Every broker",
            "Partitions orders-0".
        error: The last error of this outage; None while requests are overdue but none has failed.
        text: The names, with addresses if known, and the error or the overdue request.
    """

    __slots__ = ("error", "parties", "since", "text")

    def __init__(
        self, since: float, parties: tuple[str, ...], error: BaseException | None, text: str
    ) -> None:
        self.since = since
        self.parties = parties
        self.error = error
        self.text = text

    def __str__(self) -> str:
        return self.text


def joint_outage(outages: Collection[Outage], since: float | None = None) -> Outage:
    """Return one outage for a client that is blocked completely, because each of `outages` blocks
    some of its brokers or partitions.

    The joint outage begins at `since` (loop time), by default when the last of `outages` began. Its
    `text` joins the texts of `outages`, and its `error` is that of the newest outage with an error.
    """
    if len(outages) == 1 and since is None:
        return next(iter(outages))
    if since is None:
        since = max(outage.since for outage in outages)
    parties = tuple(name for outage in outages for name in outage.parties)
    failed = [outage for outage in outages if outage.error is not None]
    error = max(failed, key=lambda outage: outage.since).error if failed else None
    return Outage(since, parties, error, "; ".join(outage.text for outage in outages))


class StateReason:
    """A state of a client, with its reason ("" without one) and its start (loop time; None if
    unknown)."""

    __slots__ = ("reason", "since", "state")

    def __init__(self, state: str, reason: str = "", since: float | None = None) -> None:
        self.state = state
        self.reason = reason
        self.since = since


class StateLog:
    """Keeps the current state of a client and the 20 states before; logs each change of the state.

    Args:
        subject: The name of the client in log lines.
        first: The initial state.
        alarming: The states whose start and end are logged at WARNING, not at INFO.
    """

    def __init__(self, subject: str, first: str, alarming: Collection[str]) -> None:
        self.current = StateReason(first)
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self._subject = subject
        self._alarming = alarming
        self.before: deque[tuple[float, StateReason]] = deque(maxlen=_REMEMBERED)
        """(start as loop time, StateReason) of the earlier states, the oldest first."""

    def note(self, state: StateReason, log: logging.Logger, *, is_last: bool = False) -> bool:
        """Set the current state. If it differs from the previous state, log the change and return
        True; else return False.

        `is_last`: whether the client stops, so that the end of an alarming state is logged at INFO.
        """
        before, self.current = self.current, state
        if state.state == before.state:
            return False
        self.before.append((self.since, before))
        self.since = self._loop.time() if state.since is None else state.since
        is_over = before.state in self._alarming and not is_last
        log.log(
            logging.WARNING if is_over or state.state in self._alarming else logging.INFO,
            "%s: %s -> %s%s",
            self._subject,
            before.state,
            state.state,
            f": {state.reason}" if state.reason else "",
            extra=about(self._subject),
        )
        return True


def newest(failures: Iterable[Failure], parties: Iterable[NodeHealth]) -> Failure:
    """Return the latest of `failures` and of the last errors of `parties` (brokers, coordinator),
    with its time; (0.0, None) if there is no error."""
    known = [*failures, *((party.error_at, party.error) for party in parties)]
    return max((one for one in known if one[1] is not None), key=_when, default=(0.0, None))


def _when(failure: Failure) -> float:
    return failure[0]


# -- Calls that wait


LASTING = 5.0
"""Seconds after which a wait is logged and listed by `health()`."""

# Seconds between two checks for waits longer than `LASTING`.
_INTERVAL = 1.0
# An application often repeats a call that timed out. Both calls count as one wait if the second
# begins soon after the timeout: within `_GAP` seconds if the wait has lasted `LASTING` seconds,
# else within `LASTING` seconds.
_GAP = 30.0
# Maximum number of timed-out calls that are remembered, because the application may repeat them.
_MOST_LATE = 100
# Limit of names in one log line.
_MOST_NAMES = 5

_LATE = (KafkaTimeoutError, OutOfTimeError, asyncio.TimeoutError, asyncio.CancelledError)

Source = Callable[[float], Iterable["Stall"]]
"""Returns the partitions and requests that make no progress; the argument is the loop time."""


class Stall:
    """A wait of a client, as seen by one check.

    Args:
        kind: What the client waits for, such as "heartbeats of the group". With a `partition`, the
            text before the name of the partition, such as "records of".
        since: The start of the wait (loop time).
        error: The last error of the wait; None if there was no error.
        error_at: The time of `error` (loop time).
        reason: The reason of the wait in words; "" if unknown.
        is_logged: Whether other code has logged the cause, so that the wait need not be logged.
    """

    __slots__ = ("error", "error_at", "is_logged", "kind", "partition", "reason", "since")

    def __init__(
        self,
        kind: str,
        since: float,
        error: BaseException | None = None,
        error_at: float = 0.0,
        reason: str = "",
        partition: TopicPartition | None = None,
        is_logged: bool = False,
    ) -> None:
        self.kind = kind
        self.since = since
        self.error = error
        self.error_at = error_at
        self.reason = reason
        self.partition = partition
        self.is_logged = is_logged

    @property
    def key(self) -> object:
        """The identity of the wait. It stays the same if the part of `kind` in parentheses changes
        between checks."""
        return self.partition or self.kind.partition(" (")[0]

    @property
    def what(self) -> str:
        """The text for logs and `health()`."""
        return self.kind if self.partition is None else f"{self.kind} {named([self.partition])}"


class Wait:
    """A call that waits: a context manager that registers the call in `Waits` until its exit."""

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
        """Set the error of the last attempt, which explains the wait."""
        # Store a copy without the traceback, which would keep the failed call's frames in memory.
        self.error = renewed(error)
        self.error_at = self._waits.time()

    def stall(self) -> Stall:
        """Return this wait as a Stall."""
        if self._why is not None and (error := self._why()) is not None:
            self.note(error)
        about = f" ({named(self._partitions)})" if self._partitions else ""
        reason = self._reason if self.error is None else str(self.error) or repr(self.error)
        is_logged = self._is_logged is not None and self._is_logged()
        kind = f"{self.key}{about}"
        return Stall(kind, self.since, self.error, self.error_at, reason, None, is_logged)


class Waits:
    """The waits of a client: calls, registered with `on`, and partitions without progress, which
    the function `source` returns (`follow`).

    A wait longer than `LASTING` is logged at WARNING one time, and at INFO when it ends. No code
    here runs for each record or request.

    Owns: the waiting calls; the calls that timed out recently, because a call that the application
    repeats in a loop is one wait and logs one WARNING; and the logged waits.
    """

    def __init__(self, log: logging.Logger, subject: str) -> None:
        self._log = SubjectLog(log, subject)
        self._loop = asyncio.get_running_loop()
        self._calls: dict[Wait, None] = {}
        self._late: dict[str, tuple[float, float]] = {}
        self._logged: dict[object, Stall] = {}
        self.is_followed = False
        """Whether a producer or consumer has called `follow`. The calls of other clients all have
        deadlines, so their waits need no checks."""
        self._checked_at = self._loop.time()
        self._source: Source = lambda _: ()
        self._judge: Callable[[], bool] = lambda: False

    def follow(self, log: logging.Logger, source: Source, judge: Callable[[], bool]) -> None:
        """Check the waits of a producer or consumer, too, and log to its logger.

        Args:
            log: The logger of the producer or consumer.
            source: Returns the partitions and requests without progress.
            judge: Called by each check. Returns whether a logged state of the client, such as
                UNREACHABLE, explains all waits, so that they need not be logged.
        """
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
        """Return a context manager for the time in which a call waits.

        Args:
            key: What the call waits for, such as "OffsetCommit of group 'g'".
            partitions: The partitions of the call.
            reason: The reason of the wait before the first error.
            why: Returns the present error, for callers that do not call `Wait.note`.
            is_logged: Returns whether other code has logged the cause.
        """
        return Wait(self, key, partitions, reason, why, is_logged)

    def time(self) -> float:
        """Return the loop time of the client's loop; may be called in any thread."""
        return self._loop.time()

    def begin(self, wait: Wait) -> None:
        """Register a call. If a call with the same key recently timed out, was cancelled, or failed
        after a long wait, continue the wait of that call."""
        wait.since = now = self._loop.time()
        if self._late:
            since, ended_at = self._late.get(wait.key, (now, now))
            gap = _GAP if ended_at - since >= LASTING else LASTING
            wait.since = since if now - ended_at <= gap else now
        self._calls[wait] = None

    def end(self, wait: Wait, error: BaseException | None) -> None:
        """Remove a call. If it timed out, was cancelled, or failed after `LASTING` seconds, store
        its key, because the application may repeat such a call; else forget the key."""
        del self._calls[wait]
        if self._late:
            self._late.pop(wait.key, None)
        if error is None:
            return
        now = self._loop.time()
        if isinstance(error, _LATE) or now - wait.since >= LASTING:
            self._late[wait.key] = (wait.since, now)
            if len(self._late) > _MOST_LATE:
                del self._late[next(iter(self._late))]

    def lasting(self) -> list[Stall]:
        """Return the waits longer than `LASTING`, the oldest first."""
        now = self._loop.time()
        found: dict[str, Stall] = {}
        for wait in list(self._calls):
            if now - wait.since >= LASTING:
                stall = wait.stall()
                # Join calls with the same key: take the earliest start and the last error.
                other = found.get(wait.key, stall)
                last = max(stall, other, key=lambda one: one.error_at)
                last.since = min(stall.since, other.since)
                found[wait.key] = last
        stalls = [*found.values(), *self._source(now)]
        lasting = [stall for stall in stalls if now - stall.since >= LASTING]
        return sorted(lasting, key=lambda stall: stall.since)

    def gauges(self) -> dict[str, float]:
        """Return the gauges `stalled_count` and `stalled_age`: the number of waits longer than
        `LASTING`, and the age of the oldest of these waits in seconds."""
        lasting = self.lasting()
        age = self._loop.time() - lasting[0].since if lasting else 0.0
        return {"stalled_count": len(lasting), "stalled_age": age}

    async def run(self) -> None:
        """Write to the log, periodically and until cancelled, what the calls of the application are
        waiting for. This is the body of a background task."""
        self._checked_at = self._loop.time()
        while True:
            await asyncio.sleep(_INTERVAL)
            if not self.loop_was_blocked:
                self.log_waits()
            self._checked_at = self._loop.time()

    @property
    def loop_was_blocked(self) -> bool:
        """Whether the event loop was blocked since the last check. If so, responses may have
        arrived and not have been read yet, so an overdue response proves no outage."""
        return self._loop.time() - self._checked_at > 2 * _INTERVAL

    def log_waits(self) -> None:
        """Log the waits that have exceeded `LASTING` since the last call, unless a logged state of
        the client (`judge`) or other code explains them. Also log the end of logged waits."""
        is_explained = self._judge()
        if is_explained and not self._logged:
            return  # during an outage, do not collect the waits of all partitions in vain
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
        over = [
            key for key in self._logged if key not in lasting and not self._may_be_repeated(key)
        ]
        if over:
            ended = [self._logged.pop(key) for key in over]
            for stall in ended:
                stall.reason = ""
            self._log.info("Not waiting any more: %s", _described(ended))

    def _may_be_repeated(self, key: object) -> bool:
        """Return whether a call with this key timed out so recently that a repeated call would
        continue the wait."""
        late = self._late.get(key) if isinstance(key, str) else None
        return late is not None and self._loop.time() - late[1] <= _GAP


def named(partitions: Collection[TopicPartition]) -> str:
    """Return a text with the names of the first `_MOST_NAMES` partitions and the number of the
    others."""
    first = ", ".join(f"{tp[0]}-{tp[1]}" for tp in sorted(partitions)[:_MOST_NAMES])
    more = len(partitions) - _MOST_NAMES
    return f"{first} and {more} more" if more > 0 else first


def _described(stalls: Iterable[Stall]) -> str:
    """Return one text for all waits, with their reasons. Partitions with the same kind of wait and
    the same type of error share one phrase."""
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
