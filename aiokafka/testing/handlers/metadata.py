"""Metadata, DescribeCluster and FindCoordinator: brokers, leaders and coordinators."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokafka.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing.handlers import handles, refuse, refuses
from aiokafka.testing.handlers._common import authorized_operations
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import FIRST_KRAFT, ClusterState, Partition, Topic, TopicRefusedError


@handles(MetadataRequest)
def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Describe the live brokers and the topics of the request; create missing topics if allowed."""
    state = context.state
    return MetadataResponse(
        brokers=_brokers(state),
        cluster_id=state.cluster_id,
        controller_id=state.controller,
        topics=_topics(context, request),
        cluster_authorized_operations=authorized_operations(
            context, request.include_cluster_authorized_operations, "cluster"
        ),
    )


@refuses(MetadataRequest)
def refuse_metadata(
    context: RequestContext, request: MetadataRequest, errno: int
) -> MetadataResponse:
    """Return a response with `errno` for every topic of the request, or of the cluster if the
    request is for all topics. If the request names no topics, the error is also at the top level.
    """
    state = context.state
    refused = request.topics or []
    if _are_all_wanted(context, request):
        refused = [MetadataRequestTopic(name=name) for name in state.topics]
    return MetadataResponse(
        brokers=_brokers(state),
        cluster_id=state.cluster_id,
        controller_id=state.controller,
        topics=[_missing(topic.name, topic.topic_id, errno) for topic in refused],
        error_code=errno if not request.topics else 0,
    )


def _brokers(state: ClusterState) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=n.node_id, host=n.host, port=n.port, rack=n.rack)
        for n in state.nodes.values()
        if n.registered
    ]


def _are_all_wanted(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _topics(context: RequestContext, request: MetadataRequest) -> list[MetadataResponseTopic]:
    if _are_all_wanted(context, request):
        return [
            _describe(context, request, topic)
            for topic in context.state.topics.values()
            if not context.check_topic(topic.name)
        ]
    return [_one(context, request, wanted) for wanted in request.topics or []]


def _one(
    context: RequestContext, request: MetadataRequest, wanted: MetadataRequestTopic
) -> MetadataResponseTopic:
    state = context.state
    if wanted.topic_id != ZERO_UUID:
        found = state.topics_by_id.get(wanted.topic_id)
        if found is None:
            return _missing(None, wanted.topic_id, errors.UnknownTopicId.errno)
        errno = context.check_topic(found.name)
        if errno:
            return _missing(None, wanted.topic_id, errno)
        return _describe(context, request, found)
    name = wanted.name or ""
    errno = context.check_topic(name)
    if errno:
        return _missing(name, ZERO_UUID, errno)
    if name in state.topics:
        return _describe(context, request, state.topics[name])
    is_creating = request.allow_auto_topic_creation and state.auto_create
    if is_creating and context.services.acls.denies(context, "topic", name, "create"):
        return _missing(name, ZERO_UUID, errors.TopicAuthorizationFailedError.errno)
    try:
        state.check_new_topic(name, -1, -1, {}, None)
        if not is_creating:
            return _missing(name, ZERO_UUID, errors.UnknownTopicOrPartitionError.errno)
        # The stale metadata of this broker (`context.state`) may lack an existing topic.
        if name not in context.cluster_state.topics:
            context.cluster_state.create_topic(name)
    except TopicRefusedError as exc:
        return _missing(name, ZERO_UUID, exc.errno)
    # A broker responds before the new topic has a leader, and the client must retry.
    kraft = state.profile.release >= FIRST_KRAFT
    errno = (
        errors.UnknownTopicOrPartitionError.errno if kraft else errors.LeaderNotAvailableError.errno
    )
    return _missing(name, ZERO_UUID, errno)


def _missing(name: str | None, topic_id: bytes, errno: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=errno, name=name, topic_id=topic_id, partitions=[])


def _describe(
    context: RequestContext, request: MetadataRequest, topic: Topic
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(context.state, partition) for partition in topic.partitions],
        topic_authorized_operations=authorized_operations(
            context, request.include_topic_authorized_operations, "topic", topic.name
        ),
    )


def _partition(state: ClusterState, partition: Partition) -> MetadataResponsePartition:
    isr, live = state.isr(partition), state.live_replicas(partition)
    return MetadataResponsePartition(
        error_code=errors.LeaderNotAvailableError.errno if partition.leader == -1 else 0,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=isr or partition.replicas[-1:],  # Kafka's ISR keeps the last replica that stops
        offline_replicas=[node for node in partition.replicas if node not in live],
    )


_BROKERS = 1


@handles(DescribeClusterRequest, refusal={"error_message": "refused"})
def describe_cluster(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the live brokers (KIP-700), and on request the stopped brokers as fenced
    (KIP-1073)."""
    if request.endpoint_type != _BROKERS:
        return refuse(context, request, errors.MismatchedEndpointType.errno)
    state = context.state
    response = DescribeClusterResponse(
        throttle_time_ms=0,
        cluster_id=state.cluster_id,
        controller_id=state.controller,
        brokers=[],
        cluster_authorized_operations=authorized_operations(
            context, request.include_cluster_authorized_operations, "cluster"
        ),
    )
    for node in state.nodes.values():
        if node.is_forgotten:
            continue
        if node.registered or request.include_fenced_brokers:
            broker = DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            if context.api_version >= 2:
                broker.is_fenced = not node.registered
            response.brokers.append(broker)
    return response


_GROUP, _TRANSACTION = 0, 1
_INTERNAL_TOPICS = {_GROUP: "__consumer_offsets", _TRANSACTION: "__transaction_state"}


@handles(FindCoordinatorRequest)
def find_coordinator(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Look up the coordinator of each key. The first request for a group or a transactional id
    creates the internal topic."""
    keys = request.coordinator_keys if context.api_version >= 4 else [request.key]
    return _coordinators(
        context, [_find_coordinator(context, request.key_type, key) for key in keys]
    )


@refuses(FindCoordinatorRequest)
def refuse_find_coordinator(
    context: RequestContext, request: FindCoordinatorRequest, errno: int
) -> FindCoordinatorResponse:
    """Return a response with `errno` for every key of the request."""
    keys = request.coordinator_keys if context.api_version >= 4 else [request.key]
    return _coordinators(context, [_failed(key, errno, "refused") for key in keys])


def _find_coordinator(context: RequestContext, kind: int, key: str) -> Coordinator:
    state = context.state
    if kind not in _INTERNAL_TOPICS:
        return _failed(key, errors.InvalidRequestError.errno, f"unknown coordinator type {kind}")
    resource = "transactional_id" if kind == _TRANSACTION else "group"
    errno = context.services.acls.check_named(context, resource, key, "describe")
    if errno:
        return _failed(key, errno, "refused")
    # A client can reach this broker even if the controller has registered no broker.
    if not state.live_nodes():
        return _failed(key, errors.GroupCoordinatorNotAvailableError.errno, "no broker is alive")
    topic = _INTERNAL_TOPICS[kind]
    if topic not in state.topics:
        state.create_topic(topic, 1, 1, config={"cleanup.policy": "compact"}, is_internal=True)
    node_id = state.coordinator(kind, key)
    node = state.nodes[node_id]
    return Coordinator(key=key, node_id=node_id, host=node.host, port=node.port, error_message=None)


def _failed(key: str, errno: int, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=errno, error_message=message
    )


def _coordinators(context: RequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.api_version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )
