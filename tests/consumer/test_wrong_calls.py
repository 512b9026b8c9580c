"""Wrong arguments raise at once, with the name of the argument; the consumer goes on."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, Start, fill

THING = object()

# The method, its arguments with a wrong one, the type of the error, and the start of its text.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], type[BaseException], str]] = [
    ("assign", (None,), {}, TypeError, "partitions: must be several partitions, not NoneType"),
    ("assign", (T0,), {}, TypeError, "partitions: must be several partitions, not one"),
    ("beginning_offsets", (3,), {}, TypeError, "partitions: must be several partitions, not int"),
    ("end_offsets", ("t",), {}, TypeError, "partitions: must be several partitions, not one str"),
    ("committed_offsets", (3,), {}, TypeError, "partitions: must be several partitions, not int"),
    ("offsets_for_times", (None,), {}, TypeError, "timestamps: must be a dict, not NoneType"),
    (
        "offsets_for_times",
        ({1: 2},),
        {},
        TypeError,
        "Key should be TopicPartition instance in timestamps",
    ),
    ("commit", ({1: 2},), {}, TypeError, "Key should be TopicPartition instance in offsets"),
    ("commit", ({1: 2},), {}, ValueError, "Key should be TopicPartition instance in offsets"),
    ("partitions_for_topic", ([],), {}, TypeError, "topic: must be a str, not list"),
    ("subscribe", (), {"pattern": b"t"}, TypeError, "pattern=b't': must be a str or a compiled"),
    ("subscribe", (), {"pattern": 3}, TypeError, "pattern=3: must be a str or a compiled"),
    ("highwater", (3,), {}, TypeError, "Key should be TopicPartition instance"),
    ("highwater", ([],), {}, AssertionError, "Key should be TopicPartition instance"),
    ("last_stable_offset", (None,), {}, TypeError, "Key should be TopicPartition instance"),
    ("last_poll_timestamp", ("t",), {}, AssertionError, "Key should be TopicPartition instance"),
    ("getmany", (), {"timeout_ms": None}, TypeError, "timeout_ms=None: must be a number of milli"),
    ("getmany", (), {"timeout_ms": "5"}, TypeError, "timeout_ms='5': must be a number of milli"),
    ("getmany", (), {"timeout_ms": 10**400}, ValueError, "timeout_ms="),
    ("getmany", (), {"timeout_ms": float("nan")}, ValueError, "timeout_ms=nan: must be a number"),
    ("getmany", (), {"min_records": "2"}, TypeError, "min_records='2': must be an integer"),
    ("getmany", (), {"min_records": 0}, ValueError, "min_records=0: must be an integer of at"),
    ("getmany", (), {"max_records": "2"}, ValueError, "`max_records` must be a positive Integer"),
    ("client_instance_id", (None,), {}, TypeError, "timeout_ms=None: must be a number of milli"),
    ("client_instance_id", (-1,), {}, ValueError, "timeout_ms=-1: must be a number of milli"),
    ("stop", ("5",), {}, TypeError, "timeout='5': must be a number of seconds, at least 0"),
    ("stop", (-1,), {}, ValueError, "timeout=-1: must be a number of seconds, at least 0"),
]


@pytest.mark.parametrize(("name", "given", "named", "error", "text"), CASES)
async def test_wrong_arguments_are_named(
    cluster: FakeCluster,
    start: Start,
    name: str,
    given: tuple[Any, ...],
    named: dict[str, Any],
    error: type[BaseException],
    text: str,
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 2)
    consumer = await start(cluster, group_id="g", assign=[T0])
    for _ in range(2):
        with pytest.raises(error, match=f"^{re.escape(text)}"):
            result = getattr(consumer, name)(*given, **named)
            if inspect.isawaitable(result):
                await result
        assert (await consumer.getone()).topic == "t"


async def test_a_partition_may_be_any_tuple(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, assign=(tp for tp in [("t", 0)]))
    await consumer.getone()
    plain: Any = ("t", 0)
    assert consumer.highwater(plain) == 1
    assert consumer.last_poll_timestamp(plain) is not None
    assert await consumer.end_offsets({plain: None}) == {T0: 1}
    with pytest.raises(AssertionError, match="Partition is not assigned"):
        consumer.highwater(TopicPartition("t", 1))


async def test_a_compiled_pattern_is_accepted(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    pattern: Any = re.compile("t.*")
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.subscribe(pattern=pattern)
        with pytest.raises(IllegalStateError):
            consumer.assign([T0])
