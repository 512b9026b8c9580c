"""What the fake cluster forgets with the records that retention deletes."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.testing import Edit, FakeCluster


async def test_an_open_transaction_begins_where_the_log_does() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        log = cluster.log("t", 0)
        servers = cluster.bootstrap_servers
        options = {"bootstrap_servers": servers, "isolation_level": "read_committed"}
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x")
        async with producer, AIOKafkaConsumer(**options) as consumer:
            await producer.begin_transaction()
            for value in (b"0", b"1", b"2"):
                await producer.send_and_wait("t", value)
            log.delete_before(2)
            assert log.last_stable_offset == 2
            tp = TopicPartition("t", 0)
            assert await consumer.beginning_offsets([tp]) == await consumer.end_offsets([tp])
            await producer.commit_transaction()
            assert log.last_stable_offset == 4


async def test_aborted_transactions_go_with_their_records() -> None:
    told: list[int] = []

    def note(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                told.extend(one.first_offset for one in data.aborted_transactions or ())

    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        log = cluster.log("t", 0)
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
            for value in (b"old", b"new"):
                await producer.begin_transaction()
                await (await producer.send("t", value))
                await producer.abort_transaction()
        ends = [aborted.last_offset for aborted in log.producers.aborted]
        assert len(ends) == 2
        log.delete_before(ends[0] + 1)
        assert [aborted.last_offset for aborted in log.producers.aborted] == ends[1:]
        log.append(b"plain")
        cluster.intercept(FetchRequest, Edit(note))
        options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with timeout(20), AIOKafkaConsumer(bootstrap_servers=servers, **options) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert (await consumer.getone()).value == b"plain"
    assert told
    assert min(told) > ends[0]
