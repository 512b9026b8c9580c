"""A fake cluster, and providers of OpenTelemetry that keep spans and metrics in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.consumers import start as start
from tests.support.producers import TOPIC
from tests.support.spans import Seen


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []


@pytest.fixture
def watch() -> Iterator[Callable[..., Seen]]:
    made: list[Seen] = []

    def make(sampler: object = None) -> Seen:
        made.append(Seen(sampler))
        return made[-1]

    yield make
    for seen in made:
        seen.close()


@pytest.fixture
def seen(watch: Callable[..., Seen]) -> Seen:
    return watch()
