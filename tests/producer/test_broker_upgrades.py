"""Brokers that become another Kafka while a producer runs."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.transactions import AddPartitionsToTxnRequest
from aiokafka.testing import Edit, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, transactional


@pytest.mark.parametrize("commits", [True, False])
def test_the_first_transaction_of_version_2_is_no_part_of_the_one_before(commits: bool) -> None:
    """The markers of that one are written late; before KIP-890 it had the same epoch."""

    async def main(_: Simulation) -> list[bytes | None]:
        async with FakeCluster(as_version="3.9") as cluster:
            await cluster.create_topic(TOPIC)
            async with transactional(cluster) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                cluster.set_release(0, "4.3")
                # Until its connections are known to be lost.
                await asyncio.sleep(1)
                cluster.transactions.pause_markers()
                await (producer.commit_transaction() if commits else producer.abort_transaction())
                asyncio.get_running_loop().call_later(1, cluster.transactions.resume_markers)
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"second", partition=0)
                await asyncio.sleep(1)
                await producer.send_and_wait(TOPIC, b"third", partition=0)
                await (producer.abort_transaction() if commits else producer.commit_transaction())
            return committed(cluster)

    assert simulate(main) == ([b"first"] if commits else [b"second", b"third"])


@pytest.mark.parametrize("epoch", [0, 1])
async def test_features_that_were_never_changed_count(epoch: int) -> None:
    """Transactions of version 2 need no request that enters a partition."""

    def name_epoch(response: ApiVersionsResponse) -> None:
        response.finalized_features_epoch = epoch

    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC)
        cluster.intercept(ApiVersionsRequest, Edit(name_epoch))
        async with transactional(cluster) as producer, producer.transaction():
            await producer.send_and_wait(TOPIC, b"first", partition=0)
        assert committed(cluster) == [b"first"]
        assert cluster.count(AddPartitionsToTxnRequest) == 0
