"""An admin client that talks to controllers alone (KIP-919)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, ConfigKey, NewTopic
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NotControllerError,
    SecurityDisabled,
    UnsupportedEndpointType,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.acls import CreateAclsRequest
from aiokafka.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokafka.protocol.messages.configs import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
)
from aiokafka.protocol.messages.quorum import DescribeQuorumRequest
from aiokafka.protocol.messages.topics import CreateTopicsRequest
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.admin.operations import ALICE, CALLS, prepared


class Controllers:
    """Lets all nodes of a fake cluster be controllers, of which one is active."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.active = 0
        self._cluster = cluster
        cluster.intercept(DescribeClusterRequest, self._name_them)

    def _name_them(
        self, request: DescribeClusterRequest, context: Any
    ) -> DescribeClusterResponse | None:
        if request.endpoint_type != 2:
            return None
        return DescribeClusterResponse(
            endpoint_type=2,
            cluster_id=self._cluster.state.cluster_id,
            controller_id=self.active,
            brokers=[
                DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port)
                for node in self._cluster.state.nodes.values()
            ],
        )


def controllers_admin(cluster: FakeCluster, **options: Any) -> AIOKafkaAdminClient:
    options = {"request_timeout_ms": 30_000, "retry_backoff_ms": 10, **options}
    return AIOKafkaAdminClient(bootstrap_controllers=cluster.bootstrap_servers, **options)


async def test_calls_go_to_the_active_controller() -> None:
    async with FakeCluster(3) as cluster:
        controllers = Controllers(cluster)
        controllers.active = 1
        async with controllers_admin(cluster) as admin:
            found = await admin.brokers.describe_cluster()
            assert ([each.id for each in found.brokers], found.controller_id) == ([0, 1, 2], 1)
            assert found.cluster_id == cluster.state.cluster_id
            plain = await admin.describe_cluster()
            assert (len(plain["brokers"]), plain["controller_id"]) == (3, 1)
            await admin.topics.create([NewTopic("t", 1, 1)])
            await admin.brokers.quorum()
            await admin.configs.describe([ConfigKey.topic("t")])
        assert cluster.count(MetadataRequest) == 0
        for api in (CreateTopicsRequest, DescribeQuorumRequest, DescribeConfigsRequest):
            assert {seen.broker_id for seen in cluster.requests(api)} == {1}


async def test_each_controller_describes_itself_and_the_active_one_stores_settings() -> None:
    async with FakeCluster(3) as cluster:
        Controllers(cluster)
        async with controllers_admin(cluster) as admin:
            second = ConfigKey.broker(2)
            await admin.configs.describe([second])
            await admin.configs.alter({second: {"message.max.bytes": 1000}})
        asked = (DescribeConfigsRequest, IncrementalAlterConfigsRequest)
        assert [cluster.requests(api)[0].broker_id for api in asked] == [2, 0]


async def test_the_new_active_controller_is_found() -> None:
    async with FakeCluster(3) as cluster:
        controllers = Controllers(cluster)
        async with controllers_admin(cluster) as admin:
            cluster.intercept(CreateTopicsRequest, Fail(NotControllerError), broker=0)
            controllers.active = 2
            await admin.topics.create([NewTopic("t", 1, 1)])
            assert [seen.broker_id for seen in cluster.requests(CreateTopicsRequest)][-1] == 2
            # Single items may say it.
            controllers.active = 0
            cluster.intercept(CreateAclsRequest, Fail(NotControllerError), broker=2)
            acls = admin.acls.create([ALICE])
            with pytest.raises(SecurityDisabled):
                await acls
            assert [seen.broker_id for seen in cluster.requests(CreateAclsRequest)][-1] == 0
            # One that is gone.
            await cluster.stop_broker(0)
            controllers.active = 1
            await admin.topics.create([NewTopic("u", 1, 1)])


SERVED = {
    *("acls.create", "acls.delete", "acls.describe"),
    *("brokers.add_voter", "brokers.describe_cluster", "brokers.features", "brokers.quorum"),
    *("brokers.remove_voter", "brokers.unregister", "brokers.unregister_controller"),
    "brokers.update_features",
    *("configs.alter", "configs.describe", "configs.set_exactly"),
    *("quotas.alter", "quotas.alter_all"),
    *("tokens.create", "tokens.describe", "tokens.expire", "tokens.renew"),
    *("topics.cancel_reassignments", "topics.create", "topics.create_partitions"),
    *("topics.delete", "topics.elect_leaders", "topics.reassign", "topics.reassignments"),
    *("users.delete", "users.describe", "users.upsert"),
}


async def test_what_brokers_alone_serve_is_refused_at_once() -> None:
    served = set()
    async with prepared() as (cluster, _):
        Controllers(cluster)
        async with controllers_admin(cluster) as admin:
            for name, call in CALLS.items():
                try:
                    await call(admin)
                except UnsupportedEndpointType as error:
                    assert "connect by bootstrap_servers" in str(error)
                    continue
                except KafkaError:
                    pass  # a controller has decided
                served.add(name)
    assert {name for name in served if "." in name} == SERVED
    guide = (Path(__file__).parents[2] / "docs" / "admin.rst").read_text()
    section = guide.partition("\nControllers\n")[2].partition("\nAny request\n")[0]
    for room, _, verb in (name.partition(".") for name in SERVED):
        assert f"`admin.{room}`" in section
        assert f"`{verb}`" in section or room in ("acls", "tokens", "users")  # all of theirs


async def test_there_is_one_kind_of_address() -> None:
    with pytest.raises(ValueError, match="give one of them, not both"):
        AIOKafkaAdminClient(bootstrap_servers="a:1", bootstrap_controllers="b:1")
    for empty in ("", [], ","):
        with pytest.raises(ValueError, match="bootstrap_controllers"):
            AIOKafkaAdminClient(bootstrap_controllers=empty)
    with pytest.raises(TypeError, match="bootstrap_controllers"):
        AIOKafkaAdminClient(bootstrap_controllers=9093)  # type: ignore[arg-type]
    await AIOKafkaAdminClient(bootstrap_controllers=None, bootstrap_servers="a:1").close()


async def test_a_broker_is_no_controller() -> None:
    async with FakeCluster() as cluster:
        with pytest.raises(KafkaConnectionError, match="is a broker, not a controller"):
            await controllers_admin(cluster).start()
    async with FakeCluster(as_version="2.8") as cluster:
        with pytest.raises(UnsupportedVersionError, match=r"needs Kafka 3\.7"):
            await controllers_admin(cluster).start()


async def test_a_controller_is_no_broker() -> None:
    def without_metadata(response: ApiVersionsResponse) -> None:
        response.api_keys = [each for each in response.api_keys if each.api_key != 3]

    async with FakeCluster() as cluster:
        cluster.intercept(ApiVersionsRequest, Edit(without_metadata))
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(UnsupportedVersionError, match="is a controller, not a broker"):
            await admin.start()


async def test_calls_may_be_cancelled_while_no_controller_is_active() -> None:
    async with FakeCluster(2) as cluster:
        controllers = Controllers(cluster)
        controllers.active = -1
        cluster.intercept(CreateTopicsRequest, Fail(NotControllerError))
        async with controllers_admin(cluster) as admin:
            call = asyncio.ensure_future(admin.topics.create([NewTopic("t", 1, 1)]))
            await cluster.wait_for(lambda: cluster.count(CreateTopicsRequest) >= 2)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
