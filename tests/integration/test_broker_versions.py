"""Brokers of every age: records with each codec that they know, and every administrative call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import BrokerResponseError, UnknownError, UnsupportedVersionError
from docs._ext.admin_calls import operations
from tests.admin.operations import CALLS, TP
from tests.admin.support import commit
from tests.kafka.fixtures import is_long_run, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import PATIENT
from tests.kafka.versions import ALL_RUNS, GENERATIONS, VERSIONS

COUNT = 1_000
FIRST_TIMESTAMP = 1_700_000_000_000

pytestmark = [pytest.mark.long]


@pytest.fixture(
    scope="module",
    params=ALL_RUNS if is_long_run() else GENERATIONS,
    ids=lambda run: f"{run[0]}-{run[1]}",
)
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One broker of each version in turn."""
    need_own_brokers()
    version, mode = request.param
    with KafkaCluster(version, mode=mode, config=settings_of(version, mode)) as cluster:
        yield cluster


def settings_of(version: str, mode: str) -> dict[str, str]:
    """Let topics be deleted, which brokers before 1.0 do not, and have access control lists.

    No broker dies here, so none may be taken for dead on a busy machine.
    """
    key = VERSIONS[version].key
    patient = PATIENT if mode == "kraft" else {"zookeeper.session.timeout.ms": "30000"}
    found = {"num.partitions": "2", "delete.topic.enable": "true", **patient}
    if mode == "kraft":
        name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer" if key >= (3, 3) else ""
    elif key >= (2, 4):
        name = "kafka.security.authorizer.AclAuthorizer"
    else:
        name = "kafka.security.auth.SimpleAclAuthorizer"
    if name:
        found |= {"authorizer.class.name": name, "super.users": "User:ANONYMOUS"}
    return found


def codecs_of(broker: KafkaCluster) -> list[str | None]:
    codecs: list[str | None] = [None, "gzip", "snappy", "lz4"]
    return [*codecs, "zstd"] if broker.version.key >= (2, 1) else codecs


async def test_a_round_with_each_codec(broker: KafkaCluster) -> None:
    for codec in codecs_of(broker):
        topic = f"round-{codec}"
        await produce(broker, topic, codec)
        records = await consume(broker, topic)
        assert [record.offset for record in records] == list(range(COUNT)), codec
        for number, record in enumerate(records):
            check(broker, record, number)


async def produce(broker: KafkaCluster, topic: str, codec: str | None) -> None:
    with_headers = broker.version.key >= (0, 11)
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, compression_type=codec, linger_ms=5
    )
    async with producer:
        # The topic is created by being asked for: the oldest brokers have no other way.
        await producer.send_and_wait(topic, b"", partition=0, **record_of(0, with_headers))
        futures = [
            await producer.send(
                topic, b"v" * number, partition=0, **record_of(number, with_headers)
            )
            for number in range(1, COUNT)
        ]
        for future in futures:
            await future


def record_of(number: int, with_headers: bool) -> dict[str, object]:
    record: dict[str, object] = {
        "key": None if number % 3 == 0 else b"key-%d" % number,
        "timestamp_ms": FIRST_TIMESTAMP + number,
    }
    if with_headers:
        record["headers"] = [("number", b"%d" % number)]
    return record


async def consume(broker: KafkaCluster, topic: str) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    async with consumer:
        while len(records) < COUNT:
            got = await asyncio.wait_for(consumer.getmany(timeout_ms=5000), 20)
            records += got.get(partition, [])
        assert await consumer.end_offsets([partition]) == {partition: COUNT}
    return records


def check(broker: KafkaCluster, record: ConsumerRecord, number: int) -> None:
    wanted = record_of(number, with_headers=True)
    assert record.key == wanted["key"]
    assert record.value == b"v" * number
    if broker.version.key >= (0, 10):
        assert record.timestamp == wanted["timestamp_ms"]
    if broker.version.key >= (0, 11):
        assert list(record.headers) == wanted["headers"]


# -- administration --------------------------------------------------------------------------------

# An error that names the API, or what of it is lacking, and the release that has it.
NAMED = re.compile(r"\b[A-Z]\w+[a-z]\b.* \d\.\d")
FIRST = {call.removeprefix("admin."): release for call, _, release, _ in operations()}
# The brokers know the API, and say that their voters are those of a configuration file.
REFUSED = {"brokers.add_voter", "brokers.remove_voter"}
# What brokers with KRaft have had since then, the first generation of them apart.
KRAFT = {"users": (3, 5), "tokens": (3, 6)}
# The short form leaves out what the others show.
SHORT = (
    *(("0.11.0.3", "zk"), ("2.1.1", "zk"), ("3.9.2", "zk")),
    *(("2.8.2", "kraft"), ("4.0.2", "kraft"), ("4.4.0", "kraft")),
)


def is_right(broker: KafkaCluster, name: str, lacking: str | None) -> bool:
    """Say whether a call works, or lacks something, as the table of the manual says."""
    is_named = lacking is None or bool(NAMED.search(lacking))
    if name not in FIRST or not is_named:
        return is_named or name in REFUSED
    room = name.partition(".")[0]
    key, (first, *kraft) = broker.version.key, FIRST[name].split(" ", 1)
    if key[:3] < tuple(map(int, first.split("."))):
        return lacking is not None
    may_lack = name in REFUSED or (kraft and broker.mode == "zk")
    if broker.mode == "kraft":
        may_lack = may_lack or key < (3,) or key < KRAFT.get(room, ())
    return lacking is None or bool(may_lack)


async def test_every_administrative_call(broker: KafkaCluster) -> None:
    """It works, or names the API and the first Kafka that has it, as the table of the manual says.

    Errors that a broker responds with count as work: it knows the API, and has decided.
    """
    if not is_long_run() and (broker.version.number, broker.mode) not in SHORT:
        pytest.skip("part of the long form")
    await prepare(broker)
    wrong: dict[str, str | None] = {}
    async with AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        for name, call in CALLS.items():
            lacking = None
            try:
                await call(admin)
            except UnsupportedVersionError as error:
                lacking = str(error)
            except UnknownError as error:
                wrong[name] = str(error)
            except BrokerResponseError:
                continue
            if not is_right(broker, name, lacking):
                wrong[name] = lacking
    assert wrong == {}


async def prepare(broker: KafkaCluster) -> None:
    """Make what the calls are about."""
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for topic in ("t", "grown", "old", "older"):
            # The topic is created by being asked for: the oldest brokers have no other way.
            await producer.send_and_wait(topic, b"value", partition=0)
        for _ in range(5):
            await producer.send_and_wait(TP.topic, b"value", partition=TP.partition)
    for group in ("g", "old"):
        await commit(broker, group, {TP: 2})
