"""DescribeLogDirs: which replicas are in which directory (KIP-113)."""

from __future__ import annotations

from aiokafka.protocol.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Node, Partition

REQUEST = DescribeLogDirsRequest
_VOLUME = 100 * 2**30  # bytes
_FIRST_WITH_AN_ERROR = 3


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Name the replicas of this broker by directory."""
    node = context.truth.nodes[context.node_id]
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    kept = [
        partition
        for partition in context.truth.partitions()
        if node.node_id in partition.replicas
        and (wanted is None or (partition.topic, partition.index) in wanted)
    ]
    return DescribeLogDirsResponse(results=[_directory(node, path, kept) for path in node.log_dirs])


def refuse(
    context: RequestContext, request: DescribeLogDirsRequest, errno: int
) -> DescribeLogDirsResponse:
    """Say no."""
    if context.api_version >= _FIRST_WITH_AN_ERROR:
        return DescribeLogDirsResponse(error_code=errno, results=[])
    if errno == codes.CLUSTER_AUTHORIZATION_FAILED:
        return DescribeLogDirsResponse(results=[])
    refused = [
        DescribeLogDirsResult(error_code=errno, log_dir=path, topics=[])
        for path in context.truth.nodes[context.node_id].log_dirs
    ]
    return DescribeLogDirsResponse(results=refused)


def _directory(node: Node, path: str, kept: list[Partition]) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in kept:
        place = (partition.topic, partition.index)
        if node.moved_logs.get(place, node.log_dirs[0]) == path:
            found = DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.log_of(node.node_id).size,
                offset_lag=0,
                is_future_key=False,
            )
            topics.setdefault(partition.topic, []).append(found)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[DescribeLogDirsTopic(name=name, partitions=each) for name, each in topics.items()],
        total_bytes=_VOLUME,
        usable_bytes=_VOLUME // 2,
    )
