"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from aiokafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import authorized_operations
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import (
    FIRST_KRAFT,
    ClusterState,
    Partition,
    Topic,
    TopicRefusedError,
)

REQUEST = MetadataRequest


def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Describe the live brokers and the topics asked for, which may be created by that."""
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


def refuse(context: RequestContext, request: MetadataRequest, errno: int) -> MetadataResponse:
    """Say no to each topic asked for; to all that there are, if it is for all."""
    state = context.state
    refused = request.topics or []
    if _are_all_wanted(context, request):
        refused = [MetadataRequestTopic(name=name) for name in state.topics]
    return MetadataResponse(
        brokers=_brokers(state),
        cluster_id=state.cluster_id,
        controller_id=state.controller,
        topics=[_missing(topic.name, topic.topic_id, errno) for topic in refused],
        error_code=errno if not request.topics else codes.NONE,
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
            return _missing(None, wanted.topic_id, codes.UNKNOWN_TOPIC_ID)
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
        return _missing(name, ZERO_UUID, codes.TOPIC_AUTHORIZATION_FAILED)
    try:
        state.check_new_topic(name, -1, -1, {}, None)
        if not is_creating:
            return _missing(name, ZERO_UUID, codes.UNKNOWN_TOPIC_OR_PARTITION)
        if name not in context.truth.topics:  # else this broker has only not heard of it yet
            context.truth.create_topic(name)
    except TopicRefusedError as exc:
        return _missing(name, ZERO_UUID, exc.errno)
    # A broker answers before the new topic has a leader: the client has to ask again.
    kraft = state.profile.release >= FIRST_KRAFT
    errno = codes.UNKNOWN_TOPIC_OR_PARTITION if kraft else codes.LEADER_NOT_AVAILABLE
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
        error_code=codes.LEADER_NOT_AVAILABLE if partition.leader == -1 else codes.NONE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=isr or partition.replicas[-1:],  # the last in sync stays on the list
        offline_replicas=[node for node in partition.replicas if node not in live],
    )
