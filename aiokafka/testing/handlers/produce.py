"""Produce and InitProducerId: append record batches, and who numbers them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from aiokafka import errors
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
from aiokafka.testing.actions import CloseConnectionError
from aiokafka.testing.appending import append
from aiokafka.testing.batches import BatchRefusedError
from aiokafka.testing.handlers import handles, refuse, refuses
from aiokafka.testing.handlers._common import check_leader, find_topic, in_version
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Partition, Topic
from aiokafka.testing.transactions import TransactionRefusedError

# -- Produce: append record batches

_ALL = -1
_FIRST_WITH_LEADER = 10  # KIP-951
_FIRST_CAPPED = (3, 9)  # releases that ask for no more replicas in sync than there are


@handles(ProduceRequest)
def produce(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    """Append what can be appended; with acks=all wait for the replicas."""
    if request.acks not in (0, 1, _ALL):
        return refuse_produce(context, request, errors.InvalidRequiredAcksError.errno)
    if any(part.records is None for topic in request.topic_data for part in topic.partition_data):
        return _never()
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
            raise CloseConnectionError  # the only way to tell a client that wants no answer
        return response if context.profile.answers_without_acks else None
    if request.acks == _ALL and not _is_replicated(context, request, response):
        return _await_replicas(context, request, response)
    _add_endpoints(context, response)
    return response


async def _never() -> ProduceResponse:
    """Wait for ever: a broker fails inside on a partition without records, and the connection stays
    mute.
    """
    waiting: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    return await waiting


@refuses(ProduceRequest)
def refuse_produce(context: RequestContext, request: ProduceRequest, errno: int) -> ProduceResponse:
    """Return a response with `errno` for every partition. The connection of a producer without acks
    is closed instead.
    """
    if request.acks == 0:
        raise CloseConnectionError
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[
                    _refused_partition(part.index, errno) for part in data.partition_data
                ],
            )
            for data in request.topic_data
        ]
    )


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
        appended = append(context, topic, partition, data.records or b"", request.transactional_id)
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
    if context.profile.release >= _FIRST_CAPPED:
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
    """Tell where the leaders are that were named (KIP-951)."""
    if context.api_version < _FIRST_WITH_LEADER:
        return
    leaders = {
        p.current_leader.leader_id for t in response.responses for p in t.partition_responses
    }
    response.node_endpoints = [
        NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in context.state.nodes.values()
        if node.node_id in leaders
    ]


def _is_replicated(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse
) -> bool:
    """Return whether all replicas in sync have all that was written, as is usual."""
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
    """Wait until the high watermark has passed what was written, or answer REQUEST_TIMED_OUT."""
    deadline = context.received_at + request.timeout_ms / 1000
    written = []
    for data, topic in zip(request.topic_data, response.responses, strict=True):
        found = find_topic(context, data.name, data.topic_id)
        for answer in topic.partition_responses:
            if not answer.error_code and found is not None:
                partition = found.partitions[answer.index]
                # Of now: another may lead the second while the first is waited for.
                written.append((answer, found, partition, partition.log, partition.leader_epoch))
    for answer, found, partition, log, epoch in written:
        errno = await _replicated(context, partition, log, epoch, answer.base_offset, deadline)
        if not errno and _lacks_replicas(context, found, partition):
            errno = errors.NotEnoughReplicasAfterAppendError.errno
        answer.error_code = errno  # with the offset, for it is written all the same
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
    """Return the error code for records that stand at `offset` of the log of a leader of `epoch`,
    once it is certain.
    """
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    timer = loop.call_at(deadline, changed.set)
    log.subscribe(changed.set)
    try:
        while True:
            # Before the high watermark: that of a log which was cut, and follows another leader
            # now, counts other records.
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


# -- InitProducerId: an id for idempotence, or a new session of a transactional id

_FIRST_FENCED = 4


@handles(InitProducerIdRequest, refusal={"producer_epoch": -1})
def init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a producer id: always a new one without a transactional id, else that of its
    session.
    """
    transactional_id = request.transactional_id
    if transactional_id is None:
        return InitProducerIdResponse(
            throttle_time_ms=0, producer_id=next(context.state.next_producer_id), producer_epoch=0
        )
    if transactional_id == "":
        return refuse(context, request, errors.InvalidRequestError.errno)
    transactions = context.services.transactions
    errno = transactions.check_coordinator(context.node_id, transactional_id)
    if errno:
        return refuse(context, request, errno)
    timeout = request.transaction_timeout_ms / 1000
    try:
        producer_id, epoch = transactions.init(
            transactional_id, timeout, request.producer_id, request.producer_epoch
        )
    except TransactionRefusedError as exc:
        return refuse(context, request, in_version(context, exc.errno, _FIRST_FENCED))
    return InitProducerIdResponse(throttle_time_ms=0, producer_id=producer_id, producer_epoch=epoch)
