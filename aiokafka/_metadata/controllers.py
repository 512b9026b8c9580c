"""Ask controllers, in place of brokers, who is there (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.errors import MismatchedEndpointType, UnsupportedVersionError, for_code
from aiokafka.protocol.messages.cluster import DescribeClusterRequest
from aiokafka.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

if TYPE_CHECKING:
    from aiokafka.net.connection import BrokerConnection

__all__ = ["CONTROLLERS", "ask_controller"]

#: What DescribeCluster calls endpoints of controllers.
CONTROLLERS = 2

_FIRST_WITH_CONTROLLERS = 1


async def ask_controller(connection: BrokerConnection) -> MetadataResponse:
    """Return the controllers and the active one of them as metadata without topics.

    Raises UnsupportedVersionError before Kafka 3.7, MismatchedEndpointType for a broker, and what
    the controller says.
    """
    peer = connection.peer
    version = connection.pick(DescribeClusterRequest)
    if version < _FIRST_WITH_CONTROLLERS:
        raise UnsupportedVersionError(
            f"{peer}: bootstrap_controllers needs Kafka 3.7 (KIP-919): use bootstrap_servers"
        )
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    request.endpoint_type = CONTROLLERS
    response = await connection.request(request, version=version)
    if response.error_code == MismatchedEndpointType.errno:
        raise MismatchedEndpointType(
            f"{peer}: is a broker, not a controller: name it in bootstrap_servers"
        )
    if response.error_code:
        reason = response.error_message or "refused DescribeCluster"
        raise for_code(response.error_code)(f"{peer}: {reason}")
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in response.brokers
        ],
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=[],
    )
