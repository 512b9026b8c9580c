"""The pieces of Python on the pages of the manual run as they stand, in simulated time.

There `localhost:9092` is a cluster of the test's own, whatever listens on the machine. A piece goes
on for some simulated seconds, or to its end. Names that readers have to bring are in `Prepared`.
"""

from __future__ import annotations

import ast
import asyncio
import datetime
import json
import logging
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation
from tests.examples.scripts import REPOSITORY

TOPICS = ("my-topic", "orders", "stock", "invoices")
RETRIES = ("orders-retry-1", "orders-retry-2", "orders-dead-letter")

# Pages whose pieces run here; of each page, what does not, and why.
RUN = "it runs"
PROGRAM = "a whole program: tests/test_docs.py runs it"
HALF = "what is around it in a program of the reader's own is missing"
TLS = "needs certificates: tests/examples/test_security_examples.py runs the like"
SPARK = "needs Spark: tests/spark and tests/integration/test_spark*.py run the like"
THEIRS = "the code of another client, beside ours"
TYPES = "for type checkers: tests/typing has the like"
FRAMEWORK = "needs a framework that is no part of the environment of the tests"
COLLECTED = "tests for pytest to collect: tests/testing/test_plugin.py runs the like"
DEAD_LETTERS = "the fake cluster is as of Kafka 4.3: tests/integration/test_share.py has it"
CONTROLLER = "the fake cluster has no listener of controllers: tests/integration has it"

PAGES = {
    "README": [PROGRAM],
    "queues": [*[RUN] * 5, DEAD_LETTERS, RUN],
    "admin": [*[RUN] * 8, CONTROLLER, *[RUN] * 4],
    "concepts": [RUN, RUN, RUN, RUN],
    "consumer": [*[RUN] * 8, HALF, *[RUN] * 3],
    "errors": [RUN],
    "from_confluent": [THEIRS, RUN],
    "from_kafka_python": [THEIRS, RUN],
    "from_spark_kafka": [SPARK],
    "groups": [RUN, RUN, RUN],
    "lake": [SPARK],
    "logs": ["changes the levels of loggers for the tests after it"],
    "oauth": [HALF] * 5,
    "observability": [HALF, RUN, HALF, HALF, RUN, RUN, RUN, RUN, *[FRAMEWORK] * 3],
    "parallel": [RUN, RUN, RUN],
    "producer": [RUN, RUN, RUN, RUN],
    "providers": [TLS, TLS],
    "quickstart": [PROGRAM] * 3,
    "recipes": [*[RUN] * 4, RUN if sys.version_info >= (3, 11) else "needs asyncio.TaskGroup"],
    "schemas": ["needs a schema registry"],
    "security": [TLS, TLS, TLS, TLS, TLS, HALF, HALF],
    "spark": [SPARK] * 6,
    "spark_clusters": [SPARK],
    "testing": [
        *[COLLECTED] * 3,
        HALF,
        COLLECTED,
        RUN,
        *[COLLECTED] * 5,
        RUN,
        HALF,
        COLLECTED,
        HALF,
    ],
    "transactions": [RUN],
    "tuning": [RUN, HALF],
    "types": [TYPES] * 4,
}


@dataclass
class Block:
    """A piece of Python on a page."""

    page: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def blocks_of(page: str) -> Iterator[Block]:
    path = REPOSITORY / "README.rst" if page == "README" else REPOSITORY / f"docs/{page}.rst"
    pattern = r"\.\. code-block:: python\n(?:    :.*\n)*\n((?:(?:    .*)?\n)+)"
    for number, found in enumerate(re.findall(pattern, path.read_text())):
        yield Block(page, number, "\n".join(line[4:] for line in found.splitlines()))


def blocks_that_run() -> list[Block]:
    return [
        block
        for page, marks in PAGES.items()
        for block, mark in zip(blocks_of(page), marks, strict=True)
        if mark is RUN
    ]


def test_every_block_is_run_or_has_a_reason() -> None:
    pages = {path.stem for path in (REPOSITORY / "docs").glob("*.rst")} | {"README"}
    counted = {page: len(list(blocks_of(page))) for page in sorted(pages)}
    assert {page: count for page, count in counted.items() if count} == {
        page: len(marks) for page, marks in sorted(PAGES.items())
    }


class Prepared:
    """The names that a piece may use."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.names: dict[str, Any] = {name: getattr(aiokafka, name) for name in aiokafka.__all__}
        self.names |= {
            "asyncio": asyncio,
            "json": json,
            "signal": signal,
            "ParallelConsumer": ParallelConsumer,
            "ProduceRequest": ProduceRequest,
            "log": logging.getLogger("aiokafka.tests"),
            "tp": TopicPartition("my-topic", 0),
            "first": TopicPartition("orders", 0),
            "second": TopicPartition("orders", 1),
            "yesterday": datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1),
            "bill": self.bill,
            "handle": self.handle,
        }
        for name in ("process", "charge", "audit", "keep_for_later"):
            self.names[name] = self.see
        for name in ("save_state", "load_state", "forget_state"):
            self.names[name] = self.see

    async def see(self, *arguments: Any) -> None:
        self.seen.append(arguments)

    def bill(self, what: Any) -> Any:
        """Return a value for a record; what is awaited is a record that is billed."""
        return what if isinstance(what, bytes) else self.see(what)

    def handle(self, what: Any) -> Any:
        """Note a value, or be awaited for a record."""
        if isinstance(what, bytes):
            self.seen.append(what)
            return None
        return self.see(what)


@dataclass
class Setting:
    """What a piece takes for granted, where that is unusual."""

    consumer: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, Any] = field(default_factory=dict)
    is_started: bool = True
    topics: tuple[str, ...] = (*TOPICS, *RETRIES)
    groups: tuple[str, ...] = ()
    sent_to: str = ""


BY_HAND = {"enable_auto_commit": False}
SETTINGS = {
    "admin-1": Setting(topics=()),
    "admin-10": Setting(groups=("billing-eu", "billing-us")),
    "admin-11": Setting(groups=("billing-eu",)),
    "admin-12": Setting(groups=("billing-eu", "billing-us")),
    "concepts-3": Setting(
        {**BY_HAND, "isolation_level": "read_committed"},
        {"transactional_id": "t"},
        is_started=False,
    ),
    "consumer-9": Setting(is_started=False),
    "groups-1": Setting({"group_protocol": "consumer"}, is_started=False),
    "observability-1": Setting(sent_to="orders"),
    "parallel-1": Setting(BY_HAND, is_started=False),
    "producer-3": Setting(producer={"transactional_id": "t"}),
}


@asynccontextmanager
async def clients(
    cluster: FakeCluster, page: str, setting: Setting
) -> AsyncIterator[dict[str, Any]]:
    """The clients that pieces of a page take for granted."""
    servers = {"bootstrap_servers": cluster.bootstrap_servers}
    producer = AIOKafkaProducer(**servers, **setting.producer)
    consumer = AIOKafkaConsumer(
        group_id="g", auto_offset_reset="earliest", **servers, **setting.consumer
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(consumer.stop)
        stack.push_async_callback(producer.stop)
        admin = await stack.enter_async_context(AIOKafkaAdminClient(**servers))
        if page != "groups":
            consumer.subscribe(["my-topic", "orders"])
        if setting.is_started and page != "admin":
            await producer.start()
            await consumer.start()
        if setting.sent_to:
            await producer.send_and_wait(setting.sent_to, b"x")
        for group in setting.groups:
            async with AIOKafkaConsumer("orders", group_id=group, **servers) as member:
                await member.commit({TopicPartition("orders", 0): 1})
        yield {"admin": admin, "producer": producer, "consumer": consumer, "kafka_cluster": cluster}


@pytest.mark.simulated(seeds=1, limit_s=600)
@pytest.mark.parametrize("block", blocks_that_run(), ids=str)
async def test_block(block: Block, simulation: Simulation) -> None:
    setting = SETTINGS.get(str(block), Setting())
    async with simulation.cluster(brokers=4) as cluster:
        for topic in setting.topics:
            await cluster.create_topic(topic, partitions=2)
        for topic in {"my-topic", "orders"}.intersection(setting.topics):
            for number in range(4):
                cluster.log(topic, number % 2).append(b"value %d" % number, key=b"key")
        async with clients(cluster, block.page, setting) as given:
            names = {**Prepared().names, "cluster": cluster, **given}
            await play(block, names)
            for made in names.values():
                if isinstance(made, AIOKafkaConsumer | AIOKafkaProducer):
                    await made.stop()


async def play(block: Block, names: dict[str, Any]) -> None:
    """Run a piece to its end, or for a while."""
    text = block.text.replace("asyncio.run(main())", "await main()")
    code = compile(text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(code, names)
    if made is None:
        return
    task = asyncio.ensure_future(made)
    await asyncio.wait({task}, timeout=60)
    if not task.done():
        task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        assert task.cancelled()
