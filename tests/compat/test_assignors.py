"""Assignors as programs for aiokafka have them: classes with class methods, subclasses, others'."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any
from unittest import mock

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.testing import FakeCluster

ALL = (
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
)


class Cluster:
    """What an assignor asks of a cluster."""

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0, 1}


@pytest.mark.parametrize("cls", ALL)
def test_calls_on_the_class(cls: Any) -> None:
    class Own(cls):  # type: ignore[misc]
        """So that nothing is noted on the class that others use."""

    assert isinstance(Own.name, str)
    metadata = Own.metadata(["t"])
    assert metadata.subscription == ["t"]
    shares = Own.assign(Cluster(), {"a": metadata, "b": metadata})
    assert sorted(len(share.partitions()) for share in shares.values()) == [1, 1]
    assert Own.on_assignment(shares["a"]) is None
    assert type(Own.metadata(["t"])) is ConsumerProtocolMemberMetadata
    assert Own().metadata(["t"]).subscription == ["t"]


def test_a_class_and_its_instances_note_apart() -> None:
    class Own(StickyPartitionAssignor):
        pass

    instance = Own()
    Own.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [1])]))
    assert Own.metadata(["t"]).user_data
    assert not instance.metadata(["t"]).user_data
    assert not StickyPartitionAssignor.metadata(["t"]).user_data


class Counted(RoundRobinPartitionAssignor):
    """Overrides class methods with class methods, as aiokafka's own are."""

    name = "counted"
    calls: list[str] = []

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        cls.calls.append("assign")
        return super().assign(cluster, members)

    @classmethod
    def metadata(cls, topics: Any) -> Any:
        cls.calls.append("metadata")
        return super().metadata(topics)

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        cls.calls.append("on_assignment")
        super().on_assignment(assignment)


class CountedSticky(StickyPartitionAssignor):
    name = "counted-sticky"
    calls: list[str] = []

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:  # type: ignore[override]
        cls.calls.append("assign")
        return super().assign(cluster, members)

    @classmethod
    def metadata(cls, topics: Any) -> Any:  # type: ignore[override]
        cls.calls.append("metadata")
        return super().metadata(topics)

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:  # type: ignore[override]
        cls.calls.append("on_assignment")
        super().on_assignment(assignment)


class Everything(AbstractPartitionAssignor):
    """An own assignor with state, given as an instance by Faust, as a class by others."""

    name = "everything"
    calls: list[str] = []

    def __init__(self) -> None:
        self.seen = 0

    def assign(self, cluster: Any, members: Any) -> Any:
        self.calls.append("assign")
        (member,) = members
        numbers = sorted(cluster.partitions_for_topic("t"))
        assert members[member].subscription == ["t"]
        return {member: ConsumerProtocolMemberAssignment(0, [("t", numbers)], b"")}

    def metadata(self, topics: Any) -> Any:
        self.calls.append("metadata")
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    def on_assignment(self, assignment: Any) -> None:
        self.seen += 1
        self.calls.append("on_assignment")


class Duck:
    """Nothing but the methods, and bytes for results."""

    name = "duck"
    calls: list[str] = []

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        cls.calls.append("assign")
        return {
            member: ConsumerProtocolMemberAssignment(0, [("t", [0, 1])]).encode()
            for member in members
        }

    @classmethod
    def metadata(cls, topics: Any) -> bytes:
        cls.calls.append("metadata")
        return ConsumerProtocolMemberMetadata(0, list(topics)).encode()

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        cls.calls.append("on_assignment")
        assert assignment.partitions()


@pytest.mark.parametrize(
    "strategy",
    [Counted, CountedSticky, Everything, Everything(), Duck, Duck()],
    ids=lambda strategy: getattr(strategy, "__name__", "instance"),
)
async def test_a_group_with_an_assignor_of_ones_own(strategy: Any) -> None:
    strategy.calls.clear()
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        consumer = AIOKafkaConsumer(
            "t",
            group_id="g",
            bootstrap_servers=cluster.bootstrap_servers,
            partition_assignment_strategy=[strategy],
        )
        async with consumer:
            assert consumer.assignment() == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert strategy.calls == ["metadata", "assign", "on_assignment"]


async def test_a_subclass_of_the_sticky_assignor_is_sticky() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        consumer = AIOKafkaConsumer(
            "t",
            group_id="g",
            bootstrap_servers=cluster.bootstrap_servers,
            partition_assignment_strategy=[CountedSticky],
        )
        async with consumer:
            assert len(consumer.assignment()) == 2
    owned = CountedSticky.metadata(["t"]).user_data
    # Noted by super().on_assignment, sent by super().metadata.
    assert b"\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x01" in owned


@pytest.mark.parametrize(
    "name", ["range.RangePartitionAssignor", "roundrobin.RoundRobinPartitionAssignor"]
)
async def test_assignors_of_kafka_python(name: str) -> None:
    module, _, cls = name.partition(".")
    foreign = pytest.importorskip(f"kafka.coordinator.assignors.{module}")
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        consumers = [
            AIOKafkaConsumer(
                "t",
                group_id="g",
                bootstrap_servers=cluster.bootstrap_servers,
                heartbeat_interval_ms=20,
                partition_assignment_strategy=[getattr(foreign, cls)],
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        try:
            while sorted(len(c.assignment()) for c in consumers) != [1, 1]:
                await asyncio.sleep(0.01)
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in consumers))


def test_tools_look_at_the_abstract_class() -> None:
    names = [name for name, _ in inspect.getmembers(AbstractPartitionAssignor)]
    assert "on_generation_assignment" in names
    stand_in = mock.create_autospec(AbstractPartitionAssignor)
    assert stand_in.on_generation_assignment(1) is not None


async def test_topics_are_a_set() -> None:
    class Own(RoundRobinPartitionAssignor):
        name = "own"

        @classmethod
        def metadata(cls, topics: Any) -> Any:
            return ConsumerProtocolMemberMetadata(0, topics - {"u"}, b"")

    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("u")
        consumer = AIOKafkaConsumer(
            "t",
            "u",
            group_id="g",
            bootstrap_servers=cluster.bootstrap_servers,
            partition_assignment_strategy=[Own],
        )
        async with consumer:
            assert consumer.assignment() == {TopicPartition("t", 0)}
