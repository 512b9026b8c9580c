"""How brokers are told to refuse what got no response, before KIP-890: what can go wrong then."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.errors import KafkaTimeoutError
from aiokafka.producer import AIOKafkaProducer
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Delay, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, transactional

OLD_RELEASES = ["0.11", "2.8"]


async def make_cluster(cluster: FakeCluster) -> None:
    """The coordinator of the transactions is another broker than the one that loses responses."""
    await cluster.create_topic(TOPIC)
    cluster.move_leader((TOPIC, 0), 0)
    cluster.move_coordinator("group", "group", 0)
    cluster.move_coordinator("transaction", "worker", 1)


async def begin_with_stray_offsets(cluster: FakeCluster, producer: AIOKafkaProducer) -> None:
    """Begin a transaction with offsets that were sent twice: the first response was lost."""
    await producer.begin_transaction()
    cluster.intercept(TxnOffsetCommitRequest, Cut(handled=True), times=1)
    await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 10}, "group")


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_a_commit_that_is_repeated_does_not_begin_its_protection_again(release: str) -> None:
    """No single call has the time for all of it."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, max_block_ms=500) as producer:
                await begin_with_stray_offsets(cluster, producer)
                for slow in (AddOffsetsToTxnRequest, EndTxnRequest):
                    cluster.intercept(slow, Delay(0.3))
                for calls in range(1, 10):
                    try:
                        await producer.commit_transaction()
                    except KafkaTimeoutError:
                        await asyncio.sleep(0.3)  # until what was given up is off the connection
                    else:
                        return calls
        return 0

    assert simulate(main) == 3
