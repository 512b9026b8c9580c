"""Checkpoints that do not fit the query: of other topics, of other sources, behind retention."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.testing import FakeCluster
from tests.spark.support import BOTH, TOLERANT, end, fill, initial, read, stream

OTHER = {"u": {"0": 3}}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"subscribe": None, "assign": '{"t": [0, 1, 2]}'},
        {"subscribe": None, "subscribePattern": "t.*"},
    ],
    ids=lambda given: " ".join(given) or "subscribe",
)
async def test_a_checkpoint_of_other_topics_is_refused_before_a_batch_is_planned(
    cluster: FakeCluster, given: dict[str, Any]
) -> None:
    """Spark writes the end of a batch to the checkpoint before it asks for the tasks, and plans
    that batch again after every restart: also with the right topic, and the right checkpoint.
    """
    fill(cluster, 5)
    await cluster.create_topic("u")
    plan = stream(cluster, **given)
    with pytest.raises(ValueError, match=r"does not subscribe to: u\. If it is the checkpoint of"):
        await end(plan, OTHER)
    with pytest.raises(ValueError, match="does not subscribe to: u"):
        await end(plan, {**OTHER, "t": {"0": 0, "1": 0, "2": 0}}, 2)
    tolerant = stream(cluster, **given, **TOLERANT)
    following = await end(tolerant, OTHER)
    assert following == {"t": {"0": 5, "1": 0, "2": 0}}
    assert await read(tolerant, OTHER, following) == [("t", 0, 0, 5)]


async def test_a_topic_with_fewer_partitions_is_refused_before_a_batch_is_planned(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 5, 5, 5)
    begin = {"t": {"0": 1, "1": 1, "2": 1, "3": 1, "10": 7}}
    with pytest.raises(
        RuntimeError, match=r"partitions do not exist any more: t-3, t-10; set failOnDataLoss"
    ):
        await end(stream(cluster), begin)
    assert await end(stream(cluster, **TOLERANT), begin) == {"t": {"0": 5, "1": 5, "2": 5}}


@pytest.mark.parametrize(
    "noted",
    [5, "5", [0, 1], {"logOffset": 3}, {"offset": {"t": 3}}, {"t": {"0": None}}, {"t": ["0"]}],
    ids=str,
)
async def test_a_checkpoint_of_another_source_is_refused_by_name(
    cluster: FakeCluster, noted: Any
) -> None:
    plan = stream(cluster)
    with pytest.raises(ValueError, match=r"the checkpoint has .* in place of offsets of Kafka"):
        await end(plan, noted)
    with pytest.raises(ValueError, match="the order of the query's sources has changed"):
        await read(plan, noted, {"t": {"0": 1, "1": 0, "2": 0}})


async def test_deleted_records_do_not_count_for_a_limit(cluster: FakeCluster) -> None:
    """A query that was down for longer than the retention began with batches without a row."""
    fill(cluster, 1000, 1000)
    at = {"t": {"0": 10, "1": 10, "2": 0}}
    for partition in (0, 1):
        cluster.log("t", partition).delete_before(900)
    plan = stream(cluster, **TOLERANT)
    following = await end(plan, at, 20)
    assert following == {"t": {"0": 910, "1": 910, "2": 0}}
    # Tasks skip what is gone, and warn of it.
    assert await read(plan, at, following) == [("t", 0, 10, 910), ("t", 1, 10, 910)]
    assert await end(plan, following, 20) == {"t": {"0": 920, "1": 920, "2": 0}}
    # Where a loss is an error, the task that reads the first of them raises it.
    assert await end(stream(cluster), at, 20) == {"t": {"0": 20, "1": 20, "2": 0}}


async def test_a_deleted_topic_does_not_hold_up_a_limited_batch(cluster: FakeCluster) -> None:
    await cluster.create_topic("u")
    fill(cluster, 50)
    fill(cluster, 50, topic="u")
    plan = stream(cluster, **BOTH, **TOLERANT, startingOffsets="earliest")
    at = await end(plan, await initial(plan), 10)
    await cluster.delete_topic("u")
    following = await end(plan, at, 10)
    assert following.keys() == {"t"}
    assert await read(plan, at, following) == [("t", 0, 5, 15)]
