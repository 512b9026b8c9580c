"""How a consumer is doing, from what its parts know."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

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
    from aiokafka.consumer._partition_state import PartitionState
    from aiokafka.consumer._shared import ConsumerMeter
    from aiokafka.consumer.fetch.desk import ReaderDesk
    from aiokafka.consumer.fetch.fetcher import Placement
    from aiokafka.consumer.group.no_group import Coordination
    from aiokafka.consumer.subscription_state import SubscriptionState
    from aiokafka.health import ConsumerHealth

__all__ = ["ConsumerHealthMonitor", "Sources"]

log = logging.getLogger("aiokafka.consumer.consumer")

# Seconds that a rebalance may take before it is called a stall, without an error.
_LONG_REBALANCE = 30.0

# Seconds in which the loop reads what it has received while the program kept it from running.
_MOMENT = 0.1

_ALARMING = (ConsumerState.UNREACHABLE, ConsumerState.POLL_OVERDUE, ConsumerState.FAILED)


class Sources(NamedTuple):
    """The parts that know how the consumer is doing."""

    desk: ReaderDesk
    tasks: TaskOwner
    placement: Placement
    coordination: Coordination
    meter: ConsumerMeter


class ConsumerHealthMonitor:
    """Says how the consumer is doing; changes nothing about it.

    Owns: what ended the consumer, and when the application was last told that no broker can be
    reached. Every part gets `look` to call when it has changed, so that the new state is logged
    once and its time is known; `health()` looks as well, for what only time tells. So it is made
    before the parts are, and begins to look with `begin()`.
    """

    def __init__(
        self, client: AIOKafkaClient, config: ConsumerConfig, subscriptions: SubscriptionState
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._parts: Sources | None = None
        self._loop = asyncio.get_running_loop()
        self._life: ConsumerState | None = ConsumerState.NEW
        self._states = StateLog(config.subject, ConsumerState.NEW, _ALARMING)
        self._failure: tuple[float, BaseException | None] = (0.0, None)
        self.told_at = 0.0
        """When `check` last raised (loop time)."""

    def begin(self, parts: Sources) -> None:
        """Look at these parts from now on."""
        self._parts = parts
        self._client.waits.follow(log, self._waits, self._look_later)

    @property
    def _of(self) -> Sources:
        assert self._parts is not None, "no part changes before all are made"
        return self._parts

    def live(self, life: ConsumerState | None) -> None:
        """Begin another part of the consumer's life; None: its state follows from its parts."""
        self._life = life
        self.look()

    def look(self) -> None:
        """Judge the state again, since something may have changed; log it if it is another one."""
        verdict = self._judge(self._loop.time())
        is_new = self._states.note(verdict, log, is_last=self._life is not None)
        if is_new and verdict.state == ConsumerState.FAILED:
            failure = self._of.tasks.failure or self._of.coordination.failure
            self._failure = (self._states.since, failure)

    def _look_later(self) -> bool:
        """Judge the state, unless that is alarming since a moment ago only: a slow broker is no
        outage. Return whether the state, which is logged, explains what is waited for."""
        now = self._loop.time()
        trouble = self._trouble(now) if self._life is None else None
        if trouble is None or now - trouble.since >= LASTING:
            self.look()
        return self._life is None and self._states.current.state in _ALARMING

    def health(self) -> ConsumerHealth:
        """Return all that `AIOKafkaConsumer.health()` does."""
        # Dataclasses, which take time to load: not before they are needed.
        from aiokafka.health import ConsumerHealth, stalled_waits, state_changes

        self.look()
        now = self._loop.time()
        stalls = self._client.waits.lasting()
        error_at, error = self._last_error(stalls)
        beat_at, fetched_at = self._of.coordination.beat_at, self._of.desk.fetched_at
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
            skipped=self._of.meter.all.skipped,
        )

    def check(self, told_at: float) -> float:
        """Return when to check again (loop time). Raises KafkaUnreachableError when the consumer
        has not been able to work for `unreachable_timeout`, and its application was not told since
        `told_at` for so long."""
        limit = self._config.unreachable_timeout
        assert limit is not None
        now = self._loop.time()
        trouble = self._trouble(now)
        if trouble is None:
            return now + limit
        due = max(trouble.since, told_at) + limit
        if now < due:
            return due
        if self._client.waits.has_stood_still:
            return now + _MOMENT
        self.told_at = now
        raise KafkaUnreachableError(
            trouble.parties, (now - trouble.since) * 1000, trouble.error
        ) from trouble.error

    def lag(self) -> int | None:
        """Return the lag of all assigned partitions together; None if it is unknown of any."""
        states = self._subscriptions.assignment.states()
        lags = [state.lag(self._config.read_committed) for state in states]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known and len(known) == len(lags) else None

    # -- the state ---------------------------------------------------------------------------------

    def _judge(self, now: float) -> StateReason:
        if self._life is not None:
            return StateReason(self._life)
        failure = self._of.tasks.failure or self._of.coordination.failure
        if failure is not None:
            return StateReason(ConsumerState.FAILED, str(failure) or repr(failure))
        if self._subscriptions.subscription is None:
            return StateReason(ConsumerState.UNSUBSCRIBED)
        trouble = self._trouble(now)
        if trouble is not None:
            return StateReason(ConsumerState.UNREACHABLE, str(trouble), trouble.since)
        phase = self._of.coordination.phase
        if phase is GroupPhase.IDLE:
            reason = "the application asked for no records for max_poll_interval_ms"
            return StateReason(ConsumerState.POLL_OVERDUE, reason)
        if phase is GroupPhase.JOINING:
            return StateReason(ConsumerState.REBALANCING, self._of.coordination.reason)
        if phase is GroupPhase.JOINED and not self._is_joined(now):
            return StateReason(
                ConsumerState.REBALANCING, "no heartbeat for longer than the session"
            )
        return StateReason(ConsumerState.RUNNING)

    def _is_joined(self, now: float) -> bool:
        coordination = self._of.coordination
        beat_at = coordination.beat_at
        return (
            coordination.generation >= 0
            and beat_at is not None
            and now - beat_at <= coordination.session_timeout
        )

    def close(self) -> None:
        """Take no failure of a broker or coordinator for one from here on: the connections are
        about to be closed."""
        for contact in self._contacts():
            contact.close()

    # -- who does not answer -----------------------------------------------------------------------

    def _trouble(self, now: float) -> Outage | None:
        """Return what keeps the consumer from working, and has for longest; None if nothing
        does."""
        troubles = [self._group_trouble(now), self._fetch_trouble(now)]
        return min((one for one in troubles if one is not None), default=None, key=_since)

    def _group_trouble(self, now: float) -> Outage | None:
        contact = self._of.coordination.contact
        if contact is None or not self._needs_coordinator():
            return None
        return contact.outage(now)

    def _needs_coordinator(self) -> bool:
        subscriptions = self._subscriptions
        if subscriptions.subscription is None:
            return False
        # Where to begin is asked of the coordinator, too.
        return not subscriptions.is_manual or any(
            state.is_unset for state in subscriptions.assignment.states()
        )

    def _fetch_trouble(self, now: float) -> Outage | None:
        """Return why not one of the partitions can be read; None if one can."""
        states = [s for s in self._subscriptions.assignment.states() if not s.is_withheld]
        if not states:
            return self._cluster_trouble()
        known: list[float] = []
        away = self._of.placement.outages(now)
        for state in states:
            since = self._of.placement.silent_since(state, away)
            if since is None:
                since = _refused_since(state, now)
            # One partition that can be read is enough: the consumer does its work, and the log
            # names the broker.
            if since is None:
                return None
            known.append(since)
        troubles = list(away.values())
        if self._of.placement.leaderless:
            troubles.append(self._leaderless(max(known)))
        troubles += self._refusals(states, now)
        return joint_outage(troubles)._replace(since=max(known)) if troubles else None

    def _refusals(self, states: Iterable[PartitionState], now: float) -> Iterator[Outage]:
        """Yield why partitions cannot be read whose brokers respond; one for each reason."""
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
        """Yield what the consumer waits for besides calls: the partitions that cannot be read, and
        the group."""
        if self._life in (ConsumerState.NEW, ConsumerState.CLOSED):
            return
        placement = self._of.placement
        outages = placement.outages(now)
        coordinator = self._group_trouble(now)
        absent = set(placement.leaderless)
        is_any_away = bool(outages or absent)
        for state in self._subscriptions.assignment.states():
            if state.is_withheld:
                continue
            since = placement.silent_since(state, outages) if is_any_away else None
            node_id = state.home.node_id
            if since is not None and state.tp in absent:
                yield self._absence(state, since)
            elif since is not None and node_id is not None:
                outage = outages[node_id]
                # Logged by the NodeHealth, unless it is silent without an error.
                is_logged = outage.error is not None
                yield Stall(_kind(state), since, None, 0.0, outage.text, state.tp, is_logged)
            elif state.is_unset and coordinator is not None:
                since, _, error, text = coordinator
                is_logged = error is not None
                yield Stall(_kind(state), since, None, 0.0, text, state.tp, is_logged)
            elif state.retry.failing_since(now) is not None:
                yield _refusal(state, now)
        yield from self._waits_for_group(now)

    def _waits_for_group(self, now: float) -> Iterator[Stall]:
        coordination = self._of.coordination
        error = coordination.trouble
        if coordination.phase is GroupPhase.JOINING:
            since, outage = self._states.since, self._group_trouble(now)
            reason = str(error or coordination.reason or "not all members have joined")
            if outage is not None:
                reason = str(outage)
            # A rebalance may take its time.
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
        is_logged = True  # by `Placement`
        return Stall(_kind(state), since, error, since, reason, state.tp, is_logged)

    def _leaderless(self, since: float) -> Outage:
        name = f"The leader of {self._of.placement.names(self._of.placement.leaderless)}"
        failure = self._client.metadata_failure
        if failure is not None and failure[0] >= since:
            return Outage(since, (name,), failure[1], f"{name} is not known: {failure[1]}")
        return Outage(since, (name,), None, f"{name} is not known")

    def _cluster_trouble(self) -> Outage | None:
        """Return why the metadata cannot be had, of a consumer without partitions."""
        failure = self._client.metadata_failure
        contact = self._of.coordination.contact
        heard = 0.0 if contact is None or contact.answered_at is None else contact.answered_at
        if failure is None or heard > failure[0] or self._subscriptions.assignment.tps:
            return None
        text = f"No broker answers: {failure[1]}"
        return Outage(failure[0], ("Every broker",), failure[1], text)

    def _silent(self, now: float) -> Iterator[str]:
        contacts = self._of.placement.contacts()
        if self._of.coordination.contact is not None and self._needs_coordinator():
            contacts.append(self._of.coordination.contact)
        for contact in contacts:
            if contact.silent_since(now) is not None:
                yield contact.name
        if self._of.placement.leaderless:
            yield f"The leader of {self._of.placement.names(self._of.placement.leaderless)}"

    def _contacts(self) -> list[NodeHealth]:
        contacts = self._of.placement.contacts()
        if self._of.coordination.contact is not None:
            contacts.append(self._of.coordination.contact)
        return contacts

    def _last_error(self, stalls: Iterable[Stall]) -> tuple[float, BaseException | None]:
        """Return the last error, and when it came (loop time)."""
        contacts = self._contacts()
        failures = [self._failure, self._of.desk.last_error]
        failures += [(stall.error_at, stall.error) for stall in stalls]
        if self._client.metadata_failure is not None:
            failures.append(self._client.metadata_failure)
        return newest(failures, contacts)


def _kind(state: PartitionState) -> str:
    return "position of" if state.needs_offset else "records of"


def _refused_since(state: PartitionState, now: float) -> float | None:
    """Return since when brokers respond for a partition with errors only; None if they do not, or
    have for a moment only."""
    since: float | None = state.retry.failing_since(now)
    is_lasting = since is not None and now - since >= LASTING
    return since if is_lasting and state.retry.error is not None else None


def _refusal(state: PartitionState, now: float) -> Stall:
    """Return that a partition waits, as brokers respond with errors."""
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
