"""Old brokers and their record formats, and brokers that are upgraded while a producer runs."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.protocol.messages.transactions import AddPartitionsToTxnRequest
from aiokafka.testing import Edit, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, new_producer, transactional

# -- The formats of record sets that brokers before Kafka 0.11 are given


_MAGIC_AT = 16


@pytest.mark.parametrize(("version", "magic"), [("0.9", 0), ("0.10.2", 1), ("0.11", 2)])
@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_a_broker_gets_the_newest_format_that_it_reads(
    version: str, magic: int, codec: str | None
) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic(TOPIC)
        async with new_producer(cluster, compression_type=codec) as producer:
            await producer.send_and_wait(TOPIC, b"value", timestamp_ms=5)
    (seen,) = cluster.requests(ProduceRequest)
    records = bytes(seen.request.topic_data[0].partition_data[0].records)
    assert records[_MAGIC_AT] == magic


async def test_transactions_leave_two_phase_commit_alone() -> None:
    """InitProducerId has a version for it (KIP-939), which changes what the rest means."""

    def offer(response: ApiVersionsResponse) -> None:
        for api in response.api_keys:
            if api.api_key == InitProducerIdRequest.API_KEY:
                api.max_version = 6

    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC)
        cluster.intercept(ApiVersionsRequest, Edit(offer))
        async with new_producer(cluster, transactional_id="x") as producer:
            async with producer.transaction():
                await producer.send(TOPIC, b"value")
    assert {seen.version for seen in cluster.requests(InitProducerIdRequest)} == {5}


# -- Brokers that become another Kafka while a producer runs


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
