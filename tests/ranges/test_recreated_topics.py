"""Leaders of a topic that was deleted are not those of the next one with its name."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import AIOKafkaClient
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse, LeaderIdAndEpoch
from aiokafka.ranges import DataLossError, PartitionRange, RangeReader
from aiokafka.testing import Edit, FakeCluster, Hold
from tests.admin.support import simulated
from tests.ranges.support import drain, fill, numbered


def name_broker_1(response: FetchResponse) -> None:
    for topic in response.responses:
        for data in topic.partitions:
            data.error_code = NotLeaderForPartitionError.errno
            data.records = None
            data.current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=99)


@simulated
async def test_the_leader_of_a_topic_that_is_gone_is_not_that_of_its_successor() -> None:
    """A response by the id of the former topic names it, when the client knows the next one."""
    async with FakeCluster(2) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        async with AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client:
            await client.add_topic("t")
            former = PartitionRange("t", 0, 0, 5, client.cluster.topic_id("t"))
            goes_on = asyncio.Event()
            late = Hold(goes_on, Edit(name_broker_1))
            with cluster.intercept(FetchRequest, late, times=1) as held:
                async with RangeReader(client, [former]) as reader:
                    reading = asyncio.ensure_future(reader.next())
                    await held.wait()
                    await cluster.delete_topic("t")
                    await cluster.create_topic("t", assignment={0: [0, 1]})
                    fill(cluster, 0, 5)
                    topic_id = cluster.state.topics["t"].topic_id
                    while client.cluster.topic_id("t") != topic_id:
                        await client.force_metadata_update()
                    goes_on.set()
                    with pytest.raises(DataLossError):
                        await reading
            cluster.forget_requests()
            async with RangeReader(client, [PartitionRange("t", 0, 0, 5, topic_id)]) as reader:
                assert await drain(reader) == {("t", 0): numbered(0, 5)}
            assert {seen.broker_id for seen in cluster.requests(FetchRequest)} == {0}
