"""What controllers serve to admin clients that talk to them alone (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.errors import UnsupportedEndpointType

if TYPE_CHECKING:
    from aiokafka.protocol.schema import Request

__all__ = ["SERVED", "refuse"]

#: Keys of the APIs that a controller of Kafka 4.3 lists and that clients may use.
SERVED = frozenset(
    (
        *(18, 60),  # ApiVersions, DescribeCluster
        *(19, 20, 37),  # topics: create, delete, add partitions
        *(29, 30, 31),  # access control lists
        *(32, 33, 44),  # configurations
        *(38, 39, 40, 41),  # delegation tokens
        *(43, 45, 46),  # elections and reassignments
        *(49, 50, 51),  # quotas: alter; SCRAM users
        *(55, 80, 81),  # the quorum
        *(57, 64),  # features, unregistering
    )
)


def refuse(request: type[Request[Any]]) -> None:
    """Raise UnsupportedEndpointType for what no controller serves."""
    if request.API_KEY not in SERVED:
        name = request.__name__.removesuffix("Request")
        raise UnsupportedEndpointType(
            f"{name}: controllers do not serve it: connect by bootstrap_servers"
        )
