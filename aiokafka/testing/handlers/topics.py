"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords and DescribeTopicPartitions."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from aiokafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Cursor,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing.handlers import handles, refuses
from aiokafka.testing.handlers._common import (
    authorized_operations,
    await_controller,
    check_leader,
    over_quota,
    per_partition,
)
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import TOPIC_DEFAULTS
from aiokafka.testing.state import ClusterState, Partition, Topic, TopicRefusedError

_FIRST_DEFAULTS = 4
_FIRST_QUOTA_CREATE = 6
_FROM_TOPIC, _FROM_DEFAULT = 1, 5


@handles(CreateTopicsRequest, refusal={"error_message": None})
async def create_topics(
    context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create each topic; with `validate_only`, only check it."""
    await await_controller(context, request.timeout_ms / 1000)
    names = [topic.name for topic in request.topics]
    return CreateTopicsResponse(
        topics=[
            _twice(topic) if names.count(topic.name) > 1 else _create_topic(context, request, topic)
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
    )


def _twice(topic: CreatableTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        error_code=errors.InvalidRequestError.errno,
        error_message="Duplicate topic name.",
    )


def _create_topic(
    context: RequestContext, request: CreateTopicsRequest, topic: CreatableTopic
) -> CreatableTopicResult:
    config = {entry.name: entry.value or "" for entry in topic.configs}
    assignment = {a.partition_index: a.broker_ids for a in topic.assignments}
    numbers = topic.num_partitions, topic.replication_factor
    if context.api_version < _FIRST_DEFAULTS and not assignment:
        # Before version 4, -1 does not mean the default.
        numbers = max(0, numbers[0]), max(0, numbers[1])
    state = context.cluster_state
    errno = context.check_topic(topic.name)
    if errno:
        return CreatableTopicResult(name=topic.name, error_code=errno, error_message=None)
    changes = len(assignment) or max(topic.num_partitions, 1)
    errno = over_quota(context, changes, _FIRST_QUOTA_CREATE)
    if errno:
        return CreatableTopicResult(name=topic.name, error_code=errno, error_message=None)
    try:
        if assignment and numbers != (-1, -1):
            raise TopicRefusedError(
                errors.InvalidRequestError.errno,
                "Both the numbers and the manual assignment were given; only one is allowed.",
            )
        created = state.create_topic(topic.name, *numbers, config=config, assignment=assignment)
        if request.validate_only:
            state.delete_topic(created)
    except TopicRefusedError as exc:
        return CreatableTopicResult(
            name=topic.name, error_code=exc.errno, error_message=exc.message
        )
    return _created(created)


def _created(topic: Topic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=name,
                value=topic.setting(name),
                read_only=False,
                config_source=_FROM_TOPIC if name in topic.config else _FROM_DEFAULT,
                is_sensitive=False,
            )
            for name in TOPIC_DEFAULTS
        ],
    )


_FIRST_QUOTA_DELETE = 5


@handles(DeleteTopicsRequest)
async def delete_topics(
    context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete each topic, by name or id."""
    await await_controller(context, request.timeout_ms / 1000)
    return DeleteTopicsResponse(
        responses=[_delete_topic(context, t) for t in _wanted(context, request)]
    )


@refuses(DeleteTopicsRequest)
def refuse_delete_topics(
    context: RequestContext, request: DeleteTopicsRequest, errno: int
) -> DeleteTopicsResponse:
    """Return a response with `errno` for every topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id, error_code=errno)
            for wanted in _wanted(context, request)
        ]
    )


def _wanted(context: RequestContext, request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    if context.api_version >= 6:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]


def _delete_topic(context: RequestContext, wanted: DeleteTopicState) -> DeletableTopicResult:
    by_id = wanted.topic_id != ZERO_UUID
    if by_id and wanted.name is not None:
        return _not_deleted(
            wanted, errors.InvalidRequestError.errno, "Both name and id were given."
        )
    errno = 0 if by_id else context.check_topic(wanted.name or "")
    if errno:
        return _not_deleted(wanted, errno, None)
    state = context.cluster_state
    topic = (
        state.topics_by_id.get(wanted.topic_id) if by_id else state.topics.get(wanted.name or "")
    )
    if topic is None:
        errno = errors.UnknownTopicId.errno if by_id else errors.UnknownTopicOrPartitionError.errno
        return _not_deleted(wanted, errno, None)
    errno = context.check_topic(topic.name)
    errno = errno or over_quota(context, len(topic.partitions), _FIRST_QUOTA_DELETE)
    if errno:
        return _not_deleted(wanted, errno, None)
    if context.cluster_state.config["delete.topic.enable"] != "true":
        return _not_deleted(
            wanted, errors.TopicDeletionDisabled.errno, "Topic deletion is disabled."
        )
    context.cluster_state.delete_topic(topic)
    context.services.groups.forget_topic(topic.name)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _not_deleted(wanted: DeleteTopicState, errno: int, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name, topic_id=wanted.topic_id, error_code=errno, error_message=message
    )


_FIRST_QUOTA_GROW = 3


@handles(CreatePartitionsRequest)
async def create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each topic; with `validate_only`, only check the request."""
    await await_controller(context, request.timeout_ms / 1000)
    return CreatePartitionsResponse(
        throttle_time_ms=0, results=[_grow(context, request, topic) for topic in request.topics]
    )


def _grow(
    context: RequestContext, request: CreatePartitionsRequest, asked: CreatePartitionsTopic
) -> CreatePartitionsTopicResult:
    topic = context.cluster_state.topics.get(asked.name)
    result = CreatePartitionsTopicResult(name=asked.name)
    errno = context.check_topic(asked.name)
    if errno:
        result.error_code = errno
        return result
    if topic is None:
        result.error_code = errors.UnknownTopicOrPartitionError.errno
        return result
    present = len(topic.partitions)
    if asked.count <= present:
        result.error_code = errors.InvalidPartitionsError.errno
        result.error_message = f"The topic {asked.name} currently has {present} partition(s)."
        return result
    placed = [assignment.broker_ids for assignment in asked.assignments or []]
    factor = len(topic.partitions[0].replicas)
    count = asked.count - present
    if asked.assignments is not None and not _is_valid(context, placed, count, factor):
        result.error_code = errors.InvalidReplicationAssignmentError.errno
        result.error_message = "The manual partition assignment is not valid."
        return result
    if asked.assignments is None and not context.cluster_state.live_nodes():
        # Brokers that are isolated from the controller still respond to clients.
        result.error_code = errors.InvalidReplicationFactorError.errno
        result.error_message = "All brokers are currently fenced."
        return result
    result.error_code = over_quota(context, asked.count - present, _FIRST_QUOTA_GROW)
    if not request.validate_only and not result.error_code:
        context.cluster_state.add_partitions(topic, asked.count, placed)
    return result


def _is_valid(context: RequestContext, placed: list[list[int]], count: int, factor: int) -> bool:
    known = set(context.cluster_state.nodes)
    return len(placed) == count and all(
        len(nodes) == len(set(nodes)) == factor and set(nodes) <= known for nodes in placed
    )


_TO_THE_END = -1


@handles(DeleteRecordsRequest, refusal={"low_watermark": -1})
def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete the records before the requested offset of each partition."""
    topics = per_partition(
        DeleteRecordsTopicResult,
        request.topics,
        lambda topic, asked: _delete_records(context, topic, asked),
    )
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _kept(asked: DeleteRecordsPartition, errno: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=errno
    )


def _delete_records(
    context: RequestContext, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    partition = context.state.partition(topic, asked.partition_index)
    errno = check_leader(context, partition)
    if errno or partition is None:
        return _kept(asked, errno)
    policy = context.state.topics[topic].setting("cleanup.policy")
    if "compact" in policy and "delete" not in policy:
        return _kept(asked, errors.PolicyViolationError.errno)
    log = partition.log
    offset = log.high_watermark if asked.offset == _TO_THE_END else asked.offset
    if not 0 <= offset <= log.high_watermark:
        return _kept(asked, errors.OffsetOutOfRangeError.errno)
    log.delete_before(offset)
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=log.start_offset
    )


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return one page: topics in the order of names, from the cursor up to the partition limit
    (KIP-966).
    """
    state = context.state
    names = sorted({topic.name for topic in request.topics} or state.topics)
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    limit = min(request.response_partition_limit, 2000)
    start = request.cursor
    for name in names:
        if start is not None and name < start.topic_name:
            continue
        first = start.partition_index if start is not None and name == start.topic_name else 0
        topic = state.topics.get(name)
        errno = context.check_topic(name)
        if errno:
            if request.topics:  # a list of all topics omits topics without permission
                response.topics.append(_missing(name, errno))
            continue
        if topic is None:
            response.topics.append(_missing(name, errors.UnknownTopicOrPartitionError.errno))
            continue
        if limit <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        page = topic.partitions[first : first + limit]
        limit -= len(page)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[_partition(state, partition) for partition in page],
                topic_authorized_operations=authorized_operations(context, True, "topic", name),
            )
        )
        if first + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(page))
            break
    return response


def _missing(name: str, errno: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=errno, name=name, topic_id=ZERO_UUID, partitions=[]
    )


def _partition(
    state: ClusterState, partition: Partition
) -> DescribeTopicPartitionsResponsePartition:
    isr, live = state.isr(partition), state.live_replicas(partition)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=isr,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node for node in partition.replicas if node not in live],
    )
