"""Any request of the protocol, sent to the broker that it concerns."""

from __future__ import annotations

import pytest

from aiokafka.admin import SendTo
from aiokafka.errors import (
    AdminItemsError,
    ClusterAuthorizationFailedError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorForGroupError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.topics import DeleteTopicsRequest
from aiokafka.protocol.messages.transaction_admin import DescribeTransactionsRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster, Silence
from tests.admin.support import make_admin, simulated

LIST = ListGroupsRequest()


async def test_requests_reach_the_broker_that_they_concern() -> None:
    cluster = FakeCluster(3, as_version="2.8")
    cluster.controller.start(2)
    async with cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.move_leader(("t", 0), 1)
        cluster.move_coordinator("group", "g", 2)
        cluster.move_coordinator("transaction", "x", 1)
        ways = {
            SendTo.broker(1): 1,
            SendTo.leader(TopicPartition("t", 0)): 1,
            SendTo.coordinator("g"): 2,
            SendTo.transaction_coordinator("x"): 1,
            SendTo.controller(): 2,
        }
        for to, broker_id in ways.items():
            cluster.forget_requests()
            response = await admin.send(LIST, to)
            assert response.error_code == 0
            (seen,) = cluster.requests(ListGroupsRequest)
            assert seen.broker_id == broker_id, to
        assert (await admin.send(LIST)).groups == []
        assert sorted(await admin.send_to_all(LIST)) == [0, 1, 2]


async def test_what_has_moved_is_asked_again_and_other_codes_are_returned() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        moved = cluster.intercept(DescribeGroupsRequest, Fail(NotCoordinatorForGroupError), times=2)
        await admin.send(DescribeGroupsRequest(groups=["g"]), SendTo.coordinator("g"))
        assert moved.hits == 2
        moved = cluster.intercept(DeleteTopicsRequest, Fail(NotControllerError), times=2)
        request = DeleteTopicsRequest(topic_names=[], topics=[], timeout_ms=1000)
        await admin.send(request, SendTo.controller())
        cluster.intercept(ListGroupsRequest, Fail(ClusterAuthorizationFailedError))
        response = await admin.send(LIST)
        assert response.error_code == ClusterAuthorizationFailedError.errno


@simulated
async def test_failures() -> None:
    async with FakeCluster(2, as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"DescribeTransactions.* 3\.0"):
            await admin.send(DescribeTransactionsRequest(transactional_ids=["x"]))
        with pytest.raises(TypeError, match="topics"):
            await admin.send(MetadataRequest(topics="t"))  # type: ignore[arg-type]
        cluster.intercept(ListGroupsRequest, Silence(), broker=1)
        with pytest.raises(AdminItemsError) as caught:
            await admin.send_to_all(LIST, timeout_ms=300)
        assert (list(caught.value.results), list(caught.value.errors)) == ([0], [1])
        with pytest.raises(KafkaTimeoutError):
            await admin.send(LIST, SendTo.broker(1), timeout_ms=100)
        await cluster.create_topic("t")
        tp = TopicPartition("t", 0)
        cluster.state.node_down(cluster.state.topics["t"].partitions[0].leader)
        with pytest.raises(KafkaTimeoutError) as late:
            await admin.send(LIST, SendTo.leader(tp), timeout_ms=300)
        assert isinstance(late.value.__cause__, LeaderNotAvailableError)
