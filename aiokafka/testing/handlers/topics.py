"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords and DescribeTopicPartitions."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Cursor,
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.handlers import answer_items, handles, refuses, require
from aiokafka.testing.handlers._common import (
    authorized_operations,
    await_controller,
    over_quota,
    require_leader,
)
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import TOPIC_DEFAULTS
from aiokafka.testing.state import ClusterState, Partition

_UNKNOWN = errors.UnknownTopicOrPartitionError.errno
_FIRST_DEFAULTS = 4
_FIRST_QUOTA_CREATE = 6
_FROM_TOPIC, _FROM_DEFAULT = 1, 5


@handles(CreateTopicsRequest, refusal={"error_message": None})
async def create_topics(
    context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create each topic; with `validate_only`, only check the request."""
    await await_controller(context, request.timeout_ms / 1000)
    names = [topic.name for topic in request.topics]

    def create(topic: CreatableTopic) -> CreatableTopicResult:
        if names.count(topic.name) > 1:
            raise RefusedError(errors.InvalidRequestError, "Duplicate topic name.")
        return _create_topic(context, request, topic)

    topics = {topic.name: topic for topic in request.topics}
    return answer_items(request, create, items=topics.values())


def _create_topic(
    context: RequestContext, request: CreateTopicsRequest, topic: CreatableTopic
) -> CreatableTopicResult:
    config = {entry.name: entry.value or "" for entry in topic.configs}
    assignment = {a.partition_index: a.broker_ids for a in topic.assignments}
    numbers = topic.num_partitions, topic.replication_factor
    if context.api_version < _FIRST_DEFAULTS and not assignment:
        # Before version 4, -1 is invalid and does not mean the default. `create_topic` rejects 0.
        numbers = max(0, numbers[0]), max(0, numbers[1])
    require(context.check_topic(topic.name))
    changes = len(assignment) or max(topic.num_partitions, 1)
    require(over_quota(context, changes, _FIRST_QUOTA_CREATE))
    if assignment and numbers != (-1, -1):
        raise RefusedError(
            errors.InvalidRequestError,
            "Both the numbers and the manual assignment were given; only one is allowed.",
        )
    state = context.cluster_state
    created = state.create_topic(topic.name, *numbers, config=config, assignment=assignment)
    if request.validate_only:
        state.delete_topic(created)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_message=None,
        num_partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=name,
                value=created.setting(name),
                read_only=False,
                config_source=_FROM_TOPIC if name in created.config else _FROM_DEFAULT,
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
    wanted = _wanted(context, request)
    return answer_items(request, lambda topic: _delete_topic(context, topic), items=wanted)


@refuses(DeleteTopicsRequest)
def refuse_delete_topics(
    context: RequestContext, request: DeleteTopicsRequest, errno: int
) -> DeleteTopicsResponse:
    """Return a response with `errno` for every topic."""
    return answer_items(request, lambda topic: require(errno), items=_wanted(context, request))


def _wanted(context: RequestContext, request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    if context.api_version >= 6:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]


def _delete_topic(context: RequestContext, wanted: DeleteTopicState) -> DeletableTopicResult:
    state = context.cluster_state
    missing = errors.UnknownTopicId.errno
    if wanted.topic_id == ZERO_UUID:
        require(context.check_topic(wanted.name or ""))
        topic, missing = state.topics.get(wanted.name or ""), _UNKNOWN
    elif wanted.name is not None:
        raise RefusedError(errors.InvalidRequestError, "Both name and id were given.")
    else:
        topic = state.topics_by_id.get(wanted.topic_id)
    if topic is None:
        raise RefusedError(missing)
    require(context.check_topic(topic.name))
    require(over_quota(context, len(topic.partitions), _FIRST_QUOTA_DELETE))
    if state.config["delete.topic.enable"] != "true":
        raise RefusedError(errors.TopicDeletionDisabled, "Topic deletion is disabled.")
    state.delete_topic(topic)
    context.services.groups.forget_topic(topic.name)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


_FIRST_QUOTA_GROW = 3


@handles(CreatePartitionsRequest)
async def create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each topic; with `validate_only`, only check the request."""
    await await_controller(context, request.timeout_ms / 1000)
    return answer_items(request, lambda topic: _grow(context, request, topic))


def _grow(
    context: RequestContext, request: CreatePartitionsRequest, asked: CreatePartitionsTopic
) -> None:
    topic = context.cluster_state.topics.get(asked.name)
    require(context.check_topic(asked.name))
    if topic is None:
        raise RefusedError(_UNKNOWN)
    present = len(topic.partitions)
    if asked.count <= present:
        raise RefusedError(
            errors.InvalidPartitionsError,
            f"The topic {asked.name} currently has {present} partition(s).",
        )
    placed = [assignment.broker_ids for assignment in asked.assignments or []]
    factor = len(topic.partitions[0].replicas)
    count = asked.count - present
    if asked.assignments is not None and not _is_valid(context, placed, count, factor):
        raise RefusedError(
            errors.InvalidReplicationAssignmentError,
            "The manual partition assignment is not valid.",
        )
    if asked.assignments is None and not context.cluster_state.live_nodes():
        # Brokers that are isolated from the controller respond to clients, but are not live.
        raise RefusedError(
            errors.InvalidReplicationFactorError, "All brokers are currently fenced."
        )
    require(over_quota(context, count, _FIRST_QUOTA_GROW))
    if not request.validate_only:
        context.cluster_state.add_partitions(topic, asked.count, placed)


def _is_valid(context: RequestContext, placed: list[list[int]], count: int, factor: int) -> bool:
    known = set(context.cluster_state.nodes)
    return len(placed) == count and all(
        len(nodes) == len(set(nodes)) == factor and set(nodes) <= known for nodes in placed
    )


_TO_THE_END = -1


@handles(DeleteRecordsRequest, refusal={"low_watermark": -1})
def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete the records before the requested offset of each partition; -1 stands for the high
    watermark."""
    return answer_items(request, lambda topic, asked: _delete_records(context, topic.name, asked))


def _delete_records(
    context: RequestContext, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    log = require_leader(context, topic, asked.partition_index).log
    policy = context.state.topics[topic].setting("cleanup.policy")
    if "compact" in policy and "delete" not in policy:
        raise RefusedError(errors.PolicyViolationError)
    offset = log.high_watermark if asked.offset == _TO_THE_END else asked.offset
    if not 0 <= offset <= log.high_watermark:
        raise RefusedError(errors.OffsetOutOfRangeError)
    log.delete_before(offset)
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=log.start_offset
    )


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return topics in the order of names, beginning at the cursor, until the limit of partitions
    is reached (KIP-966).
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
            if request.topics:  # a response for all topics omits topics without permission
                response.topics.append(_missing(name, errno))
            continue
        if topic is None:
            response.topics.append(_missing(name, _UNKNOWN))
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
