"""A fake cluster, and consumers on it that are stopped at the end of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import BrokerResponseError
from aiokafka.protocol.messages.fetch import FetchResponse
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0 as T0
from tests.support.consumers import T1 as T1
from tests.support.consumers import T2 as T2
from tests.support.consumers import Start as Start
from tests.support.consumers import fill as fill
from tests.support.consumers import start as start


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        yield fake
        assert fake.failures == []


async def read(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, int]]:
    """(partition, offset) of the next `count` records."""
    records = [await consumer.getone() for _ in range(count)]
    assert all(int(record.value) == record.offset for record in records)
    return [(record.partition, record.offset) for record in records]


def partition_error(error: type[BrokerResponseError], number: int = 0) -> Edit:
    """Change the answer about one partition to an error, when it is in the answer."""

    def change(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == number:
                    data.error_code = error.errno
                    data.records = None

    return Edit(change)
