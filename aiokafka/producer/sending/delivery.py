"""Decide what becomes of batches: deliver, send again, split, give up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka._reading import doubts_metadata
from aiokafka._retry import MOST_PROMPT_ATTEMPTS
from aiokafka.errors import (
    BrokerResponseError,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    RequestTimedOutError,
    UnknownProducerId,
    renewed,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer._meter import ProducerMeter
from aiokafka.producer.batches.appender import PartitionQueue
from aiokafka.producer.batches.batch import BatchState, ProducerBatch, split_batch
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.sending.requests import (
    LAST_PLAIN_VERSION,
    Flight,
    batch_error,
    final_error,
    forgotten,
    in_doubt,
    record_errors,
    results_of,
    unresolved,
)
from aiokafka.producer.sending.sequencer import Sequencer, is_oldest
from aiokafka.producer.transactions.state import Transaction
from aiokafka.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from aiokafka.record.compression import codec_id
from aiokafka.structs import BrokerMetadata

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient

__all__ = ["Delivery"]

log = logging.getLogger("aiokafka.producer.producer")

_NOT_DELIVERED = "not delivered: the transaction was aborted; the last attempt failed with: {}"

_TOO_LARGE = (MessageSizeTooLargeError.errno, RecordListTooLargeError.errno)
_GAPS = (OutOfOrderSequenceNumber.errno, UnknownProducerId.errno)
_BAD_SEQUENCE = (*_GAPS, InvalidProducerEpoch.errno)
# Brokers before KAFKA-19690 say the second of some records of a transaction that took too long.
_PAST = (InvalidProducerEpoch.errno, InvalidTxnState.errno)


class Delivery:
    """Decides what becomes of a batch. Nothing here waits.

    Owns: whether the producer is idempotent (`sequencer`), the events that say what batches wait
    for, when a broker last took records, and the last error.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ProducerConfig,
        accumulator: MessageAccumulator,
        meter: ProducerMeter,
        route: Callable[[PartitionQueue], None],
    ) -> None:
        """Begin without idempotence. `route(queue)` assigns a queue to the NodeSender of the leader
        that is known now.
        """
        self.client = client
        self.config = config
        self.accumulator = accumulator
        self.pending = accumulator.pending
        self.meter = meter
        self.sequencer: Sequencer | None = None
        """Numbers the batches; None while the producer is not idempotent."""
        self.codec = codec_id(config.compression_type)
        self.identity_wanted = asyncio.Event()
        """Set when batches wait for a producer id."""
        self.coordinator_wanted = asyncio.Event()
        """Set when batches wait for the transaction's coordinator: it has to add their partition,
        or to tell why a leader refuses them."""
        self.delivered_at: float | None = None
        """When a broker last took records (loop time)."""
        self.last_error: tuple[float, BaseException | None] = (0.0, None)
        """What last prevented records from being written (loop time, error)."""
        self._loop = asyncio.get_running_loop()
        self._log = SubjectLog(log, config.subject)
        self._route = route

    def number_batches(self, sequencer: Sequencer) -> None:
        """Make the producer idempotent, before its first batch is sent."""
        self.sequencer = sequencer

    def keep_error(self, failure: tuple[float, BaseException | None]) -> None:
        """Keep an error of a sender that ends; the last of all errors counts (loop time, error)."""
        self.last_error = max(self.last_error, failure, key=lambda one: one[0])

    @property
    def max_version(self) -> int | None:
        """The newest version of ProduceRequest that may be used, None for no limit.

        Later ones enter the partition into the transaction, which takes version 2 of it (KIP-890).
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
        return self.sequencer is not None or self.config.acks == 0

    def identify(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Give `batch`, the oldest waiting in `queue`, its number before it is sent.

        Returns False if the batch has to wait; what it waits for has been asked for.
        """
        sequencer = self.sequencer
        if sequencer is None or sequencer.identify(queue, batch, self._loop.time()):
            return True
        if self.transaction is not None:
            if self.transaction.wanted:
                self.coordinator_wanted.set()
        elif sequencer.wants_producer_id:
            self.identity_wanted.set()
        return False

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that all batches belong to, None for a producer without them."""
        return None if self.sequencer is None else self.sequencer.transaction

    # -- responses

    def on_response(self, flight: Flight, response: ProduceResponse | None) -> None:
        """Settle the batches of `flight` by the response; None: with acks=0 it was sent."""
        if response is None:
            for queue, batch in flight.cargo:
                self._succeed(queue, batch, None)
            return
        self.meter.responded(flight.sent_at, response.throttle_time_ms)
        results = results_of(flight.request, response)
        for queue, batch in flight.cargo:
            result = results.get(queue.partition)
            if result is None:
                where = f"{queue.partition.topic}-{queue.partition.partition}"
                self._retry(queue, batch, KafkaProtocolError(f"{where}: missing in the response"))
            elif result.error_code in (0, DuplicateSequenceNumber.errno):
                self._succeed(queue, batch, result)
            else:
                self._refuse(queue, batch, result, response)

    def on_failure(self, flight: Flight, error: KafkaError) -> None:
        """Settle the batches of `flight`, which got no response or could not be sent."""
        self._ask_who_leads(error)
        if self.transaction is not None:
            self.transaction.strays.note_records(queue.partition for queue, _ in flight.cargo)
        # Refused credentials: the next connection tries again.
        passes = error.retriable or isinstance(error, REFUSALS)
        for queue, batch in flight.cargo:
            # With acks=0 there is no telling which of the batches on that connection were written.
            if passes and self.config.acks != 0:
                self._retry(queue, batch, error)
            else:
                self.fail(queue, batch, error)

    def _succeed(
        self, queue: PartitionQueue, batch: ProducerBatch, result: PartitionProduceResponse | None
    ) -> None:
        queue.end_flight(batch)
        self.delivered_at = self._loop.time()
        if self.sequencer is not None:
            self.sequencer.on_success(queue, batch)
        queue.end_pause()
        # Given up while it was in flight: its futures have failed, but the sequence counts on from
        # it.
        was_done = batch.is_done
        batch.transition(BatchState.SETTLED)
        if not was_done:
            if result is None:
                batch.succeed_unacknowledged()
            else:
                # A duplicate is written, but the leader may not remember where.
                if result.error_code and batch.attempts == 1:
                    self._log.warning("%r was sent once, and its leader has it already", batch)
                offset = -1 if result.error_code else max(-1, result.base_offset)
                start = result.log_start_offset
                batch.succeed(offset, result.log_append_time_ms, None if start < 0 else start)
            self.pending.finish(batch)
        self.accumulator.release(batch)
        self._look_after(queue)
        if not was_done:
            self.meter.completed(batch, result is not None)

    def _refuse(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        result: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """Find the remedy for an error of the leader, and apply it."""
        error = batch_error(queue.partition, result)
        # Before any remedy: in an abort nothing is sent again, whatever the error.
        if self._is_late(batch):
            self._retry(queue, batch, error)
            return
        if result.error_code in _TOO_LARGE and not batch.is_done:
            # First, because the parts are made by the limit that is learnt here.
            self.accumulator.sizing(queue.partition.topic).refuse(batch.builder.compressed_size)
            if self.split(queue, batch):
                return
        if result.error_code in _PAST and self.transaction is not None:
            # The producer was fenced, or its transaction took too long: the coordinator knows.
            self.transaction.note_doubt(queue.partition, error)
            self.coordinator_wanted.set()
            self._retry(queue, batch, error, pause=False)
        elif self.sequencer is not None and self._is_about_number(result.error_code):
            self._refuse_number(queue, batch, error, self.sequencer)
        elif error.retriable:
            if result.base_offset >= 0:
                batch.note_append()
            is_told = self._learn_leader(queue, result, response)
            if not is_told:
                self._ask_who_leads(error, batch.attempts)
            # The pause is for the metadata to change. Here it has.
            is_prompt = is_told and batch.attempts <= MOST_PROMPT_ATTEMPTS
            self._retry(queue, batch, error, pause=not is_prompt)
        else:
            self.fail(queue, batch, final_error(batch, error), record_errors(batch, error, result))

    def _is_about_number(self, code: int) -> bool:
        """Return whether a code is about the sequence number, epoch or producer id of a batch.

        Azure Event Hubs says that it does not know a producer id (InvalidProducerIdMapping), and
        never knows it again. Apache Kafka has that code for transactional ids only.
        """
        if code == InvalidProducerIdMapping.errno:
            return self.transaction is None
        return code in _BAD_SEQUENCE

    def _refuse_number(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: BrokerResponseError,
        sequencer: Sequencer,
    ) -> None:
        """Send `batch` again after an error about its number; fail it if that could write twice."""
        is_gap = error.errno == OutOfOrderSequenceNumber.errno
        if error.errno == InvalidProducerIdMapping.errno:
            sequencer.discard_producer_id(batch.producer_id)
            if batch.is_doubtful or batch.is_unanswered:
                # It may be written under the former id: the next one would not show it.
                self.fail(queue, batch, forgotten(queue.partition))
                return
        if batch.is_doubtful and is_gap and is_oldest(queue, batch):
            self.fail(queue, batch, in_doubt(queue.partition, error))
            return
        if self._is_too_late_to_say(queue, batch, error.errno):
            self.fail(queue, batch, unresolved(queue.partition, error))
            return
        # After the two above: they keep the epoch as it is, since under the next one the batch
        # could be written twice.
        sequencer.on_gap(queue, batch)
        if self.transaction is not None and queue.sequence.has_gap:
            # Only the coordinator can give a new epoch, after the transaction was aborted.
            self.fail(queue, batch, error)
            return
        if error.errno == InvalidProducerEpoch.errno:
            sequencer.discard_producer_id(batch.producer_id)
        self._retry(queue, batch, error)

    def _is_too_late_to_say(self, queue: PartitionQueue, batch: ProducerBatch, code: int) -> bool:
        """Return whether `batch`, refused as a gap, may be written all the same:

        1. Two batches are in flight; the broker hangs.
        2. The time of the first is over, or it is refused when it comes again. It may be written.
        3. The second is sent again on another connection, and refused: the first is missing.
        4. The broker goes on with what it has received on the old connection, and writes both.

        Sent under a new epoch between 3 and 4, the second would be written twice.
        """
        return (
            code in _GAPS
            and queue.sequence.is_unresolved
            and batch.is_unanswered
            and is_oldest(queue, batch)
        )

    def _ask_who_leads(self, error: KafkaError, attempts: int = 0) -> None:
        """Ask for metadata if what is known may be to blame for `error`."""
        why = f"a produce request failed: {error}"
        # With acks=all one that was cut off waits for the other replicas: they know who leads.
        if isinstance(error, RequestTimedOutError) or doubts_metadata(error, attempts):
            self.client.doubt_metadata(why)
        elif error.invalid_metadata:
            self.client.request_metadata(why)

    def _learn_leader(
        self,
        queue: PartitionQueue,
        result: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> bool:
        """Route `queue` to the leader that the response names (KIP-951); return whether it does."""
        leader = result.current_leader
        asked = queue.in_flight_from
        if leader.leader_id < 0 or asked is None or leader.leader_id == asked.node_id:
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
            return False  # it is older than the metadata, or names an unknown broker
        # Listeners of the metadata run later; until then the batches would go to the old leader.
        self._route(queue)
        return True

    # -- remedies

    def _is_late(self, batch: ProducerBatch) -> bool:
        """Return whether the transaction of `batch` takes no records any more."""
        if self.sequencer is None or self.transaction is None:
            return False
        return not self.transaction.takes_records or self.sequencer.is_past(batch)

    def _retry(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, pause: bool = True
    ) -> None:
        """Send `batch` again in its turn, unless its time is up."""
        if self._is_late(batch):
            # It will not be sent again: neither the abort nor the futures may wait for it.
            failure = self.transaction.error if self.transaction is not None else None
            self.fail(queue, batch, failure or KafkaError(_NOT_DELIVERED.format(error)))
            return
        self.last_error = (self._loop.time(), error)
        if batch.is_done:
            queue.end_flight(batch)
            self._lose(queue, batch, error)
        else:
            queue.put_back(batch, error)
            self.meter.returned(batch)
            # Only the oldest batch counts: those behind it failed because it did.
            if pause and queue.waiting[0] is batch:
                queue.pause(self._loop.time())
        self._look_after(queue)

    def _look_after(self, queue: PartitionQueue) -> None:
        """Send what waits in `queue`, to its leader or as soon as there is one again."""
        if not queue.waiting:
            return
        if queue.node is None:
            # Its leader went away while its batches were in flight.
            self._route(queue)
        else:
            queue.node.add(queue)

    def split_unsent(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Replace a batch that has no room in a request by smaller ones; return whether it was.

        It is not if it is one record, or may have been written as a whole: the leader would not
        recognize its parts as duplicates.
        """
        return not batch.has_identity and self.split(queue, batch)

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Replace a batch that is too large by smaller ones (KIP-126); return whether it was.

        1. Batch 2 (numbers 10 to 19) is refused for its size. Batch 3 (20 to 29) is in flight, and
           comes back as a gap.
        2. Batch 2 becomes 2a (10 to 14) and 2b (15 to 19), which wait in its place, before batch 3.
           Nothing is missing between them and batch 3, so batch 3 keeps its number.
        3. Their futures are those of the records. Calls of `flush` that waited for batch 2 wait for
           both parts, and the parts hold the memory that it held.
        4. A part can be refused as well, and is split again. A single record fails with the error.

        The topic's limit was learnt before (`BatchSizing.refuse`), so later batches are smaller.
        """
        parts = split_batch(batch, self.accumulator.sizing(batch.partition.topic))
        if not parts:
            return False
        self.accumulator.replace(batch, parts)
        queue.replace(batch, parts)
        self.meter.split(batch, parts)
        if queue.node is not None:
            queue.node.add(queue)
        return True

    def expire(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Fail the futures of `batch`, whose time is up.

        A batch that waits leaves its queue, and its memory is free again. One in flight cannot be
        dropped: its request may be written yet, and later batches have the numbers behind it.

        1. The batch is in flight, and the leader does not respond. Its time is up: the state
           becomes ABANDONED, the futures fail, and the error says that it may have been written.
        2. It keeps its place in `in_flight` and its memory, as the connection may still send it.
        3. The response comes. If the batch was written, the sequence counts on from it as usual;
           nothing but its futures was lost.
        4. If it was refused, or the connection is lost, it is not sent again: its records have
           failed already. The sequence is uncertain then (see `sequencer.py`).
        """
        error = self._expiry_error(queue, batch)
        if batch.state == BatchState.IN_FLIGHT:
            self.abandon(batch, error)
        else:
            self.drop(queue, batch, error)

    def abandon(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch in flight; it is settled when its response comes."""
        batch.transition(BatchState.ABANDONED)
        batch.fail(lambda _: renewed(error))
        if self.transaction is not None:
            batch.mark_seen()
            self.transaction.require_new_epoch()
            self.transaction.fail(error)
        self.pending.finish(batch)
        self.meter.failed(batch, error)

    def reason(
        self, queue: PartitionQueue, batch: ProducerBatch
    ) -> tuple[str, BaseException | None]:
        """Return why a batch is not delivered, in words, and the error of the last attempt."""
        cause = batch.error
        if cause is not None:
            reason = f"the last attempt failed with: {cause}"
        elif batch.state == BatchState.IN_FLIGHT:
            reason = "the broker has not answered"
        elif self.client.cluster.leader_for_partition(queue.partition) in (None, -1):
            reason = "the partition has no leader"
        elif self.sequencer is not None and self.sequencer.lacks_id(queue):
            cause = self.sequencer.id_error
            reason = f"there is no producer id: {cause or 'no broker has answered'}"
        elif self.transaction is not None and self.transaction.holds(queue.partition):
            reason = "it waits for the coordinator of the transaction"
        else:
            reason = "it could not be sent: the leader takes no requests or cannot be reached"
        return reason, cause

    def _expiry_error(self, queue: PartitionQueue, batch: ProducerBatch) -> KafkaTimeoutError:
        topic, number = queue.partition
        limit = self.config.delivery_timeout * 1000
        reason, cause = self.reason(queue, batch)
        if batch.state == BatchState.IN_FLIGHT or batch.is_unanswered:
            doubt = "; it may have been written"
        else:
            doubt = "; brokers have refused it each time: it was not written" * bool(batch.attempts)
        error = KafkaTimeoutError(
            f"{topic}-{number}: not delivered within delivery_timeout_ms={limit:g}: {reason}{doubt}"
        )
        error.__cause__ = cause
        return error

    def fail_waiting(self, queue: PartitionQueue, error: BaseException) -> None:
        """Fail every batch of `queue` that is not in flight."""
        for batch in tuple(queue.waiting):
            self.drop(queue, batch, error)

    def drop(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch that waits."""
        if batch.is_done:
            # A collector has dropped it, when another one failed.
            return
        queue.drop(batch)
        batch.fail(lambda _: renewed(error))
        self.pending.finish(batch)
        self._lose(queue, batch, error)
        self.meter.failed(batch, error)

    def fail(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: BaseException,
        by_record: Callable[[int], BaseException] | None = None,
    ) -> None:
        """Fail a batch that was in flight, for good."""
        queue.end_flight(batch)
        was_done = batch.is_done
        if not was_done:
            batch.fail(by_record or (lambda _: renewed(error)))
            self.pending.finish(batch)
        self._lose(queue, batch, error)
        self._look_after(queue)
        if not was_done:
            self.meter.failed(batch, error)

    def _lose(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        """Give up `batch`, which has left its queue: note what follows from that."""
        self.last_error = (self._loop.time(), error)
        if self.sequencer is not None:
            self.sequencer.on_loss(queue, batch, error)
        if self.transaction is not None:
            batch.mark_seen()  # commit_transaction() raises it
        batch.transition(BatchState.SETTLED)
        self.accumulator.release(batch)
