"""Produce and InitProducerId: append record batches, and assign producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from aiokafka import _clock, errors
from aiokafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    InitProducerIdRequest,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aiokafka.testing.actions import CloseConnectionError, RefusedError
from aiokafka.testing.batches import (
    Batch,
    BatchRefusedError,
    Buffer,
    build_batch,
    check_from_client,
    decode_records,
    from_message_set,
    parse,
    with_producer,
)
from aiokafka.testing.handlers import handles, refuse, refuse_items, refuses, require
from aiokafka.testing.handlers._common import check_leader, find_topic, in_version, leader_endpoints
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Partition, Topic
from aiokafka.testing.transactions import TransactionRefusedError

_ALL = -1
_FIRST_WITH_LEADER = 10  # first version whose response has the current leader (KIP-951)
_FIRST_CAPPING = (3, 9)  # first release that caps min.insync.replicas at the number of replicas


@handles(ProduceRequest, refusal={"base_offset": -1})
def produce(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    """Append the batches. With acks=all, wait for the in-sync replicas; with acks=0, return no
    response, or close the connection after an error."""
    if request.acks not in (0, 1, _ALL):
        return refuse_produce(context, request, errors.InvalidRequiredAcksError.errno)
    if any(part.records is None for topic in request.topic_data for part in topic.partition_data):
        return _no_response()
    response = ProduceResponse(responses=[])
    for data in request.topic_data:
        topic = find_topic(context, data.name, data.topic_id)
        answers = [_append(context, request, topic, part) for part in data.partition_data]
        if topic is None and context.api_version >= 13:
            for answer in answers:
                answer.error_code = errors.UnknownTopicId.errno
        response.responses.append(
            TopicProduceResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=answers
            )
        )
    if request.acks == 0:
        if any(answer.error_code for t in response.responses for answer in t.partition_responses):
            raise CloseConnectionError  # the only way to report an error with acks=0
        return response if context.profile.answers_without_acks else None
    if request.acks == _ALL and not _is_replicated(context, request, response):
        return _await_replicas(context, request, response)
    _add_endpoints(context, response)
    return response


async def _no_response() -> ProduceResponse:
    """Wait forever, in place of a response to a Produce request with null records: a real broker
    fails internally at such a request, and sends no response."""
    waiting: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    return await waiting


@refuses(ProduceRequest)
def refuse_produce(context: RequestContext, request: ProduceRequest, errno: int) -> ProduceResponse:
    """Return a response with `errno` for every partition; with acks=0, close the connection."""
    if request.acks == 0:
        raise CloseConnectionError
    return refuse_items(context, request, errno)


def _refused_partition(
    index: int, errno: int, message: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=errno, base_offset=-1, error_message=message
    )


def _append(
    context: RequestContext,
    request: ProduceRequest,
    topic: Topic | None,
    data: PartitionProduceData,
) -> PartitionProduceResponse:
    partition = None if topic is None else context.state.partition(topic.name, data.index)
    errno = check_leader(context, partition)
    if errno or topic is None or partition is None:
        return _not_leader(context, data.index, errno, partition)
    if request.acks == _ALL and _lacks_replicas(context, topic, partition):
        return _refused_partition(data.index, errors.NotEnoughReplicasError.errno)
    try:
        appended = _append_batch(
            context, topic, partition, data.records or b"", request.transactional_id
        )
    except BatchRefusedError as exc:
        refused = _refused_partition(data.index, exc.errno, exc.message)
        refused.log_start_offset = partition.log.start_offset if exc.in_log else -1
        refused.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
            for index, reason in exc.blamed.items()
        ]
        return refused
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=partition.log.start_offset,
    )


def _lacks_replicas(context: RequestContext, topic: Topic, partition: Partition) -> bool:
    needed = int(topic.setting("min.insync.replicas"))
    if context.profile.release >= _FIRST_CAPPING:
        needed = min(needed, len(partition.replicas))
    return len(context.state.isr(partition)) < needed


def _not_leader(
    context: RequestContext, index: int, errno: int, partition: Partition | None
) -> PartitionProduceResponse:
    response = _refused_partition(index, errno)
    if partition is not None and context.api_version >= _FIRST_WITH_LEADER:
        response.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return response


def _add_endpoints(context: RequestContext, response: ProduceResponse) -> None:
    """Add the addresses of the leaders in the response (KIP-951)."""
    if context.api_version >= _FIRST_WITH_LEADER:
        partitions = (part for topic in response.responses for part in topic.partition_responses)
        response.node_endpoints = leader_endpoints(context, NodeEndpoint, partitions)


def _is_replicated(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse
) -> bool:
    """Return whether all in-sync replicas have the batches, so that no wait is needed."""
    for data, topic in zip(request.topic_data, response.responses, strict=True):
        found = find_topic(context, data.name, data.topic_id)
        for answer in topic.partition_responses:
            if answer.error_code or found is None:
                continue
            if found.partitions[answer.index].log.high_watermark <= answer.base_offset:
                return False
    return True


async def _await_replicas(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse
) -> ProduceResponse:
    """Wait until the high watermark passes the appended batches; return the response, with an
    error for each partition that is not replicated within the timeout of the request.
    """
    deadline = context.received_at + request.timeout_ms / 1000
    written = []
    for data, topic in zip(request.topic_data, response.responses, strict=True):
        found = find_topic(context, data.name, data.topic_id)
        for answer in topic.partition_responses:
            if not answer.error_code and found is not None:
                partition = found.partitions[answer.index]
                # Read the epoch before the waits below, during which the leader may change.
                written.append((answer, found, partition, partition.log, partition.leader_epoch))
    for answer, found, partition, log, epoch in written:
        errno = await _replicated(context, partition, log, epoch, answer.base_offset, deadline)
        if not errno and _lacks_replicas(context, found, partition):
            errno = errors.NotEnoughReplicasAfterAppendError.errno
        answer.error_code = errno  # the offset stays in the response: the batch is written
    _add_endpoints(context, response)
    return response


async def _replicated(
    context: RequestContext,
    partition: Partition,
    log: PartitionLog,
    epoch: int,
    offset: int,
    deadline: float,
) -> int:
    """Wait until the batch at `offset`, which was written in the leader epoch `epoch`, is
    replicated. Return 0, or the error code if the leader changes or `deadline` passes.
    """
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    timer = loop.call_at(deadline, changed.set)
    log.subscribe(changed.set)
    try:
        while True:
            # Check the leader before the high watermark: after a change of the leader, this log may
            # have other records at these offsets.
            now = context.state.partition(partition.topic, partition.index)
            if now is None:
                return errors.UnknownTopicOrPartitionError.errno
            if (now.leader, now.leader_epoch) != (context.node_id, epoch):
                return errors.NotLeaderForPartitionError.errno
            if log.high_watermark > offset:
                return 0
            if deadline <= loop.time():
                return errors.RequestTimedOutError.errno
            await changed.wait()
            changed.clear()
    finally:
        timer.cancel()
        log.unsubscribe(changed.set)


# -- Appending: check, recompress and append batches


_ZSTD = 4
_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_FIRST_BATCH_V2 = 3  # Produce versions; earlier versions have message sets of magic 0 and 1
_FIRST_ZSTD = 7
_AFTER_MAX = "message.timestamp.after.max.ms"
_FIRST_WITH_ONE_HOUR = (4, 0)  # first release in which `_AFTER_MAX` is one hour (KIP-1030)
_FOREVER = 2**63 - 1
_FIRST_ACCEPTING_UNKNOWN = (2, 5)  # first release that accepts unknown producer ids (KIP-360)


@dataclass(frozen=True)
class _Appended:
    """The offset and time of an appended batch, for the response."""

    base_offset: int
    append_time: int
    """Time of the append in milliseconds with ``LogAppendTime``, else -1. For a duplicate, the
    greatest timestamp of its records, as in Kafka.
    """


def _append_batch(
    context: RequestContext,
    topic: Topic,
    partition: Partition,
    data: Buffer,
    transactional_id: str | None,
) -> _Appended:
    """Check and append the batches for one partition.

    A duplicate of one of the producer's last five batches is not appended again.

    Raises:
        BatchRefusedError: a batch is rejected, and nothing was appended.
    """
    batches = _batches(context, data)
    append_time = None
    if topic.setting("message.timestamp.type") == "LogAppendTime":
        append_time = int(_clock.wall_time() * 1000)
    for batch in batches:
        _check(context, topic, batch)
    first = batches[0]
    if first.producer_id >= 0:
        context.services.check_transaction(context, partition, first, transactional_id)
        known = partition.log.producers.duplicate(first)
        if known is not None:
            return _Appended(known.base_offset, known.max_timestamp)
        partition.log.producers.check(first, unknown_producer=_unknown_producer(context, first))
    base_offset = partition.log.end_offset
    for batch in (_recompressed(topic, batch) for batch in batches):
        partition.log.add(batch, append_time=append_time)
    return _Appended(base_offset, -1 if append_time is None else append_time)


def _unknown_producer(context: RequestContext, batch: Batch) -> int:
    """Return the error code for a batch of an unknown producer id that does not begin at sequence
    0; 0 if the release accepts the batch.
    """
    if context.profile.release < _FIRST_ACCEPTING_UNKNOWN:
        return errors.UnknownProducerId.errno
    if batch.is_transactional and context.services.adds_partitions(context):
        return errors.OutOfOrderSequenceNumber.errno
    return 0


def _batches(context: RequestContext, data: Buffer) -> list[Batch]:
    if context.api_version < _FIRST_BATCH_V2:
        data = from_message_set(data)
    batches = parse(data)
    if context.api_version >= _FIRST_BATCH_V2 and len(batches) != 1:
        raise BatchRefusedError(
            errors.InvalidRecord,
            f"{len(batches)} record batches came, exactly one is required",
        )
    return batches


def _check(context: RequestContext, topic: Topic, batch: Batch) -> None:
    check_from_client(batch)
    if batch.size > int(topic.setting("max.message.bytes")):
        raise BatchRefusedError(
            errors.MessageSizeTooLargeError,
            f"The record batch size in the append to {topic.name} is {batch.size} bytes which "
            f"exceeds the maximum configured value of {topic.setting('max.message.bytes')}.",
        )
    allowed = context.profile.compressions
    if allowed is not None and batch.codec not in (0, *allowed):
        raise BatchRefusedError(
            errors.UnsupportedForMessageFormatError, "the compression type is not supported"
        )
    if batch.codec == _ZSTD and _FIRST_BATCH_V2 <= context.api_version < _FIRST_ZSTD:
        raise BatchRefusedError(
            errors.UnsupportedCompressionType, "zstd needs Produce version 7 or higher"
        )
    _check_records(topic, batch, _times_allowed(context.profile.release, topic))


def _recompressed(topic: Topic, batch: Batch) -> Batch:
    """Return the batch, compressed again if the topic's ``compression.type`` names another
    compression type."""
    codec = _CODECS.get(topic.setting("compression.type"))
    if codec is None or codec == batch.codec:
        return batch
    found = decode_records(batch.data, topic.name, 0, batch.base_offset)
    items = [(r.timestamp, r.key, r.value, r.headers) for r in found]
    return with_producer(parse(build_batch(items, codec=codec))[0], batch, batch.base_sequence)


def _times_allowed(release: tuple[int, ...], topic: Topic) -> tuple[int, int]:
    """Return the earliest and the latest timestamp, in milliseconds, that the topic allows."""
    if topic.setting("message.timestamp.type") != "CreateTime":
        return -_FOREVER, _FOREVER
    now = int(_clock.wall_time() * 1000)
    after = int(topic.setting(_AFTER_MAX))
    if _AFTER_MAX not in topic.config and release < _FIRST_WITH_ONE_HOUR:
        after = _FOREVER
    return now - int(topic.setting("message.timestamp.before.max.ms")), now + after


def _check_records(topic: Topic, batch: Batch, times: tuple[int, int]) -> None:
    """Raise BatchRefusedError if the topic is compacted and records have no key, or if timestamps
    are not between the two `times`. The error lists all such records."""
    earliest, latest = times
    needs_keys = "compact" in topic.setting("cleanup.policy")
    if not needs_keys and earliest < 0 and batch.max_timestamp <= latest:
        return
    no_key = f"Compacted topic cannot accept message without key in topic {topic.name}."
    errno, blamed = errors.InvalidRecord.errno, {}
    found = decode_records(batch.data, topic.name, 0, batch.base_offset)
    for index, record in enumerate(found):
        time = record.timestamp
        if needs_keys and record.key is None:
            blamed[index] = no_key
        elif time >= 0 and not earliest <= time <= latest:
            errno = errors.InvalidTimestampError.errno
            blamed[index] = f"Timestamp {time} is out of range."
    if blamed:
        raise BatchRefusedError(
            errno,
            f"One or more records have been rejected due to {len(blamed)} record errors, the first "
            f"of which is: {next(iter(blamed.values()))}",
            in_log=True,
            blamed=blamed,
        )


_FIRST_FENCED = 4


@handles(InitProducerIdRequest, refusal={"producer_epoch": -1})
def init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a new producer id. For a transactional id, begin a new epoch, and return the producer
    id and the epoch."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        return InitProducerIdResponse(
            throttle_time_ms=0, producer_id=next(context.state.next_producer_id), producer_epoch=0
        )
    if transactional_id == "":
        raise RefusedError(errors.InvalidRequestError)
    transactions = context.services.transactions
    require(transactions.check_coordinator(context.node_id, transactional_id))
    timeout = request.transaction_timeout_ms / 1000
    try:
        producer_id, epoch = transactions.init(
            transactional_id, timeout, request.producer_id, request.producer_epoch
        )
    except TransactionRefusedError as exc:
        return refuse(context, request, in_version(context, exc.errno, _FIRST_FENCED))
    return InitProducerIdResponse(throttle_time_ms=0, producer_id=producer_id, producer_epoch=epoch)
