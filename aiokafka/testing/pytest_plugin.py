"""The pytest plugin, found by itself once aiokafka is installed.

It gives one fixture, ``kafka_cluster``: a started :class:`~aiokafka.testing.FakeCluster`, new for
each test. A marker passes arguments to it::

    async def test_order_is_sent(kafka_cluster):
        await shop.order(bootstrap_servers=kafka_cluster.bootstrap_servers)
        assert len(kafka_cluster.log("orders").records()) == 1

    @pytest.mark.kafka_cluster(brokers=3, as_version="2.8")
    async def test_survives_a_broker(kafka_cluster):
        await kafka_cluster.stop_broker(0)
        ...

It works with pytest-asyncio in both of its modes, and with the plugin of anyio where that is the
only one. The cluster runs in the loop of the test.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiokafka.testing.cluster import FakeCluster

_MARKER = "kafka_cluster(brokers=1, **options): arguments of the FakeCluster in the fixture"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", _MARKER)


def _async_fixture() -> Any:
    """pytest-asyncio wants its own decorator, except in its auto mode; others take pytest's."""
    try:
        return importlib.import_module("pytest_asyncio").fixture
    except ImportError:
        return pytest.fixture


async def _kafka_cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    """A started fake Kafka cluster; ``@pytest.mark.kafka_cluster(...)`` gives its arguments."""
    from aiokafka.testing.cluster import FakeCluster  # not at start-up: most runs do not use it

    marker = request.node.get_closest_marker("kafka_cluster")
    options = marker.kwargs if marker is not None else {}
    async with FakeCluster(*(marker.args if marker is not None else ()), **options) as cluster:
        yield cluster


kafka_cluster = _async_fixture()(_kafka_cluster, name="kafka_cluster")
