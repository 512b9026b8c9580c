"""Parts of the clients that tests of tracers replace, to do without a broker."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

TP = TopicPartition("t", 1)
RECORD = ConsumerRecord("t", 1, 2, 3, 0, b"k", b"v", None, 1, 1, ())


async def detached_producer(**options: Any) -> AIOKafkaProducer[Any, Any]:
    producer = AIOKafkaProducer(**options)
    producer.client.bootstrap = mock.AsyncMock()  # type: ignore[method-assign]
    producer.client._wait_on_metadata = mock.AsyncMock()  # type: ignore[method-assign]
    producer._message_accumulator.add_message = mock.AsyncMock()  # type: ignore[method-assign]
    producer._sender.start = mock.AsyncMock()  # type: ignore[method-assign]
    producer._partition = mock.Mock(return_value=1)  # type: ignore[method-assign]
    await producer.start()
    return producer


async def detached_consumer(**options: Any) -> AIOKafkaConsumer[Any, Any]:
    consumer = AIOKafkaConsumer(**options)
    consumer._client.bootstrap = mock.AsyncMock()  # type: ignore[method-assign]
    consumer._client._wait_on_metadata = mock.AsyncMock()  # type: ignore[method-assign]
    await consumer.start()
    consumer._fetcher.next_record = mock.AsyncMock()  # type: ignore[method-assign]
    consumer._fetcher.fetched_records = mock.AsyncMock()  # type: ignore[method-assign]
    return consumer


async def test_what_is_sent_without_a_broker() -> None:
    producer = await detached_producer(value_serializer=str.encode)
    add: Any = producer._message_accumulator.add_message
    await producer.send("t", "v", headers=[("h", b"1")])
    add.assert_awaited_with(TP, None, b"v", 40.0, timestamp_ms=None, headers=[("h", b"1")])
    await producer.send("t", "v", key=b"k", timestamp_ms=5)
    add.assert_awaited_with(TP, b"k", b"v", 40.0, timestamp_ms=5, headers=[])
    await producer.stop()


@pytest.mark.parametrize("options", [{}, {"group_id": "g", "client_id": "c"}])
async def test_what_is_read_without_a_broker(options: dict[str, Any]) -> None:
    consumer = await detached_consumer(**options)
    one: Any = consumer._fetcher.next_record
    many: Any = consumer._fetcher.fetched_records
    one.return_value, many.return_value = RECORD, {TP: [RECORD]}
    assert [await consumer.getone(), await consumer.getone(TP)] == [RECORD, RECORD]
    assert one.await_args_list == [mock.call(()), mock.call((TP,))]
    assert await consumer.getmany() == await consumer.getmany(TP, timeout_ms=500) == {TP: [RECORD]}
    first, second = mock.call((), 0.0, max_records=None), mock.call((TP,), 0.5, max_records=None)
    assert many.await_args_list == [first, second]
    await consumer.stop()
