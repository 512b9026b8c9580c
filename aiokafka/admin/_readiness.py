"""Waiting until every broker knows a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin._cluster import fetch_metadata, metadata_of
from aiokafka.admin._items import by_node, settle
from aiokafka.admin._routing import Router, error_of
from aiokafka.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.metadata import MetadataResponseTopic

Found = MetadataResponseTopic | KafkaError


async def wait_until_ready(router: Router, names: Iterable[str], deadline: float) -> None:
    """Return when every broker names the same partitions of these topics, all with a leader."""

    async def ask(left: list[str]) -> dict[str, bool | KafkaError]:
        cluster = await fetch_metadata(router, [], deadline)
        nodes = [broker.node_id for broker in cluster.brokers]
        views = await by_node(
            {node: [(node, name) for name in left] for node in nodes},
            lambda node, items: _view(router, node, [name for _, name in items], deadline),
        )
        return {name: _judge({node: views[node, name] for node in nodes}, name) for name in left}

    await settle(router, names, ask, deadline)


async def _view(
    router: Router, node: int, names: list[str], deadline: float
) -> dict[tuple[int, str], Found]:
    """Return what one broker knows of these topics."""
    response = await metadata_of(router, node, names, deadline)
    return {(node, str(topic.name)): topic for topic in response.topics}


def _judge(views: Mapping[int, Found], name: str) -> bool | KafkaError:
    """Return whether a topic is ready, else an error that may pass, or one that does not."""
    if not views:
        return UnknownTopicOrPartitionError(f"{name}: no broker is there")
    known = [len(v.partitions) for v in views.values() if not isinstance(v, KafkaError)]
    most = max(known, default=0)
    for node, view in views.items():
        where = f"{name}, as node {node} knows it"
        if isinstance(view, KafkaError):
            return view
        error = error_of(view.error_code, None, where)
        if error is not None:
            return error
        if not view.partitions or len(view.partitions) < most:
            return LeaderNotAvailableError(f"{where}: {len(view.partitions)} partitions yet")
        for partition in view.partitions:
            if partition.leader_id < 0:
                return LeaderNotAvailableError(f"{where}: partition {partition.partition_index}")
    return True
