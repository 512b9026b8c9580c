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

# Seconds that a rebalance without an error may take before the log reports it.
_LONG_REBALANCE = 30.0

# If the program has blocked the event loop, received responses may not be processed yet. Wait this
# many seconds for them before an outage is raised.
_MOMENT = 0.1

_ALARMING = (ConsumerState.UNREACHABLE, ConsumerState.POLL_OVERDUE, ConsumerState.FAILED)


class ConsumerHealthMonitor:
    """Derives the state of the consumer from its parts, and logs changes of the state.

    Owns: the failure that ended the consumer; the state that replaces the derived state before
    `start()`, during `start()` and after `stop()`; the time at which KafkaUnreachableError was last
    raised.

    The parts call `look()` after a change: a new state is logged, and the time of the change is
    stored. `health()` calls `look()`, too, for changes caused by time alone. The constructors of
    the parts need the monitor, so the monitor gets the parts later, in `begin()`.
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
        self._state_override: ConsumerState | None = ConsumerState.NEW
        self._states = StateLog(config.subject, ConsumerState.NEW, _ALARMING)
        self._failure: tuple[float, BaseException | None] = (0.0, None)
        self.raised_at = 0.0
        """Loop time at which `check` last raised KafkaUnreachableError; 0 if never."""

    def begin(
        self,
        queue: RecordQueue,
        tasks: TaskOwner,
        targets: FetchTargets,
        coordination: GroupMembership | NoGroup,
        meter: ConsumerMeter,
    ) -> None:
        """Set the parts of the consumer. Must be called before `look()`."""
        self._queue = queue
        self._tasks = tasks
        self._targets = targets
        self._coordination = coordination
        self._meter = meter
        self._client.waits.follow(log, self._stalls, self._look_later)

    def override_state(self, state: ConsumerState | None) -> None:
        """Set the state to STARTING or CLOSED. With None, derive the state from the parts of the
        consumer from now on."""
        self._state_override = state
        self.look()

    def look(self) -> None:
        """Derive the state again, because a part of the consumer has changed. Log the state if it
        is new. Do nothing while the state is NEW, STARTING or CLOSED."""
        if self._state_override is not None and self._state_override == self._states.current.state:
            return
        derived = self._derive_state(self._loop.time())
        is_new = self._states.note(derived, log, is_last=self._state_override is not None)
        if is_new and derived.state == ConsumerState.FAILED:
            failure = self._tasks.failure or self._coordination.failure
            self._failure = (self._states.since, failure)

    def _look_later(self) -> bool:
        """Derive the state again, unless there is an outage shorter than `LASTING` seconds: the
        broker may only be slow. Return whether the state is in `_ALARMING`: then its log message
        explains the stalls, so `Waits` logs no messages about them."""
        now = self._loop.time()
        outage = self._outage(now) if self._state_override is None else None
        if outage is None or now - outage.since >= LASTING:
            self.look()
        return self._state_override is None and self._states.current.state in _ALARMING

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
            joined=self._state_override is None and self._is_joined(now),
            heartbeat_age_ms=None if beat_at is None else (now - beat_at) * 1000,
            fetch_age_ms=None if fetched_at is None else (now - fetched_at) * 1000,
            lag=self.lag(),
            last_error=None if error is None else str(error) or repr(error),
            last_exception=error,
            error_age_ms=None if error is None else (now - error_at) * 1000,
            unreachable=tuple(self._unreachable_parties(now)),
            changes=state_changes(self._states, now),
            stalled=stalled_waits(stalls, now),
            skipped=self._meter.all.skipped,
            unreadable=self._meter.all.unreadable,
            defaults=self._client.config.applied_defaults,
        )

    def check(self, raised_at: float) -> float:
        """Raise KafkaUnreachableError if both an outage has lasted for `unreachable_timeout`, and
        the same time has passed since `raised_at`. Otherwise return the loop time of the next
        check. `raised_at`: loop time at which the error was last raised."""
        limit = self._config.unreachable_timeout
        assert limit is not None
        now = self._loop.time()
        outage = self._outage(now)
        if outage is None:
            return now + limit
        due = max(outage.since, raised_at) + limit
        if now < due:
            return due
        if self._client.waits.loop_was_blocked:
            return now + _MOMENT
        self.raised_at = now
        raise KafkaUnreachableError(
            outage.parties, (now - outage.since) * 1000, outage.error
        ) from outage.error

    def lag(self) -> int | None:
        """Return the total lag of the assigned partitions; None if there are no partitions, or the
        lag of at least one is unknown."""
        states = self._subscriptions.assignment.states()
        lags = [state.lag(self._config.read_committed) for state in states]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known and len(known) == len(lags) else None

    # -- the state ---------------------------------------------------------------------------------

    def _derive_state(self, now: float) -> StateReason:
        if self._state_override is not None:
            return StateReason(self._state_override)
        failure = self._tasks.failure or self._coordination.failure
        if failure is not None:
            return StateReason(ConsumerState.FAILED, str(failure) or repr(failure))
        if self._subscriptions.subscription is None:
            return StateReason(ConsumerState.UNSUBSCRIBED)
        outage = self._outage(now)
        if outage is not None:
            return StateReason(ConsumerState.UNREACHABLE, str(outage), outage.since)
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
        for node_health in self._node_healths():
            node_health.close()

    # -- outages and stalls ------------------------------------------------------------------------

    def _outage(self, now: float) -> Outage | None:
        """Return the outage of the coordinator, or the outage that stops all fetches. If there are
        both, return the one that began first; None if there is neither."""
        outages = [self._coordinator_outage(now), self._fetch_outage(now)]
        return min((one for one in outages if one is not None), default=None, key=_since)

    def _coordinator_outage(self, now: float) -> Outage | None:
        node_health = self._coordination.coordinator_health
        outage = None if node_health is None else node_health.outage(now)
        return outage if outage is not None and self._needs_coordinator() else None

    def _needs_coordinator(self) -> bool:
        subscriptions = self._subscriptions
        if subscriptions.subscription is None:
            return False
        # The coordinator also has the committed offsets of manually assigned partitions.
        return not subscriptions.is_manual or any(
            state.is_unset for state in subscriptions.assignment.states()
        )

    def _fetch_outage(self, now: float) -> Outage | None:
        """Return the outage that stops all fetches; None if at least one partition can be fetched,
        or began to fail less than `LASTING` seconds ago. Withheld partitions (paused, or of a topic
        that is no longer subscribed to) do not count; if no other partition is assigned, return the
        outage of the cluster, if there is one."""
        states = [s for s in self._subscriptions.assignment.states() if not s.is_withheld]
        if not states:
            return self._cluster_outage()
        known: list[float] = []
        node_outages = self._targets.outages(now)
        for state in states:
            since = self._targets.silent_since(state, node_outages)
            if since is None:
                since = _failing_since(state, now)
            # One partition that can be fetched is enough. NodeHealth logs the outages of the
            # brokers of other partitions.
            if since is None:
                return None
            known.append(since)
        outages = list(node_outages.values())
        if self._targets.leaderless:
            outages.append(self._leaderless_outage(max(known)))
        outages += self._partition_outages(states, now)
        return joint_outage(outages, max(known)) if outages else None

    def _partition_outages(self, states: Iterable[PartitionState], now: float) -> Iterator[Outage]:
        """Group the partitions whose requests have failed for at least `LASTING` seconds by their
        error, and yield one outage for each group. Its text names the partitions of the group."""
        groups: dict[tuple[str, str], list[Stall]] = {}
        for state in states:
            if _failing_since(state, now) is not None:
                stall = _partition_stall(state, now)
                groups.setdefault((stall.kind, stall.reason), []).append(stall)
        for (kind, reason), stalls in groups.items():
            names = named([stall.partition for stall in stalls if stall.partition is not None])
            since, error = max(stall.since for stall in stalls), stalls[0].error
            text = f"No {kind} {names}: {reason}"
            yield Outage(since, (f"Partitions {names}",), error, text)

    def _stalls(self, now: float) -> Iterator[Stall]:
        """Yield the stalls for `health()` and the log: partitions without progress, and the group
        if it has no assignment or rejects heartbeats."""
        if self._state_override in (ConsumerState.NEW, ConsumerState.CLOSED):
            return
        targets = self._targets
        outages = {**targets.throttles(now), **targets.outages(now)}
        coordinator = self._coordinator_outage(now)
        absent = set(targets.leaderless)
        has_outages = bool(outages or absent)
        for state in self._subscriptions.assignment.states():
            if state.is_withheld:
                continue
            since = targets.silent_since(state, outages) if has_outages else None
            node_id = state.target.node_id
            if since is not None and state.tp in absent:
                yield self._leaderless_stall(state, since)
            elif since is not None and node_id is not None:
                outage = outages[node_id]
                # If the outage has an error, NodeHealth has logged it.
                is_logged = outage.error is not None
                yield Stall(_kind(state), since, None, 0.0, outage.text, state.tp, is_logged)
            elif coordinator is not None and state.is_unset:
                is_logged = coordinator.error is not None
                kind, since, text = _kind(state), coordinator.since, coordinator.text
                yield Stall(kind, since, None, 0.0, text, state.tp, is_logged)
            # Check the attribute first: this runs every second for each partition.
            elif state.retry.since is not None and state.retry.failing_since(now) is not None:
                yield _partition_stall(state, now)
        yield from self._group_stalls(now)

    def _group_stalls(self, now: float) -> Iterator[Stall]:
        coordination = self._coordination
        error = coordination.last_error
        if coordination.phase is GroupPhase.JOINING:
            since, outage = self._states.since, self._coordinator_outage(now)
            reason = str(error or coordination.reason or "not all members have joined")
            if outage is not None:
                reason = str(outage)
            # A rebalance of less than `_LONG_REBALANCE` seconds needs no log message.
            is_normal = error is None and outage is None and now - since < _LONG_REBALANCE
            is_logged = is_normal or (outage is not None and outage.error is not None)
            kind = "an assignment by the group"
            yield Stall(kind, since, error, since, reason, None, is_logged)
        elif coordination.phase is GroupPhase.JOINED and error is not None:
            beat_at = coordination.beat_at
            if beat_at is not None:
                yield Stall("heartbeats of the group", beat_at, error, beat_at, str(error))

    def _leaderless_stall(self, state: PartitionState, since: float) -> Stall:
        reason = "it has no leader, or does not exist"
        error = LeaderNotAvailableError(f"{named([state.tp])}: {reason}")
        is_logged = True  # FetchTargets has logged a warning
        return Stall(_kind(state), since, error, since, reason, state.tp, is_logged)

    def _leaderless_outage(self, since: float) -> Outage:
        name = f"The leader of {self._targets.names(self._targets.leaderless)}"
        failure = self._client.metadata_failure
        if failure is not None and failure[0] >= since:
            return Outage(since, (name,), failure[1], f"{name} is not known: {failure[1]}")
        return Outage(since, (name,), None, f"{name} is not known")

    def _cluster_outage(self) -> Outage | None:
        """Return the outage of all brokers if no partition is assigned, the last metadata request
        failed, and the coordinator has not responded after this failure; else None."""
        failure = self._client.metadata_failure
        health = self._coordination.coordinator_health
        heard = 0.0 if health is None or health.answered_at is None else health.answered_at
        if failure is None or heard > failure[0] or self._subscriptions.assignment.tps:
            return None
        text = f"No broker answers: {failure[1]}"
        return Outage(failure[0], ("Every broker",), failure[1], text)

    def _unreachable_parties(self, now: float) -> Iterator[str]:
        node_healths = self._targets.node_healths()
        if self._coordination.coordinator_health is not None and self._needs_coordinator():
            node_healths.append(self._coordination.coordinator_health)
        for node_health in node_healths:
            if node_health.silent_since(now) is not None:
                yield node_health.name
        if self._targets.leaderless:
            yield f"The leader of {self._targets.names(self._targets.leaderless)}"

    def _node_healths(self) -> list[NodeHealth]:
        node_healths = self._targets.node_healths()
        if self._coordination.coordinator_health is not None:
            node_healths.append(self._coordination.coordinator_health)
        return node_healths

    def _last_error(self, stalls: Iterable[Stall]) -> tuple[float, BaseException | None]:
        """Return the loop time and the exception of the last error; (0.0, None) without one."""
        node_healths = self._node_healths()
        failures = [self._failure, self._queue.last_error]
        failures += [(stall.error_at, stall.error) for stall in stalls]
        if self._client.metadata_failure is not None:
            failures.append(self._client.metadata_failure)
        return newest(failures, node_healths)


def _kind(state: PartitionState) -> str:
    return "position of" if state.needs_offset else "records of"


def _failing_since(state: PartitionState, now: float) -> float | None:
    """Return the loop time since which all requests for a partition fail with an error; None if the
    requests succeed, or if the first failure is less than `LASTING` seconds ago."""
    since: float | None = state.retry.failing_since(now)
    is_lasting = since is not None and now - since >= LASTING
    return since if is_lasting and state.retry.error is not None else None


def _partition_stall(state: PartitionState, now: float) -> Stall:
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


def _since(outage: Outage) -> float:
    return outage.since
