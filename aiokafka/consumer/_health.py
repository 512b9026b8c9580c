"""The health of a consumer: its state, outages, and partitions that make no progress."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokafka._health import (
    LASTING,
    ConsumerState,
    Outage,
    Stall,
    StateLog,
    StateReason,
    joint_outage,
    named,
    newest,
)
from aiokafka.consumer.group.no_group import GroupPhase
from aiokafka.errors import KafkaUnreachableError, LeaderNotAvailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._health import NodeHealth
    from aiokafka._tasks import TaskOwner
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer._context import ConsumerMeter
    from aiokafka.consumer._partition_state import PartitionState
    from aiokafka.consumer.fetch.fetcher import FetchTargets
    from aiokafka.consumer.fetch.record_queue import RecordQueue
    from aiokafka.consumer.group.group import GroupMembership
    from aiokafka.consumer.group.no_group import NoGroup
    from aiokafka.consumer.subscription_state import SubscriptionState
    from aiokafka.health import ConsumerHealth

__all__ = ["ConsumerHealthMonitor"]

log = logging.getLogger("aiokafka.consumer.consumer")

# Seconds that a rebalance without an error may take before it counts as a stall.
_LONG_REBALANCE = 30.0

# Seconds in which the event loop reads the data that arrived while the program blocked the loop.
_MOMENT = 0.1

_ALARMING = (ConsumerState.UNREACHABLE, ConsumerState.POLL_OVERDUE, ConsumerState.FAILED)


class ConsumerHealthMonitor:
    """Derives the state of the consumer from its parts, and logs changes of the state.

    Owns: the failure that ended the consumer, and when KafkaUnreachableError was last raised. The
    parts call `look` after a change, so that the new state is logged once and its time is known.
    `health()` calls `look`, too, for changes caused by time alone. The constructors of the parts
    need the monitor, so the monitor gets the parts later, in `begin()`.
    """

    _queue: RecordQueue
    _tasks: TaskOwner
    _targets: FetchTargets
    _coordination: GroupMembership | NoGroup
    _meter: ConsumerMeter

    def __init__(
        self, client: AIOKafkaClient, config: ConsumerConfig, subscriptions: SubscriptionState
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._loop = asyncio.get_running_loop()
        self._life: ConsumerState | None = ConsumerState.NEW
        self._states = StateLog(config.subject, ConsumerState.NEW, _ALARMING)
        self._failure: tuple[float, BaseException | None] = (0.0, None)
        self.told_at = 0.0
        """Loop time at which `check` last raised KafkaUnreachableError; 0 if never."""

    def begin(
        self,
        queue: RecordQueue,
        tasks: TaskOwner,
        targets: FetchTargets,
        coordination: GroupMembership | NoGroup,
        meter: ConsumerMeter,
    ) -> None:
        """Set the parts of the consumer; `look` must not be called before."""
        self._queue = queue
        self._tasks = tasks
        self._targets = targets
        self._coordination = coordination
        self._meter = meter
        self._client.waits.follow(log, self._waits, self._look_later)

    def live(self, life: ConsumerState | None) -> None:
        """Set the state to STARTING or CLOSED; with None, derive the state from the parts."""
        self._life = life
        self.look()

    def look(self) -> None:
        """Determine the state again, because a part has changed; log a new state."""
        if self._life is not None and self._life == self._states.current.state:
            return  # STARTING or CLOSED: the parts do not matter
        verdict = self._judge(self._loop.time())
        is_new = self._states.note(verdict, log, is_last=self._life is not None)
        if is_new and verdict.state == ConsumerState.FAILED:
            failure = self._tasks.failure or self._coordination.failure
            self._failure = (self._states.since, failure)

    def _look_later(self) -> bool:
        """Determine the state, but ignore a recent outage: the broker may only be slow. Return
        whether the state is in `_ALARMING`: then its log line explains the stalls."""
        now = self._loop.time()
        trouble = self._trouble(now) if self._life is None else None
        if trouble is None or now - trouble.since >= LASTING:
            self.look()
        return self._life is None and self._states.current.state in _ALARMING

    def health(self) -> ConsumerHealth:
        """Return the result of `AIOKafkaConsumer.health()`."""
        # Imported here, because dataclasses are slow to import.
        from aiokafka.health import ConsumerHealth, stalled_waits, state_changes

        self.look()
        now = self._loop.time()
        stalls = self._client.waits.lasting()
        error_at, error = self._last_error(stalls)
        beat_at, fetched_at = self._coordination.beat_at, self._meter.fetched_at
        return ConsumerHealth(
            state=ConsumerState(self._states.current.state),
            state_age_ms=(now - self._states.since) * 1000,
            reason=self._states.current.reason,
            joined=self._life is None and self._is_joined(now),
            heartbeat_age_ms=None if beat_at is None else (now - beat_at) * 1000,
            fetch_age_ms=None if fetched_at is None else (now - fetched_at) * 1000,
            lag=self.lag(),
            last_error=None if error is None else str(error) or repr(error),
            last_exception=error,
            error_age_ms=None if error is None else (now - error_at) * 1000,
            unreachable=tuple(self._silent(now)),
            changes=state_changes(self._states, now),
            stalled=stalled_waits(stalls, now),
            skipped=self._meter.all.skipped,
        )

    def check(self, told_at: float) -> float:
        """Return when to check again (loop time). Raises KafkaUnreachableError if for
        `unreachable_timeout` the consumer has had an outage, and the error was not raised. It was
        last raised at `told_at`."""
        limit = self._config.unreachable_timeout
        assert limit is not None
        now = self._loop.time()
        trouble = self._trouble(now)
        if trouble is None:
            return now + limit
        due = max(trouble.since, told_at) + limit
        if now < due:
            return due
        if self._client.waits.loop_was_blocked:
            return now + _MOMENT
        self.told_at = now
        raise KafkaUnreachableError(
            trouble.parties, (now - trouble.since) * 1000, trouble.error
        ) from trouble.error

    def lag(self) -> int | None:
        """Return the total lag of all assigned partitions; None if the lag of one is unknown."""
        states = self._subscriptions.assignment.states()
        lags = [state.lag(self._config.read_committed) for state in states]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known and len(known) == len(lags) else None

    # -- the state ---------------------------------------------------------------------------------

    def _judge(self, now: float) -> StateReason:
        if self._life is not None:
            return StateReason(self._life)
        failure = self._tasks.failure or self._coordination.failure
        if failure is not None:
            return StateReason(ConsumerState.FAILED, str(failure) or repr(failure))
        if self._subscriptions.subscription is None:
            return StateReason(ConsumerState.UNSUBSCRIBED)
        trouble = self._trouble(now)
        if trouble is not None:
            return StateReason(ConsumerState.UNREACHABLE, str(trouble), trouble.since)
        phase = self._coordination.phase
        if phase is GroupPhase.IDLE:
            reason = "the application asked for no records for max_poll_interval_ms"
            return StateReason(ConsumerState.POLL_OVERDUE, reason)
        if phase is GroupPhase.JOINING:
            return StateReason(ConsumerState.REBALANCING, self._coordination.reason)
        if phase is GroupPhase.JOINED and not self._is_joined(now):
            return StateReason(
                ConsumerState.REBALANCING, "no heartbeat for longer than the session"
            )
        return StateReason(ConsumerState.RUNNING)

    def _is_joined(self, now: float) -> bool:
        coordination = self._coordination
        beat_at = coordination.beat_at
        return (
            coordination.generation >= 0
            and beat_at is not None
            and now - beat_at <= coordination.session_timeout
        )

    def close(self) -> None:
        """Ignore failures of brokers and of the coordinator from now on: the consumer closes its
        connections."""
        for contact in self._contacts():
            contact.close()

    # -- outages and stalls ------------------------------------------------------------------------

    def _trouble(self, now: float) -> Outage | None:
        """Return the oldest outage that keeps the consumer from working; None without an outage."""
        troubles = [self._group_trouble(now), self._fetch_trouble(now)]
        return min((one for one in troubles if one is not None), default=None, key=_since)

    def _group_trouble(self, now: float) -> Outage | None:
        contact = self._coordination.contact
        if contact is None or not self._needs_coordinator():
            return None
        return contact.outage(now)

    def _needs_coordinator(self) -> bool:
        subscriptions = self._subscriptions
        if subscriptions.subscription is None:
            return False
        # The coordinator also has the committed offsets of manually assigned partitions.
        return not subscriptions.is_manual or any(
            state.is_unset for state in subscriptions.assignment.states()
        )

    def _fetch_trouble(self, now: float) -> Outage | None:
        """Return the outage that makes all partitions unreadable; None if a partition can be read,
        or its broker only fails for a moment."""
        states = [s for s in self._subscriptions.assignment.states() if not s.is_withheld]
        if not states:
            return self._cluster_trouble()
        known: list[float] = []
        away = self._targets.outages(now)
        for state in states:
            since = self._targets.silent_since(state, away)
            if since is None:
                since = _refused_since(state, now)
            # With one readable partition the consumer works; the NodeHealth logs other outages.
            if since is None:
                return None
            known.append(since)
        troubles = list(away.values())
        if self._targets.leaderless:
            troubles.append(self._leaderless(max(known)))
        troubles += self._refusals(states, now)
        return joint_outage(troubles, max(known)) if troubles else None

    def _refusals(self, states: Iterable[PartitionState], now: float) -> Iterator[Outage]:
        """Yield the errors of partitions whose brokers respond, grouped by reason."""
        groups: dict[tuple[str, str], list[Stall]] = {}
        for state in states:
            if _refused_since(state, now) is not None:
                stall = _refusal(state, now)
                groups.setdefault((stall.kind, stall.reason), []).append(stall)
        for (kind, reason), stalls in groups.items():
            names = named([stall.partition for stall in stalls if stall.partition is not None])
            since, error = max(stall.since for stall in stalls), stalls[0].error
            text = f"No {kind} {names}: {reason}"
            yield Outage(since, (f"Partitions {names}",), error, text)

    def _waits(self, now: float) -> Iterator[Stall]:
        """Yield the stalls of background work: partitions that cannot be read, and the group."""
        if self._life in (ConsumerState.NEW, ConsumerState.CLOSED):
            return
        targets = self._targets
        outages = targets.outages(now)
        coordinator = self._group_trouble(now)
        absent = set(targets.leaderless)
        is_any_away = bool(outages or absent)
        for state in self._subscriptions.assignment.states():
            if state.is_withheld:
                continue
            since = targets.silent_since(state, outages) if is_any_away else None
            node_id = state.target.node_id
            if since is not None and state.tp in absent:
                yield self._absence(state, since)
            elif since is not None and node_id is not None:
                outage = outages[node_id]
                # An outage with an error is logged by the NodeHealth.
                is_logged = outage.error is not None
                yield Stall(_kind(state), since, None, 0.0, outage.text, state.tp, is_logged)
            elif state.is_unset and coordinator is not None:
                is_logged = coordinator.error is not None
                kind, since, text = _kind(state), coordinator.since, coordinator.text
                yield Stall(kind, since, None, 0.0, text, state.tp, is_logged)
            elif state.retry.failing_since(now) is not None:
                yield _refusal(state, now)
        yield from self._waits_for_group(now)

    def _waits_for_group(self, now: float) -> Iterator[Stall]:
        coordination = self._coordination
        error = coordination.last_error
        if coordination.phase is GroupPhase.JOINING:
            since, outage = self._states.since, self._group_trouble(now)
            reason = str(error or coordination.reason or "not all members have joined")
            if outage is not None:
                reason = str(outage)
            # Do not log a rebalance that takes less than `_LONG_REBALANCE`.
            is_normal = error is None and outage is None and now - since < _LONG_REBALANCE
            is_logged = is_normal or (outage is not None and outage.error is not None)
            kind = "an assignment by the group"
            yield Stall(kind, since, error, since, reason, None, is_logged)
        elif coordination.phase is GroupPhase.JOINED and error is not None:
            beat_at = coordination.beat_at
            if beat_at is not None:
                yield Stall("heartbeats of the group", beat_at, error, beat_at, str(error))

    def _absence(self, state: PartitionState, since: float) -> Stall:
        reason = "it has no leader, or does not exist"
        error = LeaderNotAvailableError(f"{named([state.tp])}: {reason}")
        is_logged = True  # by FetchTargets
        return Stall(_kind(state), since, error, since, reason, state.tp, is_logged)

    def _leaderless(self, since: float) -> Outage:
        name = f"The leader of {self._targets.names(self._targets.leaderless)}"
        failure = self._client.metadata_failure
        if failure is not None and failure[0] >= since:
            return Outage(since, (name,), failure[1], f"{name} is not known: {failure[1]}")
        return Outage(since, (name,), None, f"{name} is not known")

    def _cluster_trouble(self) -> Outage | None:
        """Return the outage of all brokers for a consumer without partitions, if the last metadata
        request failed and the coordinator has not responded since; else None."""
        failure = self._client.metadata_failure
        contact = self._coordination.contact
        heard = 0.0 if contact is None or contact.answered_at is None else contact.answered_at
        if failure is None or heard > failure[0] or self._subscriptions.assignment.tps:
            return None
        text = f"No broker answers: {failure[1]}"
        return Outage(failure[0], ("Every broker",), failure[1], text)

    def _silent(self, now: float) -> Iterator[str]:
        contacts = self._targets.contacts()
        if self._coordination.contact is not None and self._needs_coordinator():
            contacts.append(self._coordination.contact)
        for contact in contacts:
            if contact.silent_since(now) is not None:
                yield contact.name
        if self._targets.leaderless:
            yield f"The leader of {self._targets.names(self._targets.leaderless)}"

    def _contacts(self) -> list[NodeHealth]:
        contacts = self._targets.contacts()
        if self._coordination.contact is not None:
            contacts.append(self._coordination.contact)
        return contacts

    def _last_error(self, stalls: Iterable[Stall]) -> tuple[float, BaseException | None]:
        """Return the time (loop time) and the exception of the last error."""
        contacts = self._contacts()
        failures = [self._failure, self._queue.last_error]
        failures += [(stall.error_at, stall.error) for stall in stalls]
        if self._client.metadata_failure is not None:
            failures.append(self._client.metadata_failure)
        return newest(failures, contacts)


def _kind(state: PartitionState) -> str:
    return "position of" if state.needs_offset else "records of"


def _refused_since(state: PartitionState, now: float) -> float | None:
    """Return the loop time since which all requests for a partition fail with an error; None
    without failures, or if the first failure is recent."""
    since: float | None = state.retry.failing_since(now)
    is_lasting = since is not None and now - since >= LASTING
    return since if is_lasting and state.retry.error is not None else None


def _refusal(state: PartitionState, now: float) -> Stall:
    """Return the stall of a partition whose requests fail, or have no response yet."""
    retry, tp = state.retry, state.tp
    error, since = retry.error, retry.since or now
    if error is None:
        return Stall(_kind(state), since, None, 0.0, "no response", tp)
    if isinstance(error, type):
        reason = str(error())
        error = error(f"{named([tp])}: no {_kind(state).split()[0]} for {now - since:.1f} s")
    else:
        reason = str(error)
    return Stall(_kind(state), since, error, retry.error_at, reason, tp)


def _since(trouble: Outage) -> float:
    return trouble.since
