"""Tracing libraries replace methods by functions with the parameters of aiokafka 0.14. The package
calls these methods itself, with no further argument."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CommitFailedError
from aiokafka.ranges import PartitionRange, RangeReader
from aiokafka.structs import OffsetAndMetadata
from aiokafka.testing import FakeCluster
from tests.support.signatures import METHODS

TP = TopicPartition("t", 0)
# In 0.14 it takes nothing; nobody replaces it, and which brokers to avoid is part of each choice.
_OWN = {(AIOKafkaClient, "get_random_node")}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        cluster.log("t").extend([(None, b"%d" % number, ()) for number in range(4)])
        yield cluster


def signature_of(written: str) -> inspect.Signature:
    """Return the signature of a method in the table of those of 0.14."""
    kind, parameters = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)],
    )
    for word in written.split():
        if word.startswith("*"):
            if len(word) > 1:
                variable = inspect.Parameter.VAR_POSITIONAL
                parameters.append(inspect.Parameter(word[1:], variable))
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        default = None if word.endswith("=") else inspect.Parameter.empty
        parameters.append(inspect.Parameter(word.strip("="), kind, default=default))
    return inspect.Signature(parameters)


def wrapped(original: Callable[..., Any], written: str) -> Callable[..., Any]:
    """Return a function that has exactly the parameters of 0.14."""
    signature = signature_of(written)

    def wrapper(*args: Any, **named: Any) -> Any:
        signature.bind(*args, **named)
        return original(*args, **named)

    return wrapper


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every method that aiokafka 0.14 has."""
    for cls, methods in METHODS.items():
        for name, (_, written) in methods.items():
            # Compiled classes take no other methods, and nobody traces what a batch does.
            is_special = name.startswith("__") or cls.__name__ in ("BatchBuilder",)
            if not is_special and (cls, name) not in _OWN:
                monkeypatch.setattr(cls, name, wrapped(getattr(cls, name), written))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_groups_with_every_method_replaced(cluster: FakeCluster, protocol: str) -> None:
    async with AIOKafkaConsumer(
        "t",
        group_id="g",
        group_protocol=protocol,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        max_poll_records=2,
    ) as consumer:
        assert (await consumer.getone()).offset == 0
        await consumer.commit()
        await consumer.commit({TP: 1})
        assert await consumer.committed(TP) == 1
        async for record in consumer:
            assert record.offset == 1
            break
        assert sum(map(len, (await consumer.getmany(timeout_ms=1000)).values())) == 2
        assert await consumer.seek_to_committed() is not None
        assert await consumer.seek_to_beginning() is not None
        assert await consumer.end_offsets([TP]) == {TP: 4}
        assert await consumer.beginning_offsets([TP]) == {TP: 0}
        assert await consumer.offsets_for_times({TP: 0}) is not None
        assert await consumer.topics() == {"t"}
        consumer.unsubscribe()
        consumer.assign([TP])
        await consumer.commit({TP: 3})
        assert cluster.groups.committed("g", "t") == 3


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("pattern", [None, "t.*"])
async def test_consumers_without_a_group_with_every_method_replaced(
    cluster: FakeCluster, pattern: str | None
) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    consumer.subscribe([] if pattern else ["t"], pattern)
    async with consumer:
        assert (await consumer.getone()).offset == 0


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("transactional_id", [None, "tx"])
async def test_producers_with_every_method_replaced(
    cluster: FakeCluster, transactional_id: str | None
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id
    )
    async with producer:
        if transactional_id is None:
            assert (await producer.send_and_wait("t", b"v", key=b"k")).offset == 4
            await producer.send("new", b"v")
            await producer.flush()
            batch = producer.create_batch()
            batch.append(timestamp=None, key=None, value=b"v")
            await producer.send_batch(batch, "t", partition=0)
            assert await producer.partitions_for("t") == {0}
            return
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")
            await producer.send_offsets_to_transaction({TP: OffsetAndMetadata(2, "")}, "g")
        await producer.begin_transaction()
        await producer.send("t", b"v")
        await producer.abort_transaction()
    assert cluster.groups.committed("g", "t") == 2


@pytest.mark.usefixtures("traced")
async def test_admin_clients_and_ranges_with_every_method_replaced(cluster: FakeCluster) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("a", 1, 1)])
        assert sorted(await admin.list_topics()) == ["a", "t"]
        assert (await admin.describe_cluster())["brokers"]
        await admin.list_consumer_groups()
        await admin.delete_topics(["a"])
    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        assert await client.fetch_all_metadata()
        async with RangeReader(client, [PartitionRange("t", 0, 0, 4)]) as reader:
            assert await reader.next() is not None


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_tracer_of_commits_has_two_parameters(
    cluster: FakeCluster, protocol: str, copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ddtrace has it; some give the group offsets of their own making."""
    seen: list[tuple[str, dict[Any, Any]]] = []
    original = GroupCoordinator.commit_offsets

    async def traced(self: GroupCoordinator, assignment: Any, offsets: Any) -> None:
        seen.append((self.group_id, dict(offsets)))
        await original(self, assignment, dict(offsets) if copies else offsets)

    monkeypatch.setattr(GroupCoordinator, "commit_offsets", traced)
    async with AIOKafkaConsumer(
        "t",
        group_id="g",
        group_protocol=protocol,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        await consumer.getone()
        await consumer.commit()
        await consumer.commit({TP: (1, "mark")})
        found = (await consumer.committed_offsets([TP]))[TP]
        assert found is not None and (found.offset, found.metadata) == (1, "mark")
        cluster.groups.expire("g", consumer.group_metadata().member_id)
        await consumer.getone()
        with pytest.raises(CommitFailedError):
            await consumer.commit({TP: 2})
    assert [(group, offsets[TP].offset) for group, offsets in seen[:2]] == [("g", 1), ("g", 1)]
