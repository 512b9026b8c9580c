"""The programs of the guides, on the fake cluster in simulated time."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Cut, FakeCluster
from aiokafka.testing.simulation import Simulation
from tests.examples.scripts import EXAMPLES

GUIDES = EXAMPLES / "guides"
# Tested in test_providers.py and test_lake.py.
ELSEWHERE = {"providers", "to_delta", "to_iceberg", "to_parquet"}
SCHEMAS = {path.stem for path in GUIDES.glob("schemas_*.py")}  # in test_schemas.py
# Their frameworks are no part of the environment of the tests.
FRAMEWORKS = {"fastapi_app", "faststream_app"}
TESTED = {
    "blocking_worker",
    "fan_out",
    "from_sync_code",
    "graceful",
    "into_a_database",
    "large_messages",
    "order_service",
    "outbox",
    "request_reply",
    "schema_evolution",
    "settings_table",
    "tenants",
}

Example = Callable[[str], ModuleType]
once = pytest.mark.simulated(seeds=1, limit_s=300)


class Output:
    """All that was printed so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def lines(self) -> list[str]:
        self._text += self._capsys.readouterr().out
        return self._text.splitlines()


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    return Output(capsys)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """Imports a program of the guides as its neighbours do."""
    monkeypatch.syspath_prepend(GUIDES)
    yield importlib.import_module
    for name in TESTED:
        sys.modules.pop(name, None)


def test_every_program_is_tested() -> None:
    assert {path.stem for path in GUIDES.glob("*.py")} == TESTED | FRAMEWORKS | ELSEWHERE | SCHEMAS


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_what_needs_a_framework_is_python(name: str) -> None:
    path = GUIDES / f"{name}.py"
    compile(path.read_text(), str(path), "exec")


@asynccontextmanager
async def a_cluster(
    simulation: Simulation, *topics: str, partitions: int = 1
) -> AsyncIterator[Any]:
    async with simulation.cluster(brokers=1) as cluster:
        for topic in topics:
            await cluster.create_topic(topic, partitions=partitions)
        yield cluster


@once
async def test_a_service_places_orders_and_reads_them(
    simulation: Simulation, example: Example, output: Output
) -> None:
    async with a_cluster(simulation, "orders") as cluster:
        await example("order_service").run(cluster.bootstrap_servers)
    assert output.lines() == [
        *(f"{{'partition': 0, 'offset': {number}}}" for number in range(3)),
        "totals: {'ada': 33}, well: True",
    ]


@once
async def test_a_service_tells_within_seconds_that_brokers_are_away(
    simulation: Simulation, example: Example
) -> None:
    async with a_cluster(simulation, "orders") as cluster:
        async with example("order_service").OrderService(cluster.bootstrap_servers) as service:
            await cluster.stop_broker(0)
            began = simulation.loop.time()
            with pytest.raises(KafkaError):
                await service.place("ada", 1)
            assert simulation.loop.time() - began < 10
            await cluster.start_broker(0)


@once
async def test_blocking_work_is_done_and_committed(
    simulation: Simulation, example: Example, output: Output
) -> None:
    async with a_cluster(simulation, "charges") as cluster:
        cluster.log("charges").extend([(b"ada", b"%d" % number, ()) for number in range(5)])
        work = asyncio.create_task(
            example("blocking_worker").work(cluster.bootstrap_servers, "charges", 3)
        )
        await cluster.wait_for(lambda: "charged ada 4" in output.lines(), 60)
        simulation.loop.send_signal(signal.SIGTERM)
        await work
        assert output.lines() == [f"charged ada {number}" for number in range(5)]
        assert cluster.groups.committed("workers", "charges", 0) == 5


@once
@pytest.mark.parametrize("instance", [None, "pod-1"])
async def test_sigterm_ends_after_the_batch_is_committed(
    instance: str | None, simulation: Simulation, example: Example, output: Output
) -> None:
    async with a_cluster(simulation, "my-topic", partitions=2) as cluster:
        for partition in (0, 1):
            cluster.log("my-topic", partition).extend([(None, b"x", ())] * 3)
        serving = asyncio.create_task(
            example("graceful").serve(cluster.bootstrap_servers, "my-topic", instance)
        )
        await cluster.wait_for(lambda: len(output.lines()) == 6, 60)
        simulation.loop.send_signal(signal.SIGTERM)
        await serving
        assert output.lines()[-1] == "ended in order"
        for partition in (0, 1):
            assert cluster.groups.committed("graceful", "my-topic", partition) == 3
        assert cluster.groups.state_of("graceful") == ("Stable" if instance else "Empty")


async def test_threads_send_through_one_producer(
    example: Example, kafka_cluster: FakeCluster
) -> None:
    await kafka_cluster.create_topic("my-topic")
    module = example("from_sync_code")

    def send() -> None:
        producer = module.SyncProducer(bootstrap_servers=kafka_cluster.bootstrap_servers)
        try:
            futures = [producer.send("my-topic", value=b"%d" % n) for n in range(5)]
            assert sorted(future.result(50).offset for future in futures) == [0, 1, 2, 3, 4]
            assert producer.send_and_wait("my-topic", value=b"last").offset == 5
        finally:
            producer.close()

    await asyncio.to_thread(send)


@once
async def test_each_request_gets_its_reply(
    simulation: Simulation, example: Example, output: Output
) -> None:
    async with a_cluster(simulation, "requests", "replies") as cluster:
        await example("request_reply").run(cluster.bootstrap_servers)
    assert output.lines() == [f"b'QUESTION {number}'" for number in range(3)]


@once
async def test_a_request_without_a_reply_times_out(
    simulation: Simulation, example: Example
) -> None:
    async with a_cluster(simulation, "requests", "replies") as cluster:
        requester = example("request_reply").Requester(
            cluster.bootstrap_servers, "requests", TopicPartition("replies", 0)
        )
        async with requester:
            with pytest.raises(asyncio.TimeoutError):
                await requester.ask(b"?")


@once
async def test_records_are_in_the_database_once(
    simulation: Simulation, example: Example, tmp_path: Path
) -> None:
    module = example("into_a_database")
    path = tmp_path / "events.db"
    async with a_cluster(simulation, "my-topic", partitions=2) as cluster:
        with closing(module.Database(str(path))) as database:
            for total in (4, 8):
                for partition in (0, 1):
                    cluster.log("my-topic", partition).extend([(b"k", b"v", ())] * 2)
                await module.copy(cluster.bootstrap_servers, "my-topic", database, 500)
                assert rows(path, "events") == total
            assert database.next_offset(TopicPartition("my-topic", 1)) == 4


@once
async def test_a_consumer_that_is_behind_the_database_goes_to_it(
    simulation: Simulation, example: Example, output: Output, tmp_path: Path
) -> None:
    module = example("into_a_database")
    path = tmp_path / "events.db"
    async with a_cluster(simulation, "my-topic") as cluster:
        with closing(module.Database(str(path))) as database:
            cluster.log("my-topic").extend([(b"k", b"v", ())] * 2)
            copying = asyncio.create_task(
                module.copy(cluster.bootstrap_servers, "my-topic", database, 5000)
            )
            await cluster.wait_for(lambda: rows(path, "events") == 2, 60)
            database.write({TopicPartition("my-topic", 0): [Row(2), Row(3)]})
            cluster.log("my-topic").extend([(b"k", b"v", ())] * 3)
            await copying
    assert "nothing written: TopicPartition(topic='my-topic', partition=0) is beyond offset 2" in (
        output.lines()
    )
    assert rows(path, "events") == 5


def test_a_process_that_lost_its_partition_writes_nothing(example: Example, tmp_path: Path) -> None:
    module = example("into_a_database")
    tp = TopicPartition("my-topic", 0)
    path = tmp_path / "events.db"
    with closing(module.Database(str(path))) as old, closing(module.Database(str(path))) as new:
        new.write({tp: [Row(0), Row(1)]})
        with pytest.raises(module.MovedError):
            old.write({TopicPartition("other", 0): [Row(0)], tp: [Row(1), Row(2)]})
        assert old.next_offset(TopicPartition("other", 0)) is None
        # Offsets may be missing, where markers of transactions were.
        old.write({tp: [Row(5)]})
    assert rows(path, "events") == 3


class Row:
    """As much of a record as the database looks at."""

    key = value = b"x"

    def __init__(self, offset: int) -> None:
        self.offset = offset


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count


@once
async def test_the_outbox_keeps_order_and_empties(
    simulation: Simulation, example: Example, tmp_path: Path
) -> None:
    module = example("outbox")
    async with a_cluster(simulation, "orders") as cluster:
        # The first response is lost: it is sent again, and written once.
        cluster.intercept(ProduceRequest, Cut(handled=True), times=1)
        with closing(module.open_database(str(tmp_path / "orders.db"))) as database:
            await module.run(cluster.bootstrap_servers, database, 5)
            assert not module.waiting(database, 1)
        written = cluster.log("orders").records()
    assert [each.key for each in written] == [b"customer %d" % number for number in range(5)]
    assert len({dict(each.headers)["event-id"] for each in written}) == 5


@once
async def test_every_listener_gets_every_record(
    simulation: Simulation, example: Example, output: Output
) -> None:
    async with a_cluster(simulation, "prices") as cluster:
        await example("fan_out").run(cluster.bootstrap_servers, "prices")
    assert output.lines() == [f"listener {number}: [b'one', b'two']" for number in (1, 2)]


@once
async def test_settings_in_a_table(
    simulation: Simulation, example: Example, output: Output
) -> None:
    async with a_cluster(simulation, "settings", partitions=2) as cluster:
        await example("settings_table").run(cluster.bootstrap_servers, "settings")
    assert sorted(output.lines()) == [
        "colour is red",
        "colour: red -> None",
        "limit is 10",
        "limit: 10 -> 20",
        "now: {'limit': 20}",
    ]


async def test_a_slow_listener_has_to_leave(example: Example) -> None:
    module = example("fan_out")

    async def records() -> AsyncIterator[Row]:
        for number in range(3):
            yield Row(number)

    fan = module.FanOut(records(), limit=2)
    async with fan.listen() as values:
        await fan.run()
        assert [await anext(values), await anext(values)] == [b"x", b"x"]
        with pytest.raises(module.TooSlowError):
            await anext(values)


@once
async def test_large_values_are_in_the_store(
    simulation: Simulation, example: Example, output: Output, tmp_path: Path
) -> None:
    module = example("large_messages")
    store = module.Store(tmp_path)
    async with a_cluster(simulation, "my-topic", "claims") as cluster:
        servers = cluster.bootstrap_servers
        await module.run(servers, "my-topic", store)
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await module.send(producer, store, "claims", b"claim:no")
        (written,) = cluster.log("claims").records()
        assert await module.value_of(store, written.value) == b"claim:no"
    assert output.lines() == [
        "5 bytes in the topic, 5 of the value",
        "70 bytes in the topic, 5000000 of the value",
    ]
    with pytest.raises(ValueError, match="no name"):
        store.get("../secret")


@once
async def test_old_and_new_forms_are_read(
    simulation: Simulation, example: Example, output: Output
) -> None:
    async with a_cluster(simulation, "my-topic") as cluster:
        await example("schema_evolution").run(cluster.bootstrap_servers, "my-topic")
    assert output.lines() == [
        "Order(customer='ada', cents=150, currency='EUR')",
        "Order(customer='grace', cents=700, currency='EUR')",
        "offset 2 is no order",
        "Order(customer='barbara', cents=900, currency='USD')",
    ]


@once
async def test_tenants_get_rights_and_limits(
    simulation: Simulation, example: Example, output: Output
) -> None:
    config = {"authorizer.class.name": "an.Authorizer", "super.users": "User:ANONYMOUS"}
    async with simulation.cluster(brokers=1, config=config) as cluster:
        for _ in range(2):
            await example("tenants").run(cluster.bootstrap_servers, ["blue"])
    first, again = output.lines()[:6], output.lines()[6:]
    assert sorted(first) == sorted(again)
    assert "User:blue: READ GROUP blue." in first
    assert first[-1].endswith("1000000 bytes a second")
