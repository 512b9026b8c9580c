"""The formats of record sets that brokers before Kafka 0.11 are given."""

from __future__ import annotations

import pytest

from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.init_producer_id import InitProducerIdRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Edit, FakeCluster
from tests.support.producers import TOPIC, new_producer

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
