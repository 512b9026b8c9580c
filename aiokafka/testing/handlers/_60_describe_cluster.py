"""DescribeCluster (KIP-700)."""

from __future__ import annotations

from aiokafka.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import authorized_operations
from aiokafka.testing.script import RequestContext

REQUEST = DescribeClusterRequest
_BROKERS = 1


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Name the brokers."""
    if request.endpoint_type != _BROKERS:
        return refuse(context, request, codes.MISMATCHED_ENDPOINT_TYPE)
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


def refuse(
    context: RequestContext, request: DescribeClusterRequest, errno: int
) -> DescribeClusterResponse:
    """Say no."""
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=errno, error_message="refused", cluster_id="", brokers=[]
    )
