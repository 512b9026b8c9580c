"""The state and the outages of a share consumer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiokafka._health import (
    LASTING,
    ConsumerState,
    NodeHealth,
    Outage,
    Stall,
    StateLog,
    StateReason,
    joint_outage,
    named,
    newest,
)
from aiokafka.share.membership import ShareMemberState

if TYPE_CHECKING:
    from aiokafka._config.share import ShareConsumerConfig
    from aiokafka._tasks import TaskOwner
    from aiokafka.client import AIOKafkaClient
    from aiokafka.health import ShareConsumerHealth
    from aiokafka.share.acquired import Acknowledgements
    from aiokafka.share.buffer import ShareBuffer
    from aiokafka.share.fetcher import ShareFetcher
    from aiokafka.share.membership import ShareMembership

__all__ = ["ShareHealthMonitor"]

log = logging.getLogger("aiokafka.share")

_ALARMING = (ConsumerState.UNREACHABLE, ConsumerState.FAILED)


class ShareHealthMonitor:
    """Derives the state of a share consumer from its membership, share sessions and tasks.

    Owns: the state and its history; the override of the state while the consumer is new, starting
    or closed. Other objects of the consumer call `look()` after a change that may affect the state.
    The fetcher and the task owner are created after the monitor, so they are set by `begin()`.
    """

    _fetcher: ShareFetcher
    _tasks: TaskOwner

    def __init__(
        self, client: AIOKafkaClient, config: ShareConsumerConfig, membership: ShareMembership
    ) -> None:
        self._client = client
        self._membership = membership
        self._loop = asyncio.get_running_loop()
        self._state_override: ConsumerState | None = ConsumerState.NEW
        self._states = StateLog(config.subject, ConsumerState.NEW, _ALARMING)

    def begin(self, fetcher: ShareFetcher, tasks: TaskOwner) -> None:
        """Set the fetcher and the task owner. Must be called before `look()`."""
        self._fetcher = fetcher
        self._tasks = tasks
        self._client.waits.follow(log, self._stalls, self._look_later)

    def override_state(self, state: ConsumerState | None) -> None:
        """Set the state to STARTING or CLOSED. With None, derive the state from now on."""
        self._state_override = state
        self.look()

    def look(self) -> None:
        """Derive the state again, and log it if it has changed."""
        derived = self._derive_state(self._loop.time())
        self._states.note(derived, log, is_last=self._state_override is not None)

    def health(
        self, acknowledgements: Acknowledgements, buffer: ShareBuffer
    ) -> ShareConsumerHealth:
        """Return the result of `AIOKafkaShareConsumer.health()`."""
        # Imported here, because dataclasses are slow to import.
        from aiokafka.health import ShareConsumerHealth, stalled_waits, state_changes

        self.look()
        now = self._loop.time()
        stalls = self._client.waits.lasting()
        failures = [(stall.error_at, stall.error) for stall in stalls]
        if self._client.metadata_failure is not None:
            failures.append(self._client.metadata_failure)
        if self._membership.error is not None:
            failures.append((now, self._membership.error))
        error_at, error = newest(failures, self._node_healths())
        beat_at, fetched_at = self._membership.beat_at, self._fetcher.meter.fetched_at
        return ShareConsumerHealth(
            state=ConsumerState(self._states.current.state),
            state_age_ms=(now - self._states.since) * 1000,
            reason=self._states.current.reason,
            joined=self._state_override is None and self._is_joined(now),
            heartbeat_age_ms=None if beat_at is None else (now - beat_at) * 1000,
            fetch_age_ms=None if fetched_at is None else (now - fetched_at) * 1000,
            pending_acknowledgements=acknowledgements.pending,
            failed_acknowledgements=acknowledgements.failed,
            expired=buffer.expired,
            unreadable=self._fetcher.meter.unreadable_records,
            last_error=None if error is None else str(error) or repr(error),
            last_exception=error,
            error_age_ms=None if error is None else (now - error_at) * 1000,
            unreachable=tuple(
                each.name for each in self._node_healths() if each.silent_since(now) is not None
            ),
            changes=state_changes(self._states, now),
            stalled=stalled_waits(stalls, now),
            defaults=self._client.config.applied_defaults,
        )

    def _node_healths(self) -> list[NodeHealth]:
        return [self._membership.health, *self._fetcher.node_healths()]

    def _look_later(self) -> bool:
        self.look()
        return self._states.current.state in _ALARMING

    def _derive_state(self, now: float) -> StateReason:
        if self._state_override is not None:
            return StateReason(self._state_override)
        failure = self._tasks.failure or self._membership.failure
        if failure is not None:
            return StateReason(ConsumerState.FAILED, str(failure) or repr(failure))
        if not self._membership.topics:
            return StateReason(ConsumerState.UNSUBSCRIBED)
        outage = self._outage(now)
        if outage is not None and now - outage.since >= LASTING:
            return StateReason(ConsumerState.UNREACHABLE, str(outage), outage.since)
        if not self._is_joined(now):
            reason = "" if self._membership.error is None else str(self._membership.error)
            return StateReason(ConsumerState.REBALANCING, reason)
        return StateReason(ConsumerState.RUNNING)

    def _is_joined(self, now: float) -> bool:
        membership = self._membership
        beat_at = membership.beat_at
        is_recent = beat_at is not None and now - beat_at <= membership.session_timeout
        return membership.state is ShareMemberState.STABLE and is_recent

    def _outage(self, now: float) -> Outage | None:
        """Return the outage of the coordinator, or the outage of all brokers that lead an assigned
        partition; None if there is neither."""
        coordinator = self._membership.health.outage(now)
        if coordinator is not None:
            return coordinator
        outages = [health.outage(now) for health in self._fetcher.node_healths()]
        known = [outage for outage in outages if outage is not None]
        return joint_outage(known) if known and len(known) == len(outages) else None

    def _stalls(self, now: float) -> Iterator[Stall]:
        """Yield a Stall for each broker with assigned partitions that does not respond or throttles
        this client, and one for all partitions without a leader. `health()` and the log show them.
        """
        if self._state_override is not None:
            return
        for health in self._fetcher.node_healths():
            outage = health.outage(now) or health.throttle(now)
            if outage is not None:
                is_logged = outage.error is not None  # NodeHealth has logged the error
                yield Stall(
                    "records of", outage.since, outage.error, 0.0, outage.text, None, is_logged
                )
        since = self._fetcher.leaderless_since
        if self._fetcher.leaderless and since is not None:
            names = named(self._fetcher.leaderless)
            yield Stall(f"records of {names}", since, None, 0.0, "they have no leader")
