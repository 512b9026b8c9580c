"""The room for transactions of the admin client, on a real Kafka."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, HangingTransaction, TransactionState
from aiokafka.errors import (
    InvalidRegularExpression,
    ProducerFenced,
    TransactionalIdNotFound,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.structs import TopicPartition
from tests.kafka.fixtures import Kafka, MakeTopic
from tests.testing.support import RawClient, batch, produce

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)

_OLD_PRODUCE = 11  # does not enter its partitions into the transaction (KIP-890)


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


@asynccontextmanager
async def opened(kafka: Kafka, name: str, topic: str) -> AsyncIterator[AIOKafkaProducer]:
    """Give a producer whose transaction is open in partition 0 of a topic."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name)
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        yield producer


def unique() -> str:
    return f"tx-{uuid.uuid4().hex[:10]}"


async def test_what_is_open(kafka: Kafka, admin: AIOKafkaAdminClient, topic: str) -> None:
    name, tp = unique(), TopicPartition(topic, 0)
    with pytest.raises(TransactionalIdNotFound, match=name):
        await admin.transactions.describe([name])
    began = time.time() * 1000
    async with opened(kafka, name, topic) as producer:
        known = (await admin.transactions.describe([name]))[name]
        assert (known.state, known.partitions) == (TransactionState.ONGOING, {tp})
        assert known.start_ms is not None and began - 1000 < known.start_ms < began + 60_000
        assert known.timeout_ms == 60_000
        listed = await admin.transactions.list(transactional_id_pattern=f"{name[:-2]}.*")
        (one,) = [each for each in listed if each.transactional_id == name]
        assert (one.producer_id, one.state) == (known.producer_id, TransactionState.ONGOING)
        assert one.coordinator == known.coordinator
        assert await admin.transactions.list(
            states=[TransactionState.ONGOING], producer_ids=[known.producer_id], duration_ms=0
        ) == [one]
        assert not await admin.transactions.list(
            states=[TransactionState.DEAD], producer_ids=[known.producer_id]
        )
        with pytest.raises(InvalidRegularExpression):
            await admin.transactions.list(transactional_id_pattern="(")
        ((writer,),) = (await admin.transactions.producers([tp])).values()
        assert (writer.producer_id, writer.transaction_start_offset) == (known.producer_id, 0)
        assert (writer.producer_epoch, writer.last_sequence) == (known.producer_epoch, 0)
        assert await admin.transactions.find_hanging([tp], older_than_ms=0) == []
        await producer.commit_transaction()


async def test_a_producer_is_fenced(kafka: Kafka, admin: AIOKafkaAdminClient, topic: str) -> None:
    first, second, fresh = unique(), unique(), unique()
    async with opened(kafka, first, topic) as one, opened(kafka, second, topic) as two:
        before = await admin.transactions.describe([first])
        found = await admin.transactions.fence([first, fresh])
        assert found[first].producer_epoch > before[first].producer_epoch
        assert found[fresh].producer_epoch == 0
        await admin.transactions.force_terminate(second)
        for producer in (one, two):
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
    with pytest.raises(TransactionalIdNotFound):
        await admin.transactions.force_terminate(unique())
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed"
    )
    async with consumer:
        tp = TopicPartition(topic, 0)
        assert await consumer.end_offsets([tp]) == {tp: 4}  # two records, two markers
        consumer.assign([tp])
        await consumer.seek_to_beginning()
        assert await consumer.getmany(timeout_ms=500) == {}


async def until_hanging(
    admin: AIOKafkaAdminClient, kafka: Kafka, tp: TopicPartition
) -> HangingTransaction:
    """Write a batch of a transaction that no coordinator knows; brokers refuse it at first."""
    async with timeout(20), RawClient(kafka.bootstrap_servers.split(",")[0]) as client:
        plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        identity = await client.call(plain, 4)
        while True:
            records = batch(
                b"lost",
                pid=identity.producer_id,
                epoch=identity.producer_epoch,
                sequence=0,
                transactional=True,
            )
            response = await produce(
                client, tp.topic, records, version=_OLD_PRODUCE, transactional_id=unique()
            )
            if not response.error_code:
                break
            await asyncio.sleep(0.05)  # it has not learned of the setting yet
    (found,) = await admin.transactions.find_hanging([tp], older_than_ms=0)
    assert found.producer.producer_id == identity.producer_id
    return found


async def test_a_hanging_transaction(
    kafka: Kafka, admin: AIOKafkaAdminClient, make_topic: MakeTopic
) -> None:
    """Brokers before 3.6, and those without verification, let transactions begin by themselves."""
    tp = TopicPartition(await make_topic(), 0)
    setting = "transaction.partition.verification.enable"
    await admin.configs.alter({("broker", ""): {setting: False}})
    try:
        found = await until_hanging(admin, kafka, tp)
    finally:
        await admin.configs.alter({("broker", ""): {setting: None}})
    assert found.transactional_id is None
    assert found in await admin.transactions.find_hanging(older_than_ms=0)
    assert found not in await admin.transactions.find_hanging(older_than_ms=3_600_000_000_000)
    producer = found.producer
    await admin.transactions.abort(
        tp, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
    )
    assert await admin.transactions.find_hanging([tp], older_than_ms=0) == []
