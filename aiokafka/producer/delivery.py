"""Settle batches: deliver, send again, split, give up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._backoff import Backoff
from aiokafka._discovery import REFUSALS
from aiokafka.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    UnknownProducerId,
    renewed,
)
from aiokafka.producer._append import PartitionQueue
from aiokafka.producer._requests import (
    LAST_PLAIN_VERSION,
    batch_error,
    in_doubt,
    record_errors,
    results_of,
    unresolved,
)
from aiokafka.producer._split import split_batch
from aiokafka.producer.batch import BatchState, ProducerBatch
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.transaction_manager import TransactionManager, is_oldest
from aiokafka.producer.transaction_state import Transaction
from aiokafka.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from aiokafka.record.compression import codec_id
from aiokafka.structs import BrokerMetadata

if TYPE_CHECKING:
    from aiokafka._config import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.node_sender import Flight

__all__ = ["Delivery"]

# After so many attempts there is a pause before the next, even if the answer told the new leader:
# leaders that name each other would be asked without end as fast as they answer.
_MOST_PROMPT_ATTEMPTS = 3

_NOT_DELIVERED = "not delivered: the transaction was aborted; the last attempt failed with: {}"

_TOO_LARGE = (MessageSizeTooLargeError.errno, RecordListTooLargeError.errno)
_BAD_SEQUENCE = (
    OutOfOrderSequenceNumber.errno,
    UnknownProducerId.errno,
    InvalidProducerEpoch.errno,
)
_GAPS = (OutOfOrderSequenceNumber.errno, UnknownProducerId.errno)


class Delivery:
    """Decides what becomes of a batch. Nothing here waits.

    Changes batches and queues on behalf of the NodeSenders; owns nothing but the switch `manager`:
    None while the producer is not idempotent.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ProducerConfig,
        accumulator: MessageAccumulator,
        route: Callable[[PartitionQueue], None],
    ) -> None:
        """`route(queue)` hands a queue to the NodeSender of its leader as it is known now."""
        self.client = client
        self.config = config
        self.accumulator = accumulator
        self.manager: TransactionManager | None = None
        self.codec = codec_id(config.compression_type)
        self.identity_wanted = asyncio.Event()
        """Set when batches wait for a producer id."""
        self.coordinator_wanted = asyncio.Event()
        """Set when batches wait for what the transaction's coordinator has to say: their partition
        is not part of the transaction, or a leader takes no more of it."""
        self.delivered_at: float | None = None
        """When a broker last took records (loop time)."""
        self.last_error: tuple[float, BaseException | None] = (0.0, None)
        """What last kept records from being written (loop time, error)."""
        self._loop = asyncio.get_running_loop()
        self._route = route

    @property
    def max_version(self) -> int | None:
        """The newest version of ProduceRequest that may be used, None for no limit.

        Later ones enter the partition into the transaction, which takes version 2 of them
        (KIP-890).
        """
        transaction = self.transaction
        if transaction is None or transaction.is_version_2:
            return None
        return LAST_PLAIN_VERSION

    @property
    def is_pipelined(self) -> bool:
        """Whether several batches of a partition may be in flight.

        Without sequence numbers a failed batch would be sent again behind those after it. With
        acks=0 nothing is ever sent again.
        """
        return self.manager is not None or self.config.acks == 0

    def identify(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Number `batch`, the oldest waiting in `queue`, before it is sent; False if it has to
        wait.
        """
        manager = self.manager
        if manager is None or manager.identify(queue, batch):
            return True
        if self.transaction is not None:
            if self.transaction.wanted:
                self.coordinator_wanted.set()
        elif manager.wants_producer_id:
            self.identity_wanted.set()
        return False

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that all batches belong to, None for a producer without them."""
        return None if self.manager is None else self.manager.transaction

    # -- answers

    def on_response(self, flight: Flight, response: ProduceResponse | None) -> None:
        """The request of `flight` was answered; None: it was sent, with acks=0."""
        if response is None:
            for queue, batch in flight.cargo:
                self._succeed(queue, batch, None)
            return
        results = results_of(flight.request, response)
        for queue, batch in flight.cargo:
            result = results.get(queue.partition)
            if result is None:
                where = f"{queue.partition.topic}-{queue.partition.partition}"
                self._retry(queue, batch, KafkaProtocolError(f"{where}: missing in the answer"))
            elif result.error_code in (0, DuplicateSequenceNumber.errno):
                self._succeed(queue, batch, result)
            else:
                self._refuse(queue, batch, result, response)

    def on_failure(self, flight: Flight, error: KafkaError) -> None:
        """The request of `flight` got no answer, or could not be sent."""
        if error.invalid_metadata:
            self.client.request_metadata(f"a produce request failed: {error}")
        # Refused credentials are for the next connection to try again.
        passes = error.retriable or isinstance(error, REFUSALS)
        for queue, batch in flight.cargo:
            if passes and self.config.acks != 0:
                self._retry(queue, batch, error)
            else:
                self.fail(queue, batch, error)

    def _succeed(
        self, queue: PartitionQueue, batch: ProducerBatch, result: PartitionProduceResponse | None
    ) -> None:
        queue.in_flight.remove(batch)
        self.delivered_at = self._loop.time()
        if self.manager is not None:
            self.manager.on_success(queue, batch)
        queue.retry_at = 0.0
        if queue.backoff is not None:
            queue.backoff.reset()
        was_done = batch.is_done
        batch.transition(BatchState.SETTLED)
        if not was_done:
            if result is None:
                batch.succeed_unacknowledged()
            else:
                offset = -1 if result.error_code else max(-1, result.base_offset)
                start = result.log_start_offset
                batch.succeed(offset, result.log_append_time_ms, None if start < 0 else start)
            self.accumulator.finish(batch)
        self.accumulator.release(batch)
        self._look_after(queue)

    def _refuse(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        result: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """The leader answered with an error: find the remedy."""
        error = batch_error(queue.partition, result)
        if self._is_late():
            self._retry(queue, batch, error)
            return
        if result.error_code in _TOO_LARGE and not batch.is_done:
            self.accumulator.sizing(queue.partition.topic).refuse(batch.builder.compressed_size)
            if self.split(queue, batch):
                return
        if result.error_code == InvalidProducerEpoch.errno and self.transaction is not None:
            # The producer was fenced, or its transaction took too long: the coordinator knows.
            self.transaction.doubt = error
            self.coordinator_wanted.set()
            self._retry(queue, batch, error, pause=False)
        elif result.error_code in _BAD_SEQUENCE and self.manager is not None:
            is_gap = result.error_code == OutOfOrderSequenceNumber.errno
            if batch.is_doubtful and is_gap and is_oldest(queue, batch):
                self.fail(queue, batch, in_doubt(queue.partition, error))
                return
            if self._is_too_late_to_say(queue, batch, result.error_code):
                self.fail(queue, batch, unresolved(queue.partition, error))
                return
            self.manager.on_gap(queue, batch)
            if self.transaction is not None and queue.sequence.has_gap:
                # Only the coordinator can give a new epoch, after the transaction was aborted.
                self.fail(queue, batch, error)
                return
            if result.error_code == InvalidProducerEpoch.errno:
                self.manager.discard_producer_id(batch.producer_id)
            self._retry(queue, batch, error)
        elif error.retriable:
            is_told = self._learn_leader(queue, result, response)
            if error.invalid_metadata and not is_told:
                self.client.request_metadata(f"{error}")
            is_prompt = is_told and batch.attempts <= _MOST_PROMPT_ATTEMPTS
            self._retry(queue, batch, error, pause=not is_prompt)
        else:
            self.fail(queue, batch, error, record_errors(queue.partition, error, result))

    def _is_too_late_to_say(self, queue: PartitionQueue, batch: ProducerBatch, code: int) -> bool:
        """Whether `batch`, refused for what is missing before it, may be written all the same:

        1. Two batches are on their way; the broker hangs.
        2. The time of the first is over, and nothing tells whether it will be written.
        3. The second is sent again on another connection, and refused: the first is missing.
        4. The broker gets to what it has received on the old connection, and writes both.

        Sent under a new epoch between 3 and 4, the second would be written twice.
        """
        return (
            code in _GAPS
            and queue.sequence.is_unresolved
            and batch.attempts > 1
            and is_oldest(queue, batch)
        )

    def _learn_leader(
        self,
        queue: PartitionQueue,
        result: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> bool:
        """Take the new leader from an answer (KIP-951) and turn to it; whether it tells one."""
        leader = result.current_leader
        if leader.leader_id < 0 or leader.leader_id == queue.in_flight_from.node_id:
            return False
        endpoint = next(
            (
                BrokerMetadata(node.node_id, node.host, node.port, node.rack)
                for node in response.node_endpoints
                if node.node_id == leader.leader_id
            ),
            None,
        )
        self.client.update_leader(queue.partition, leader.leader_id, leader.leader_epoch, endpoint)
        if self.client.cluster.leader_for_partition(queue.partition) != leader.leader_id:
            return False  # it is older than what is known, or names an unknown broker
        # Others hear of it later; until then the batches would go to the old leader again.
        self._route(queue)
        return True

    # -- remedies

    def _is_late(self) -> bool:
        """Whether the transaction takes no records any more."""
        return self.transaction is not None and not self.transaction.takes_records

    def _retry(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, pause: bool = True
    ) -> None:
        """Send `batch` again in its turn, unless its time is up."""
        if self._is_late():
            # Nobody will send it again: the abort must not wait for it, nor those who sent it.
            failure = self.transaction.error if self.transaction is not None else None
            self.fail(queue, batch, failure or KafkaError(_NOT_DELIVERED.format(error)))
            return
        queue.in_flight.remove(batch)
        self.last_error = (self._loop.time(), error)
        if batch.is_done:
            self._lose(queue, batch, error)
        else:
            batch.error = error
            batch.transition(BatchState.SEALED)
            queue.put_back(batch)
            now = self._loop.time()
            # Only the oldest counts: those behind it failed because it did.
            if pause and queue.waiting[0] is batch and queue.retry_at <= now:
                queue.retry_at = now + self._backoff(queue).next()
        self._look_after(queue)

    def _look_after(self, queue: PartitionQueue) -> None:
        """Have what waits in `queue` sent, by its leader or as soon as it has one again."""
        if not queue.waiting:
            return
        if queue.node is None:
            # Its leader went away while its batches were in flight.
            self._route(queue)
        else:
            queue.node.add(queue)

    def _backoff(self, queue: PartitionQueue) -> Backoff:
        if queue.backoff is None:
            client = self.config.client
            queue.backoff = Backoff(client.retry_backoff, client.retry_backoff_max)
        backoff: Backoff = queue.backoff
        return backoff

    def split_unsent(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Replace a batch that has no room in a request by smaller ones; False if it is one record,
        or may be written already as a whole: the leader would not know its parts again.
        """
        return not batch.has_identity and self.split(queue, batch)

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Replace a batch that is too large by smaller ones at its place (KIP-126); False if it is
        one record.

        The parts keep the sequence numbers of the whole, so nothing is missing between them.
        """
        parts = split_batch(batch, self.accumulator.sizing(batch.partition.topic))
        if not parts:
            return False
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        else:
            queue.waiting.remove(batch)
        self.accumulator.replace(batch, parts)
        batch.transition(BatchState.SETTLED)
        if batch.has_identity:
            for part in parts:
                queue.put_back(part)
        else:
            queue.waiting.extendleft(reversed(parts))
        if queue.node is not None:
            queue.node.add(queue)
        return True

    def expire(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The time of `batch` is up: fail its futures. What is in flight stays, its answer is of
        use.
        """
        error = self._expiry_error(queue, batch)
        if batch.state == BatchState.IN_FLIGHT:
            self.abandon(batch, error)
        else:
            self.drop(queue, batch, error)

    def abandon(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch in flight; it is settled when its answer comes."""
        batch.transition(BatchState.ABANDONED)
        batch.fail(lambda _: renewed(error))
        if self.transaction is not None:
            batch.mark_seen()
            self.transaction.needs_new_epoch = True
            self.transaction.fail(error)
        self.accumulator.finish(batch)

    def _expiry_error(self, queue: PartitionQueue, batch: ProducerBatch) -> KafkaTimeoutError:
        topic, number = queue.partition
        limit = self.config.delivery_timeout * 1000
        if batch.error is not None:
            reason = f"the last attempt failed with: {batch.error}"
        elif batch.state == BatchState.IN_FLIGHT:
            reason = "the broker has not answered"
        elif self.client.cluster.leader_for_partition(queue.partition) in (None, -1):
            reason = "the partition has no leader"
        else:
            reason = "it could not be sent: the leader takes no requests or cannot be reached"
        doubt = "; it may have been written" if batch.attempts else ""
        error = KafkaTimeoutError(
            f"{topic}-{number}: not delivered within delivery_timeout_ms={limit:g}: {reason}{doubt}"
        )
        error.__cause__ = batch.error
        return error

    def fail_waiting(self, queue: PartitionQueue, error: BaseException) -> None:
        """Fail every batch of `queue` that is not in flight."""
        for batch in tuple(queue.waiting):
            self.drop(queue, batch, error)

    def drop(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch that waits."""
        if batch is queue.open:
            queue.open = None
        queue.waiting.remove(batch)
        if queue.node is not None and not queue.waiting:
            queue.node.discard(queue)
        batch.fail(lambda _: renewed(error))
        self.accumulator.finish(batch)
        self._lose(queue, batch, error)

    def fail(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: BaseException,
        by_record: Callable[[int], BaseException] | None = None,
    ) -> None:
        """Fail a batch that was in flight, for good."""
        queue.in_flight.remove(batch)
        if not batch.is_done:
            batch.fail(by_record or (lambda _: renewed(error)))
            self.accumulator.finish(batch)
        self._lose(queue, batch, error)
        self._look_after(queue)

    def _lose(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        """Nothing more can be done for `batch`."""
        self.last_error = (self._loop.time(), error)
        if self.manager is not None:
            self.manager.on_loss(queue, batch, error)
        if self.transaction is not None:
            batch.mark_seen()  # commit_transaction() raises it
        batch.transition(BatchState.SETTLED)
        self.accumulator.release(batch)
