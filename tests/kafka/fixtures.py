"""Fixtures for tests on a real Kafka; ``tests/conftest.py`` makes them known to pytest."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest

from tests.kafka.docker_broker import DockerBroker, chosen_version
from tests.kafka.jars import missing_tools
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic

MakeTopic = Callable[..., Awaitable[str]]


class Kafka(Protocol):
    """What the fixtures give: a Kafka that runs."""

    @property
    def bootstrap_servers(self) -> str: ...

    def logs(self, lines: int = 40) -> str: ...


@dataclass(frozen=True)
class RunningKafka:
    """A Kafka that was started elsewhere (``--kafka=HOST:PORT``)."""

    bootstrap_servers: str

    def logs(self, lines: int = 40) -> str:
        return f"the logs of {self.bootstrap_servers} are not ours to read"


@dataclass(frozen=True)
class Scale:
    """How much a test with a long form does."""

    is_long: bool

    def __call__(self, short: int, long: int) -> int:
        return long if self.is_long else short


def is_long_run() -> bool:
    return os.environ.get("AIOKAFKA_LONG", "") not in ("", "0")


@pytest.fixture(scope="session")
def scale() -> Scale:
    """``scale(20_000, 1_000_000)``: the first, or with AIOKAFKA_LONG=1 the second."""
    return Scale(is_long_run())


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """One broker of the newest version, shared by all tests: use topics of your own."""
    chosen: str = request.config.getoption("--kafka")
    version = chosen_version(chosen)
    if ":" in chosen and not version:
        yield RunningKafka(chosen)
        return
    broker = DockerBroker(version) if version else KafkaCluster()
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def kafka3() -> Iterator[KafkaCluster]:
    """Three brokers for one test module, which may kill and restart them."""
    need_own_brokers()
    with KafkaCluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def make_topic(kafka: Kafka) -> MakeTopic:
    """``await make_topic(partitions=1, replication_factor=1, config={})`` -> a new topic's name."""

    async def make(
        partitions: int = 1, replication_factor: int = 1, config: dict[str, str] | None = None
    ) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        servers = kafka.bootstrap_servers
        await create_topic(servers, name, partitions, replication_factor, config or {})
        return name

    return make


@pytest.fixture
async def topic(make_topic: MakeTopic) -> str:
    """The name of a new topic with one partition."""
    return await make_topic()


def need_own_brokers() -> None:
    """Skip a test that starts brokers of its own where that cannot be."""
    missing = missing_tools()
    if missing:
        pytest.skip(missing)
