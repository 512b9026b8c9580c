"""The health of a producer: its state, and why records are not delivered."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokafka._health import (
    LASTING,
    Outage,
    ProducerState,
    Stall,
    StateLog,
    StateReason,
    joint_outage,
    named,
    newest,
)
from aiokafka.errors import LeaderNotAvailableError
from aiokafka.producer.transaction_manager import TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiokafka._tasks import TaskOwner
    from aiokafka.client import AIOKafkaClient
    from aiokafka.health import ProducerHealth
    from aiokafka.producer.batch import ProducerBatch
    from aiokafka.producer.batch_completion import BatchCompletion
    from aiokafka.producer.message_accumulator import PartitionQueue
    from aiokafka.producer.node_sender import NodeSender

__all__ = ["ProducerHealthMonitor"]

log = logging.getLogger("aiokafka.producer.producer")

_ALARMING = (ProducerState.UNREACHABLE, ProducerState.FAILED)


class ProducerHealthMonitor:
    """Determines and logs the state of a producer.

    Owns: the phase of the producer (new, running, closing, closed), the last state, and the error
    that ended the producer. After a change that may affect the state, other objects call `look()`:
    it logs a new state, and stores the time of the change. `health()` also calls `look()`, because
    time alone may change the state.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        completion: BatchCompletion,
        nodes: Mapping[int, NodeSender],
        owner: TaskOwner,
    ) -> None:
        """`nodes` has the NodeSenders by node id; the Sender adds and removes entries."""
        self._client = client
        self._completion = completion
        self._pending = completion.pending
        self._nodes = nodes
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._phase: ProducerState | None = ProducerState.NEW
        self._states = StateLog(completion.config.subject, ProducerState.NEW, _ALARMING)
        self._failure: tuple[float, BaseException | None] = (0.0, None)
        client.waits.follow(log, self._waits, self._look_later)

    def enter(self, phase: ProducerState | None) -> None:
        """Set the phase of the producer: the state NEW, CLOSING or CLOSED; or None for a running
        producer, whose state is determined by `look()`."""
        self._phase = phase
        self.look()

    def look(self) -> None:
        """Determine the state, and log it if it has changed."""
        reason = self._judge(self._loop.time())
        is_new = self._states.note(reason, log, is_last=self._phase is not None)
        if is_new and reason.state == ProducerState.FAILED:
            self._failure = (self._states.since, self._end())

    def _look_later(self) -> bool:
        """Call `look()`, unless an outage has lasted for less than `LASTING` seconds: the broker
        may only be slow. Return whether the state is in `_ALARMING`: then the log message of the
        state explains why calls wait, and `Waits` does not log these calls."""
        now = self._loop.time()
        outage = self._outage(now) if self._phase is None else None
        if outage is None or now - outage.since >= LASTING:
            self.look()
        return self._phase is None and self._states.current.state in _ALARMING

    def health(self) -> ProducerHealth:
        """Return the state of the producer and the reasons for it."""
        # Load the dataclasses on first use, because loading takes time.
        from aiokafka.health import ProducerHealth, stalled_waits, state_changes

        self.look()
        now = self._loop.time()
        stalls = self._client.waits.lasting()
        failures = [self._failure, self._completion.last_error]
        failures += [(stall.error_at, stall.error) for stall in stalls]
        if self._client.metadata_failure is not None:
            failures.append(self._client.metadata_failure)
        healths = [node.health for node in self._nodes.values()]
        error_at, error = newest(failures, healths)
        pending = self._pending
        oldest = min((batch.created for batch in pending), default=now)
        delivered_at = self._completion.delivered_at
        busy = [node.health for node in self._nodes.values() if node.is_busy]
        silent = [health.name for health in busy if health.silent_since(now) is not None]
        return ProducerHealth(
            state=ProducerState(self._states.current.state),
            state_age_ms=(now - self._states.since) * 1000,
            reason=self._states.current.reason,
            pending=len(pending),
            pending_age_ms=(now - oldest) * 1000 if pending else None,
            delivery_age_ms=None if delivered_at is None else (now - delivered_at) * 1000,
            last_error=None if error is None else str(error) or repr(error),
            last_exception=error,
            error_age_ms=None if error is None else (now - error_at) * 1000,
            unreachable=tuple(silent),
            changes=state_changes(self._states, now),
            stalled=stalled_waits(stalls, now),
            defaults=self._client.config.applied_defaults,
        )

    def _judge(self, now: float) -> StateReason:
        if self._phase is ProducerState.CLOSING:
            return StateReason(self._phase, self.backlog(None) if self._pending else "")
        if self._phase is not None:
            return StateReason(self._phase)
        end = self._end()
        if end is not None:
            return StateReason(ProducerState.FAILED, str(end) or repr(end))
        outage = self._outage(now)
        if outage is not None:
            return StateReason(ProducerState.UNREACHABLE, str(outage), outage.since)
        return StateReason(ProducerState.RUNNING)

    def backlog(self, deadline: float | None) -> str:
        """Return a text about the batches that a closing producer waits for: how many they are, why
        they are not delivered, and the maximum remaining time.

        `deadline` (loop time) is the deadline of `stop()`; None for `stop()` without a timeout.
        """
        now = self._loop.time()
        last = max((batch.deadline for batch in self._pending), default=now)
        left = (last if deadline is None else min(last, deadline)) - now
        outage = self._outage(now)
        why = f" ({outage})" if outage is not None else ""
        return (
            f"waiting up to {max(0.0, left):.1f} s for the delivery of {len(self._pending)} "
            f"batches{why}; stop(timeout=...) limits this wait"
        )

    def _end(self) -> BaseException | None:
        """Return the error that ended the producer; None for a producer that has not failed."""
        transaction = self._completion.transaction
        if transaction is not None and transaction.state is TransactionState.FATAL:
            return transaction.error
        return self._owner.failure

    def _waits(self, now: float) -> Iterator[Stall]:
        """Yield a Stall for each partition whose oldest batch has waited for `LASTING` seconds or
        longer."""
        silent = {}
        for node_id, node in self._nodes.items():
            if (outage := node.health.outage(now)) is not None:
                silent[node_id] = outage
        for batch, queue in self._oldest().values():
            since = self._waits_since(batch)
            if now - since < LASTING:
                continue
            reason, error = self._completion.reason(queue, batch)
            outage = silent.get(queue.node.node_id) if queue.node is not None else None
            # NodeHealth has logged an outage that has an error. An outage without an error is an
            # overdue response, which NodeHealth does not log.
            is_logged = outage is not None and outage.error is not None
            if error is None and outage is not None:
                reason = outage.text
            yield Stall("delivery to", since, error, 0.0, reason, queue.partition, is_logged)

    def _oldest(self) -> dict[PartitionQueue, tuple[ProducerBatch, PartitionQueue]]:
        """Return the oldest undelivered batch of each partition."""
        found: dict[PartitionQueue, tuple[ProducerBatch, PartitionQueue]] = {}
        for batch, queue in self._pending.entries():
            found.setdefault(queue, (batch, queue))
        return found

    def _waits_since(self, batch: ProducerBatch) -> float:
        """Return the loop time from which a batch counts as waiting for delivery."""
        since: float = batch.created + self._completion.config.linger
        if batch.error is None and self._completion.delivered_at is not None:
            # Other batches were delivered after this batch was created, so it may only have been
            # queued behind them.
            since = max(since, self._completion.delivered_at)
        return since

    def _refusals(self, now: float) -> list[Outage]:
        """Return an Outage for each type of error that prevents delivery although brokers respond;
        [] if some batch may be delivered. No batch can be delivered if, for every partition, the
        oldest batch has an error or no leader, and has waited for `LASTING` seconds without the
        delivery of any batch."""
        groups: dict[type, list[tuple[float, BaseException, PartitionQueue]]] = {}
        for batch, queue in self._oldest().values():
            since, error = self._waits_since(batch), batch.error
            if self._completion.lacks_leader(queue, batch):
                error = LeaderNotAvailableError("no leader, or no such partition")
            is_moving = (self._completion.delivered_at or 0.0) > since
            if error is None or now - since < LASTING or is_moving:
                return []
            groups.setdefault(type(error), []).append((since, error, queue))
        refusals = []
        for entries in groups.values():
            names = named([queue.partition for _, _, queue in entries])
            since, error = max(since for since, _, _ in entries), entries[0][1]
            text = f"Nothing is delivered to {names}: {error}"
            refusals.append(Outage(since, (f"Partitions {names}",), error, text))
        return refusals

    def _outage(self, now: float) -> Outage | None:
        """Return the outage because of which no batch can be delivered; None if a batch may be
        delivered. The first of these cases that applies determines the outage:

        1. All brokers for which batches wait or requests are in flight have an outage.
        2. All partitions with batches have errors or no leader (`_refusals`).
        3. No broker has responded since metadata requests began to fail.
        """
        busy = [node.health for node in self._nodes.values() if node.is_busy]
        outages = [health.outage(now) for health in busy]
        found = [outage for outage in outages if outage is not None]
        if busy and len(found) == len(busy):
            return joint_outage(found)
        if refusals := self._refusals(now):
            return joint_outage(refusals)
        failure = self._client.metadata_failure
        if busy or failure is None:
            return None
        heard = max((node.health.answered_at or 0.0 for node in self._nodes.values()), default=0.0)
        if heard >= failure[0]:
            return None
        text = f"No broker answers: {failure[1]}"
        return Outage(failure[0], ("Every broker",), failure[1], text)
