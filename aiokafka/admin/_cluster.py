"""Requests about brokers, topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from aiokafka.admin._routing import Call, Router
from aiokafka.admin.results import ClusterDict, TopicDict
from aiokafka.errors import KafkaError, NoBrokersAvailable, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_FIRST_WITH_OPERATIONS = 8
_LAST_OF_THE_CLUSTER = 10  # then DescribeCluster tells


async def fetch_metadata(
    router: Router,
    topics: Sequence[str] | None,
    deadline: float,
    *,
    operations: bool = False,
    cluster_operations: bool = False,
    asked: set[int] | None = None,
) -> MetadataResponse:
    """Fetch metadata of these topics, or of all topics with None, from any broker that was not
    `asked` before, as `Router.to_any` does.

    Creates no topic. Without topics the brokers may be controllers, see `Router`. With `operations`
    also what the user may do with topics, and with `cluster_operations` with the cluster, where
    brokers can tell.
    """
    if router.is_for_controllers and topics is not None and not topics:
        return await router.all_nodes(deadline)
    call = _call(topics, operations, cluster_operations)

    async def attempt() -> MetadataResponse:
        response = await router.to_any(call, deadline, asked)
        if not response.brokers:
            # It has just started. That it knows of no topics and groups either says nothing.
            raise NoBrokersAvailable("the broker that was asked knows of no brokers yet")
        return response

    return _complete(await router.retry(attempt, deadline), topics)


async def metadata_of(
    router: Router, node_id: int, topics: Sequence[str], deadline: float
) -> MetadataResponse:
    """Fetch what one broker knows of these topics, in one attempt. Creates no topic."""
    return _complete(await router.send(node_id, _call(topics), deadline), topics)


def _call(
    topics: Sequence[str] | None, operations: bool = False, cluster_operations: bool = False
) -> Call[MetadataResponse]:
    def build(version: int) -> MetadataRequest:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if version < 4 and wanted:
            wanted = None  # Before version 4, asking for a topic by name may create it.
        if version == 0 and wanted is None:
            wanted = []  # In version 0 an empty list asks for all topics.
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=version < 4)
        if version >= _FIRST_WITH_OPERATIONS:
            request.include_topic_authorized_operations = operations
        if _FIRST_WITH_OPERATIONS <= version <= _LAST_OF_THE_CLUSTER:
            request.include_cluster_authorized_operations = cluster_operations
        return request

    return Call(MetadataRequest, build)


def _complete(response: MetadataResponse, topics: Sequence[str] | None) -> MetadataResponse:
    """Leave these topics in a response, in order; those it does not name are unknown."""
    if topics:
        found = {topic.name: topic for topic in response.topics}
        response.topics = [found.get(name) or _unknown(name) for name in topics]
    return response


def _unknown(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=UnknownTopicOrPartitionError.errno, name=name, is_internal=False, partitions=[]
    )


async def list_topics(router: Router, deadline: float) -> list[str]:
    """Return the names of all topics, internal ones included."""
    response = await fetch_metadata(router, None, deadline)
    return [str(topic.name) for topic in response.topics]


async def describe_topics(
    router: Router, topics: Iterable[str] | None, deadline: float
) -> list[TopicDict]:
    """Return one dict per topic; a topic that does not exist has an error code."""
    wanted = None if topics is None else list(topics)
    if wanted is not None and not wanted:
        return []
    asked: set[int] = set()
    response = await fetch_metadata(router, wanted, deadline, asked=asked)
    found = {topic.name: topic for topic in response.topics}
    gone = UnknownTopicOrPartitionError.errno
    missing = [str(name) for name, topic in found.items() if topic.error_code == gone]
    by = router.second_opinion_by(asked, deadline)
    if missing and by is not None:
        with suppress(KafkaError):
            second = await fetch_metadata(router, missing, by, asked=asked)
            found |= {topic.name: topic for topic in second.topics}
    return [_topic(topic) for topic in found.values()]


def _topic(topic: MetadataResponseTopic) -> TopicDict:
    return {
        "error_code": topic.error_code,
        "topic": topic.name or "",
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": partition.error_code,
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "replicas": list(partition.replica_nodes),
                "isr": list(partition.isr_nodes),
                "offline_replicas": list(partition.offline_replicas),
            }
            for partition in topic.partitions
        ],
    }


async def describe_cluster(router: Router, deadline: float) -> ClusterDict:
    """Return the brokers, the id of the cluster and the controller."""
    response = await fetch_metadata(router, [], deadline)
    return {
        "throttle_time_ms": response.throttle_time_ms,
        "brokers": [
            {"node_id": b.node_id, "host": b.host, "port": b.port, "rack": b.rack}
            for b in response.brokers
        ],
        "cluster_id": response.cluster_id,
        "controller_id": response.controller_id,
    }
