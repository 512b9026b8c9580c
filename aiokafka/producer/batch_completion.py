"""Complete batches: acknowledge, retry, split, time out, or fail them.

The module is compiled if possible (batch_completion.pxd), because it runs for every record if a
program awaits each `send_and_wait` before the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._health import THROTTLES
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
    ProducerFenced,
    RequestTimedOutError,
    UnknownProducerId,
    for_code,
    renewed,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer.batch import TOO_LARGE, BatchState, ProducerBatch, split_batch
from aiokafka.producer.transaction_manager import (
    MarkerPause,
    ProducerIdState,
    Transaction,
    is_oldest,
)
from aiokafka.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer._metrics import ProducerMeter
    from aiokafka.producer.message_accumulator import MessageAccumulator, PartitionQueue
    from aiokafka.producer.node_sender import ProduceInFlight
    from aiokafka.producer.sender import Sender

__all__ = ["BatchCompletion"]

log = logging.getLogger("aiokafka.producer.producer")

_NOT_DELIVERED = "not delivered: the transaction was aborted; the last attempt failed with: {}"

_BATCH_SETTLED = int(BatchState.SETTLED)  # a C integer in the compiled module
_WRITTEN_CODES = (0, DuplicateSequenceNumber.errno)
_TOO_LARGE_CODES = tuple(error.errno for error in TOO_LARGE)
_GAPS = (OutOfOrderSequenceNumber.errno, UnknownProducerId.errno)
_BAD_SEQUENCE = (*_GAPS, InvalidProducerEpoch.errno)
# Responses to records of a transaction that exceeded its timeout have one of these codes. (Brokers
# without the fix KAFKA-19690 respond to some of these records with INVALID_TXN_STATE. Leaders of
# Apache Kafka replace the coordinator's PRODUCER_FENCED by INVALID_PRODUCER_EPOCH.)
_PAST = (InvalidProducerEpoch.errno, InvalidTxnState.errno, ProducerFenced.errno)


class BatchCompletion:
    """Decides what happens to a batch after a response, a failure, or its timeout. No method waits.

    Owns: whether the producer is idempotent (`id_state`), the events that wake the tasks for
    producer ids and for the coordinator, the time of the last acknowledgement, and the last error.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ProducerConfig,
        accumulator: MessageAccumulator,
        meter: ProducerMeter,
        sender: Sender,
    ) -> None:
        self.client = client
        self.config = config
        self.accumulator = accumulator
        self.pending = accumulator.pending
        self.meter = meter
        self.id_state: ProducerIdState | None = None
        """The producer id and the sequence numbers; None while the producer is not idempotent."""
        self.marker_pause: MarkerPause | None = None
        """The pause at the beginning of a transaction; None for a producer without transactions."""
        self.identity_wanted = asyncio.Event()
        """Set when batches wait for a producer id."""
        self.coordinator_wanted = asyncio.Event()
        """Set when a request to the transaction coordinator is needed: to add the partition of a
        batch, or to find the reason for the error of a leader."""
        self.delivered_at: float | None = None
        """The loop time of the last acknowledgement."""
        self.last_error: tuple[float, BaseException | None] = (0.0, None)
        """The loop time and the error of the last failure to write records; (0.0, None) before a
        failure."""
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._log = SubjectLog(log, config.subject)

    def set_id_state(self, id_state: ProducerIdState) -> None:
        """Make the producer idempotent. Called before the first batch is sent."""
        self.id_state = id_state
        if id_state.transaction is not None:
            self.marker_pause = id_state.transaction.marker_pause

    @property
    def transaction(self) -> Transaction | None:
        """The transaction of all batches; None for a producer without transactions."""
        return None if self.id_state is None else self.id_state.transaction

    def keep_error(self, failure: tuple[float, BaseException | None]) -> None:
        """Set `last_error` to `failure` (loop time, error), unless `last_error` is newer."""
        self.last_error = max(self.last_error, failure, key=lambda one: one[0])

    def request_identity(self) -> None:
        """If a batch waits for a producer id, or for its partition to be added to the transaction,
        wake the task that sends InitProducerId or AddPartitionsToTxn."""
        if self.transaction is not None:
            if self.transaction.wanted:
                self.coordinator_wanted.set()
        elif self.id_state is not None and self.id_state.wants_producer_id:
            self.identity_wanted.set()

    # -- responses

    def on_response(
        self, sent: ProduceInFlight, response: ProduceResponse | None, now: float
    ) -> None:
        """Complete, retry, split or fail the batches of a request, each by its result in the
        response. With acks=0 `response` is None, and all batches count as written. `now` is loop
        time."""
        if response is None:
            for queue, batch in sent.batches:
                self._succeed(queue, batch, None, now)
            return
        if self.marker_pause is not None:
            self.marker_pause.on_response(sent.sent_at, now)
        results = _results_of(sent.request, response)
        for queue, batch in sent.batches:
            result = results.get(queue.partition)
            if result is None:
                where = f"{queue.partition.topic}-{queue.partition.partition}"
                self._retry(queue, batch, KafkaProtocolError(f"{where}: missing in the response"))
            elif result.error_code in _WRITTEN_CODES:
                self._succeed(queue, batch, result, now)
            else:
                self._handle_error(queue, batch, result, response)

    def on_failure(self, sent: ProduceInFlight, error: KafkaError) -> None:
        """Retry the batches of a request that got no response or was not sent; fail them if the
        error is not retriable, or with acks=0."""
        self._refresh_metadata(error)
        if self.transaction is not None:
            partitions = (queue.partition for queue, _ in sent.batches)
            self.transaction.unanswered.add_partitions(partitions)
        # Rejected credentials are retriable, too, because the next connection authenticates again.
        is_retriable = error.retriable or isinstance(error, REFUSALS)
        for queue, batch in sent.batches:
            # With acks=0 there is no response that shows which batches were written, so a retry
            # could write records twice.
            if is_retriable and self.config.acks != 0:
                self._retry(queue, batch, error)
            else:
                self.fail(queue, batch, error)

    def _succeed(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        result: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        self.delivered_at = now
        if self.id_state is not None:
            self.id_state.on_success(queue, batch)
        # If the batch timed out in flight, its futures have failed. Its records are in the log
        # nevertheless, and the sequence continues after these records.
        was_done = batch.is_done
        batch.transition(_BATCH_SETTLED)
        if not was_done:
            if result is None:
                batch.succeed_unacknowledged()
            else:
                # With an error code (DuplicateSequenceNumber), the leader recognized a duplicate,
                # but may not know its offset.
                if result.error_code and batch.attempts == 1:
                    self._log.warning("%r was sent once, but its leader reports a duplicate", batch)
                offset = -1 if result.error_code or result.base_offset < 0 else result.base_offset
                start = result.log_start_offset
                batch.succeed(offset, result.log_append_time_ms, None if start < 0 else start)
        queue.complete(batch)
        if not was_done:
            self.pending.finish(batch)
        self.accumulator.memory.release(batch.release())
        if result is not None and batch.attempts == 1 and batch.builder.is_large:
            batch.builder.recycle()
        if queue.waiting:
            self._send_next(queue)
        if not was_done and self.meter.collector is not None:
            self.meter.completed(batch, self.meter.collector, result is not None)

    def _handle_error(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        result: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """Act on a leader's error for a batch: split a batch that is too large; retry after a
        retriable error, or if only the coordinator knows whether the error is fatal; call
        `_handle_sequence_error` for a sequence error; else fail the batch."""
        error = _batch_error(queue.partition, result)
        # Check the transaction before the error: during an abort no batch is sent again.
        if self._is_late(batch):
            self._retry(queue, batch, error)
            return
        if result.error_code in _TOO_LARGE_CODES and not batch.is_done:
            # Lower the size limit first, because the parts of the split must keep to the new limit.
            self.accumulator.sizing(queue.partition.topic).refuse(batch.builder.compressed_size)
            if self.split(queue, batch):
                return
        if result.error_code in _PAST and self.transaction is not None:
            # Either the producer was fenced, or its transaction exceeded the timeout. The
            # coordinator's response to the next request shows the cause.
            self.transaction.set_doubt(queue.partition, error)
            self.coordinator_wanted.set()
            self._retry(queue, batch, error, pause=False)
        elif self.id_state is not None and self._is_sequence_error(result.error_code):
            self._handle_sequence_error(queue, batch, error, self.id_state)
        elif error.retriable:
            if result.base_offset >= 0:
                batch.mark_appended()
            knows_leader = self._learn_leader(queue, result, response)
            if not knows_leader:
                self._refresh_metadata(error, batch.attempts)
            # The backoff is there to wait for new metadata. Skip it if the response itself has
            # changed the metadata.
            is_prompt = knows_leader and batch.attempts <= MOST_PROMPT_ATTEMPTS
            self._retry(queue, batch, error, pause=not is_prompt)
        else:
            self.fail(
                queue, batch, _final_error(batch, error), _record_errors(batch, error, result)
            )

    def _is_sequence_error(self, code: int) -> bool:
        """Return whether `code` is about the sequence number, epoch or producer id of a batch.

        Azure Event Hubs responds with InvalidProducerIdMapping to a producer id that it no longer
        knows. Apache Kafka uses that code for transactional ids only.
        """
        if code == InvalidProducerIdMapping.errno:
            return self.transaction is None
        return code in _BAD_SEQUENCE

    def _handle_sequence_error(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: BrokerResponseError,
        id_state: ProducerIdState,
    ) -> None:
        """Retry `batch` after a sequence error. Fail it if its records could be written twice, or
        if a gap in a transaction needs a new epoch."""
        is_gap = error.errno == OutOfOrderSequenceNumber.errno
        if error.errno == InvalidProducerIdMapping.errno:
            id_state.discard_producer_id(batch.producer_id)
            if batch.is_doubtful or batch.is_unconfirmed:
                # The batch may have been written under the old id. Leaders would not recognize a
                # retry under the next id as a duplicate.
                self.fail(queue, batch, _forgotten_error(queue.partition))
                return
        if batch.is_doubtful and is_gap and is_oldest(queue, batch):
            self.fail(queue, batch, _doubtful_error(queue.partition, error))
            return
        if self._may_still_be_written(queue, batch, error.errno):
            self.fail(queue, batch, _unresolved_error(queue.partition, error))
            return
        # Do not call `on_gap` for a batch that fails above: it can lead to a new epoch, with which
        # the batches behind the failed batch could be written twice.
        id_state.on_gap(queue, batch)
        if self.transaction is not None and queue.sequence.has_gap:
            # A gap needs a new epoch, which only the coordinator allocates, after an abort.
            self.fail(queue, batch, error)
            return
        if error.errno == InvalidProducerEpoch.errno:
            id_state.discard_producer_id(batch.producer_id)
        self._retry(queue, batch, error)

    def _may_still_be_written(self, queue: PartitionQueue, batch: ProducerBatch, code: int) -> bool:
        """Return whether `batch` may still be written although it was refused as a gap:

        1. Batches 1 and 2 are in flight; the broker has received them, but does not respond.
        2. Batch 1 times out, or is refused when it is sent again. Its first request is still not
           processed.
        3. Batch 2 is sent again on another connection, and refused because batch 1 is missing.
        4. The broker processes the requests of the old connection, and writes both batches.

        If batch 2 were sent with a new epoch between steps 3 and 4, it would be written twice.
        """
        return (
            code in _GAPS
            and queue.sequence.is_unresolved
            and batch.is_unconfirmed
            and is_oldest(queue, batch)
        )

    def _refresh_metadata(self, error: KafkaError, attempts: int = 0) -> None:
        """Request metadata if outdated metadata may have caused `error`."""
        why = f"a produce request failed: {error}"
        # REQUEST_TIMED_OUT: with acks=all the leader waits for the other replicas, and may have
        # lost its connection to them. Request metadata from another broker, which may know a new
        # leader.
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
        """Route `queue` to the new leader in the response (KIP-951), and return True. Return False
        if the response has no leader, or if its leader is not newer than the leader in the
        metadata."""
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
        cluster = self.client.cluster
        if cluster.leader_for_partition(queue.partition) != leader.leader_id:
            return False  # the leader in the response is older than the metadata, or unknown
        # Route at once: metadata listeners run later, and until then the batches would be sent to
        # the old leader.
        self._sender.route(queue, cluster)
        return True

    def _is_late(self, batch: ProducerBatch) -> bool:
        """Return whether the transaction of `batch` is over, or accepts no more records."""
        if self.id_state is None or self.transaction is None:
            return False
        return not self.transaction.accepts_records or self.id_state.is_past(batch)

    def _retry(
        self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, pause: bool = True
    ) -> None:
        """Requeue `batch` for a retry; fail it if its transaction is over or accepts no more
        records.

        A batch that timed out in flight (ABANDONED) is not requeued, because its futures have
        already failed: it becomes SETTLED, and its memory is released. With `pause=False` no
        backoff begins.
        """
        if self._is_late(batch):
            # Fail the batch: neither the abort nor the futures may wait for another attempt.
            failure = self.transaction.error if self.transaction is not None else None
            reason = failure or KafkaError(_NOT_DELIVERED.format(error))
            self.fail(queue, batch, reason, last_error=error)
            return
        self.last_error = (self._loop.time(), error)
        if batch.is_done:
            queue.remove_in_flight(batch)
            self._settle_failed(queue, batch, error)
        else:
            queue.requeue(batch, error)
            self.meter.returned(batch)
            # Back off for the oldest batch only: the batches behind it failed as a consequence.
            if pause and queue.waiting[0] is batch:
                queue.pause(self._loop.time())
        if queue.waiting:
            self._send_next(queue)

    def _send_next(self, queue: PartitionQueue) -> None:
        """Notify the NodeSender of `queue` that a batch waits; without a NodeSender, route the
        queue."""
        if queue.node is None:
            # The partition lost its leader while batches were in flight.
            self._sender.route(queue, self.client.cluster)
        else:
            queue.node.add(queue)

    # -- splits

    def split_unsent(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Split a batch that is too large for a request; return whether it was split.

        A batch with a sequence number may have been in a request before, and is not split: it may
        have been written as a whole, and the leader would not recognize its parts as duplicates. A
        batch with a single record cannot be split.
        """
        return not batch.has_sequence and self.split(queue, batch)

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Split a batch that is too large (KIP-126); return whether it was split.

        1. Batch 2 (sequence numbers 10 to 19) is refused for its size. Batch 3 (20 to 29) is in
           flight, and is refused as a gap.
        2. Batch 2 becomes 2a (10 to 14) and 2b (15 to 19), which take its position in the queue,
           before batch 3. No number is missing between 2b and batch 3, so batch 3 keeps its number.
        3. The parts take over the futures of the records, and the memory of batch 2. Calls of
           `flush` that waited for batch 2 wait for both parts.
        4. If a part is refused, it is split again. A single record fails with the error.

        The caller has lowered the size limit of the topic (`BatchSizing.refuse`), so later batches
        are smaller.
        """
        parts = split_batch(batch, self.accumulator.sizing(batch.partition.topic))
        if not parts:
            return False
        self.pending.replace(batch, parts)
        for part in parts:
            part.reserve(part.builder.size)
        queue.replace(batch, parts)
        # Negative if the additional batch headers make the parts larger than the batch.
        free = batch.release() - sum(part.reserved for part in parts)
        self.accumulator.memory.release(free)
        self.meter.split(batch, parts)
        if queue.node is not None:
            queue.node.add(queue)
        return True

    # -- timeouts and failures

    def expire(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Fail the futures of `batch`, whose delivery timeout is over.

        A waiting batch leaves its queue, and its memory is released. An in-flight batch cannot be
        dropped: the leader may still write the batch, and later batches have the sequence numbers
        after it.

        1. The batch is in flight, and the leader does not respond. The batch times out: its state
           becomes ABANDONED, and its futures fail with an error that mentions that the batch may
           have been written.
        2. The batch stays in `in_flight` and keeps its memory: the connection may still send it.
        3. The response comes. If the batch was written, the sequence continues after the batch as
           usual; only the futures have failed.
        4. If the batch was refused, or the connection is lost, the batch is not sent again, because
           its futures have failed. Then it is uncertain which sequence number the leader expects
           next (see `transaction_manager.py`).
        """
        error = self._timeout_error(queue, batch)
        if batch.state == BatchState.IN_FLIGHT:
            self.abandon(batch, error)
        else:
            self.drop(queue, batch, error)

    def abandon(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail the futures of an in-flight batch with `error`. The batch stays in flight until its
        request has a response or has failed."""
        batch.transition(BatchState.ABANDONED)
        batch.fail_as(lambda _: renewed(error), None)
        if self.transaction is not None:
            batch.mark_retrieved()  # commit_transaction() raises the error
            # A new epoch is not needed yet. If the leader writes the batch, the sequence continues
            # after it; if the batch fails, `_settle_failed` leads to a new epoch. An abort of
            # version 1 waits for the response.
            self.transaction.fail(error)
        self.pending.finish(batch)
        self.meter.failed(batch, error)

    def lacks_leader(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Return whether `batch` waits to be sent, and its partition has no leader."""
        leader = self.client.cluster.leader_for_partition(queue.partition)
        is_known = leader is not None and leader >= 0
        return not is_known and batch.state != BatchState.IN_FLIGHT

    def reason(
        self, queue: PartitionQueue, batch: ProducerBatch
    ) -> tuple[str, BaseException | None]:
        """Return why a batch is not delivered yet: a text, and the error that caused it, if any."""
        cause = batch.error
        leader = self.client.cluster.leader_for_partition(queue.partition)
        if self.lacks_leader(queue, batch):
            reason = "the partition has no leader"
            if cause is not None:
                reason += f"; the last attempt failed with: {cause}"
        elif cause is not None:
            reason = f"the last attempt failed with: {cause}"
        elif (left := self.client.throttled_until(leader) - self._loop.time()) > 0:
            reason = f"the leader {THROTTLES.format(left)}"
        elif batch.state == BatchState.IN_FLIGHT:
            reason = "the broker has not answered"
        elif self.id_state is not None and self.id_state.lacks_id(queue):
            cause = self.id_state.id_error
            reason = f"there is no producer id: {cause or 'no broker has answered'}"
        elif self.transaction is not None and self.transaction.holds(queue.partition):
            reason = "it waits for the coordinator of the transaction"
        elif queue.node is not None and len(queue.node.requests):
            reason = "other records were sent first, and the leader takes records too slowly"
        else:
            reason = "it could not be sent: the leader takes no requests or cannot be reached"
        return reason, cause

    def _timeout_error(self, queue: PartitionQueue, batch: ProducerBatch) -> KafkaTimeoutError:
        topic, number = queue.partition
        limit = self.config.delivery_timeout * 1000
        reason, cause = self.reason(queue, batch)
        if batch.state == BatchState.IN_FLIGHT or batch.is_unconfirmed:
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
        """Remove a waiting batch from its queue, and fail its futures with `error`."""
        if batch.is_done:
            # The caller may fail several batches, and the application's metrics collector is called
            # for each of them. The collector may have called a method that has failed this batch
            # already.
            return
        queue.drop(batch)
        batch.fail_as(lambda _: renewed(error), None)
        self.pending.finish(batch)
        self._settle_failed(queue, batch, error)
        self.meter.failed(batch, error)

    def fail(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: BaseException,
        by_record: Callable[[int], BaseException] | None = None,
        last_error: KafkaError | None = None,
    ) -> None:
        """Remove an in-flight batch, and fail its futures with `error` or, if there is a
        `by_record`, with `by_record(index of the record)`. `last_error`: the error of the last
        attempt, if it differs from `error`."""
        queue.remove_in_flight(batch)
        was_done = batch.is_done
        if not was_done:
            batch.fail_as(by_record or (lambda _: renewed(error)), last_error or error)
            self.pending.finish(batch)
        self._settle_failed(queue, batch, error)
        if queue.waiting:
            self._send_next(queue)
        if not was_done:
            self.meter.failed(batch, error)

    def _settle_failed(
        self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException
    ) -> None:
        """Settle a failed batch that has left its queue: update its sequence and transaction, and
        release its memory."""
        self.last_error = (self._loop.time(), error)
        if self.id_state is not None:
            self.id_state.on_loss(queue, batch, error)
        if self.transaction is not None:
            batch.mark_retrieved()  # commit_transaction() raises the error
        batch.transition(BatchState.SETTLED)
        self.accumulator.memory.release(batch.release())


# -- Results and errors


def _results_of(
    request: ProduceRequest, response: ProduceResponse
) -> dict[tuple[str, int], PartitionProduceResponse]:
    """Return a dict from (topic, partition number) to the result of the partition.

    If a response has several results for a partition, use the first result with an error: otherwise
    records that were not written could be acknowledged.
    """
    names: dict[bytes, str] = {}
    for asked in request.topic_data:
        names[asked.topic_id] = asked.name
    results: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for result in topic.partition_responses:
            key = name, result.index
            if key not in results or not results[key].error_code:
                results[key] = result
    return results


def _batch_error(
    partition: TopicPartition, result: PartitionProduceResponse
) -> BrokerResponseError:
    text = result.error_message or for_code(result.error_code).description
    return for_code(result.error_code)(f"{partition.topic}-{partition.partition}: {text}")


def _final_error(batch: ProducerBatch, error: BrokerResponseError) -> BrokerResponseError:
    """Return the error of a refused batch, with a note if an earlier attempt may have succeeded."""
    # TOO_LARGE does not prove that the earlier attempt failed: the size limit may have been lowered
    # since.
    is_late = batch.is_unconfirmed and isinstance(error, TOO_LARGE)
    if not (is_late or batch.may_be_written(error)):
        return error
    return type(error)(
        f"{error.args[0]} (The response to an earlier request with the records was lost, or left "
        "it open: they may have been written.)"
    )


def _doubtful_error(
    partition: TopicPartition, error: BrokerResponseError
) -> MessageSizeTooLargeError:
    """Return the error of a part of a batch that was refused as too large, but may have been
    written before the size limit was lowered.
    """
    failure = MessageSizeTooLargeError(
        f"{partition.topic}-{partition.partition}: the batch was refused for its size when it was "
        "sent again, but it may have been written the first time"
    )
    failure.__cause__ = error
    return failure


def _forgotten_error(partition: TopicPartition) -> InvalidProducerIdMapping:
    """Return the error for a batch whose producer id the broker has forgotten."""
    return InvalidProducerIdMapping(
        f"{partition.topic}-{partition.partition}: the broker has forgotten the producer id, and "
        "an earlier request got no response: the batch may have been written, and is not sent again"
    )


def _unresolved_error(
    partition: TopicPartition, error: BrokerResponseError
) -> OutOfOrderSequenceNumber:
    """Return the error of a batch that was refused as a gap, because the batch before it failed
    without a known outcome."""
    failure = OutOfOrderSequenceNumber(
        f"{partition.topic}-{partition.partition}: refused, because the broker lacks earlier "
        "records, which expired without a response; all of them may have been written"
    )
    failure.__cause__ = error
    return failure


def _record_errors(
    batch: ProducerBatch, error: BrokerResponseError, result: PartitionProduceResponse
) -> Callable[[int], BaseException] | None:
    """Return a function that creates the error of a record from its index in the batch (KIP-467);
    None if the response lists no rejected records.

    Records that the user put into the batch share one future. For each of their indexes, the error
    is that of the first rejected record among them.
    """
    rejected = {
        entry.batch_index: entry.batch_index_error_message for entry in result.record_errors
    }
    if not rejected:
        return None
    where = f"{batch.partition.topic}-{batch.partition.partition}"
    own = 0 if batch.user_future is None else batch.user_record_count
    first = min((index for index in rejected if index < own), default=-1)

    def make_error(index: int) -> BaseException:
        blamed = first if index < own and first >= 0 else index
        if blamed in rejected:
            reason = rejected[blamed] or result.error_message or "refused"
            subject = f"record {blamed} of the batch: " if index < own else ""
            failure = type(error)(f"{where}: {subject}{reason}")
            failure.record_index = blamed
            return failure
        return type(error)(
            f"{where}: not written, because the broker refused other records of its batch"
        )

    return make_error
