"""Groups of clusters that do not say who they are, as gateways and old brokers do not."""

from __future__ import annotations

from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0, Start, fill
from tests.support.transactions import READING, Produce, members, put, stored


async def test_the_member_that_read_commits(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    def hide(response: MetadataResponse) -> None:
        response.cluster_id = None

    cluster.intercept(MetadataRequest, Edit(hide))
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", **READING)
    producer = await produce(cluster)
    await consumer.getone(T0)
    await put(producer, {T0: 1}, "g")
    metadata = consumer.group_metadata()
    assert members(cluster) == [(metadata.generation_id, metadata.member_id)]
    assert stored(cluster) == [1, None]
