"""Judge how a producer is doing, from what its parts know."""

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
from aiokafka.producer.transactions.state import TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiokafka._tasks import TaskOwner
    from aiokafka.client import AIOKafkaClient
    from aiokafka.health import ProducerHealth
    from aiokafka.producer.batches.appender import PartitionQueue
    from aiokafka.producer.batches.batch import ProducerBatch
    from aiokafka.producer.sending.delivery import Delivery
    from aiokafka.producer.sending.node_sender import NodeSender

__all__ = ["ProducerHealthMonitor"]

log = logging.getLogger("aiokafka.producer.producer")

_ALARMING = (ProducerState.UNREACHABLE, ProducerState.FAILED)


class ProducerHealthMonitor:
    """Says how the producer is doing; changes nothing about it.

    Owns: the part of its life that the producer is in, the state seen last, and what ended the
    producer. Parts that change something call `look()`, so that the new state is logged once and
    its time is known; `health()` looks as well, for what only time tells.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        delivery: Delivery,
        nodes: Mapping[int, NodeSender],
        owner: TaskOwner,
    ) -> None:
        """Begin with NEW. `nodes`: the senders of all brokers, as they come and go."""
        self._client = client
        self._delivery = delivery
        self._pending = delivery.pending
        self._nodes = nodes
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._life: ProducerState | None = ProducerState.NEW
        self._states = StateLog(delivery.config.subject, ProducerState.NEW, _ALARMING)
        self._failure: tuple[float, BaseException | None] = (0.0, None)
        client.waits.follow(log, self._waits, self._look_later)

    def enter(self, life: ProducerState | None) -> None:
        """Begin another part of the producer's life; None: it runs, its parts tell the state."""
        self._life = life
        self.look()

    def look(self) -> None:
        """Judge the state again, and log it if it has changed."""
        verdict = self._judge(self._loop.time())
        is_new = self._states.note(verdict, log, is_last=self._life is not None)
        if is_new and verdict.state == ProducerState.FAILED:
            self._failure = (self._states.since, self._end())

    def _look_later(self) -> bool:
        """Judge the state, unless that is alarming since a moment ago only: a slow broker is no
        outage. Return whether the state, which is logged, explains what is waited for."""
        now = self._loop.time()
        trouble = self._trouble(now) if self._life is None else None
        if trouble is None or now - trouble.since >= LASTING:
            self.look()
        return self._life is None and self._states.current.state in _ALARMING

    def health(self) -> ProducerHealth:
        """Return the state, and what explains it."""
        # Dataclasses, which take time to load: not before they are needed.
        from aiokafka.health import ProducerHealth, stalled_waits, state_changes

        self.look()
        now = self._loop.time()
        stalls = self._client.waits.lasting()
        failures = [self._failure, self._delivery.last_error]
        failures += [(stall.error_at, stall.error) for stall in stalls]
        if self._client.metadata_failure is not None:
            failures.append(self._client.metadata_failure)
        contacts = [node.contact for node in self._nodes.values()]
        error_at, error = newest(failures, contacts)
        pending = self._pending
        oldest = min((batch.created for batch in pending), default=now)
        delivered_at = self._delivery.delivered_at
        busy = [node.contact for node in self._nodes.values() if node.is_busy]
        silent = [contact.name for contact in busy if contact.silent_since(now) is not None]
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
        )

    def _judge(self, now: float) -> StateReason:
        if self._life is ProducerState.CLOSING:
            return StateReason(self._life, self.backlog(None) if self._pending else "")
        if self._life is not None:
            return StateReason(self._life)
        end = self._end()
        if end is not None:
            return StateReason(ProducerState.FAILED, str(end) or repr(end))
        trouble = self._trouble(now)
        if trouble is not None:
            return StateReason(ProducerState.UNREACHABLE, str(trouble), trouble.since)
        return StateReason(ProducerState.RUNNING)

    def backlog(self, deadline: float | None) -> str:
        """Say what a producer that is closing waits for, why, and until when at most.

        `deadline` (loop time) is that of `stop()`, None without.
        """
        now = self._loop.time()
        last = max((batch.deadline for batch in self._pending), default=now)
        left = (last if deadline is None else min(last, deadline)) - now
        trouble = self._trouble(now)
        why = f" ({trouble})" if trouble is not None else ""
        return (
            f"{len(self._pending)} batches are to be delivered{why}, for which it waits up to "
            f"{max(0.0, left):.1f} s; stop(timeout=...) limits that"
        )

    def _end(self) -> BaseException | None:
        """Return what the producer cannot recover from, None if it runs."""
        transaction = self._delivery.transaction
        if transaction is not None and transaction.state is TransactionState.FATAL:
            return transaction.error
        return self._owner.failure

    def _waits(self, now: float) -> Iterator[Stall]:
        """Yield what the producer waits for besides calls: the partitions whose records are not
        delivered."""
        silent = {}
        for node_id, node in self._nodes.items():
            if (outage := node.contact.outage(now)) is not None:
                silent[node_id] = outage
        for batch, queue in self._oldest().values():
            since = self._waits_since(batch)
            if now - since < LASTING:
                continue
            reason, error = self._delivery.reason(queue, batch)
            outage = silent.get(queue.node.node_id) if queue.node is not None else None
            # Logged by the NodeHealth, unless it is silent without an error.
            is_logged = outage is not None and outage.error is not None
            if error is None and outage is not None:
                reason = outage.text
            yield Stall("delivery to", since, error, 0.0, reason, queue.partition, is_logged)

    def _oldest(self) -> dict[PartitionQueue, tuple[ProducerBatch, PartitionQueue]]:
        """Return of each partition the oldest batch that is not delivered."""
        found: dict[PartitionQueue, tuple[ProducerBatch, PartitionQueue]] = {}
        for batch, queue in self._pending.entries():
            found.setdefault(queue, (batch, queue))
        return found

    def _waits_since(self, batch: ProducerBatch) -> float:
        """Return since when a batch could be delivered (loop time)."""
        since: float = batch.created + self._delivery.config.linger
        if batch.error is None and self._delivery.delivered_at is not None:
            # It stands in a row that moves.
            since = max(since, self._delivery.delivered_at)
        return since

    def _refusals(self, now: float) -> list[Outage]:
        """Return why nothing is delivered though brokers respond; nothing if some has been since
        the others wait."""
        groups: dict[type, list[tuple[ProducerBatch, PartitionQueue]]] = {}
        for batch, queue in self._oldest().values():
            since = self._waits_since(batch)
            is_moving = (self._delivery.delivered_at or 0.0) > since
            if batch.error is None or now - since < LASTING or is_moving:
                return []
            groups.setdefault(type(batch.error), []).append((batch, queue))
        troubles = []
        for entries in groups.values():
            names = named([queue.partition for _, queue in entries])
            since, error = max(self._waits_since(b) for b, _ in entries), entries[0][0].error
            text = f"Nothing is delivered to {names}: {error}"
            troubles.append(Outage(since, (f"Partitions {names}",), error, text))
        return troubles

    def _trouble(self, now: float) -> Outage | None:
        """Return what keeps the producer from sending all that it has, or would have, to send."""
        busy = [node.contact for node in self._nodes.values() if node.is_busy]
        outages = [contact.outage(now) for contact in busy]
        troubles = [outage for outage in outages if outage is not None]
        if busy and len(troubles) == len(busy):
            return joint_outage(troubles)
        if busy and (refusals := self._refusals(now)):
            return joint_outage(refusals)
        failure = self._client.metadata_failure
        if busy or failure is None:
            return None
        heard = max((node.contact.answered_at or 0.0 for node in self._nodes.values()), default=0.0)
        if heard >= failure[0]:
            return None
        text = f"No broker answers: {failure[1]}"
        return Outage(failure[0], ("Every broker",), failure[1], text)
