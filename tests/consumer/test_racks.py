"""Where a member says that it is (KIP-881)."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import InvalidRequestError
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.testing import Fail, FakeCluster, RequestContext
from tests.support.consumers import Start

ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("rack", [None, "", "here"])
async def test_the_leader_learns_the_rack(
    cluster: FakeCluster, start: Start, assignor: Any, rack: str | None
) -> None:
    """It is read from version 3 of the metadata on, and not at all from older ones."""
    await cluster.create_topic("t")
    options = {"partition_assignment_strategy": [assignor], "client_rack": rack}
    await start(cluster, "t", group_id="g", **options)
    request = cluster.requests(JoinGroupRequest)[-1].request
    (protocol,) = request.protocols
    metadata = ConsumerProtocolMemberMetadata.decode(bytes(protocol.metadata))
    assert (metadata.rack, metadata.topics) == (rack or None, ["t"])


def refuse_empty_racks(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Fail | None:
    return Fail(InvalidRequestError) if request.rack_id == "" else None


@pytest.mark.parametrize("rack", [None, "", "here"])
async def test_the_coordinator_learns_the_rack(
    cluster: FakeCluster, start: Start, rack: str | None
) -> None:
    await cluster.create_topic("t")
    cluster.intercept(ConsumerGroupHeartbeatRequest, refuse_empty_racks)
    await start(cluster, "t", group_id="g", group_protocol="consumer", client_rack=rack)
    request = cluster.requests(ConsumerGroupHeartbeatRequest)[0].request
    assert request.rack_id == (rack or None)
