"""A user's own batch takes rows that are columns."""

from __future__ import annotations

from aiokafka.testing import FakeCluster
from tests.record.samples import Item
from tests.support.producers import TOPIC, new_producer
from tests.support.rows import in_order, source

RECORDS = [Item(1000 + n, b"k%d" % n, b"v" * 50, (("h", b"1"),)) for n in range(100)]


async def test_rows_are_sent(cluster: FakeCluster) -> None:
    rows, order = source(RECORDS), in_order(100)
    async with new_producer(cluster, max_batch_size=2000) as producer:
        start = batches = 0
        while start < 100:
            batch = producer.create_batch()
            before, start = start, batch.append_rows(rows, order, start)
            assert batch.record_count() == start - before > 0
            assert batch.size() <= 2000
            assert batch.first_timestamp == 1000 + before
            sent = await producer.send_batch(batch, TOPIC, partition=0)
            assert (await sent).timestamp == 1000 + before
            batches += 1
    assert batches > 3
    found = [Item(r.timestamp, r.key, r.value, r.headers) for r in cluster.log(TOPIC, 0).records()]
    assert found == RECORDS


async def test_a_closed_batch_takes_no_rows(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        assert batch.append_rows(source(RECORDS), in_order(100), 10, 20) == 20
        batch.close()
        assert batch.append_rows(source(RECORDS), in_order(100), 20) == 20
        assert batch.record_count() == 10


async def test_rows_follow_records(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=7, key=None, value=b"first")
        batch.append_rows(source(RECORDS), in_order(2))
        assert batch.first_timestamp == 7
        await (await producer.send_batch(batch, TOPIC, partition=0))
    assert [r.value for r in cluster.log(TOPIC, 0).records()] == [b"first", b"v" * 50, b"v" * 50]
