"""Topics that a broker leaves out of its list for a moment, as after its start."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka.protocol.messages.fetch import ListOffsetsRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.testing import Delay, Edit, FakeCluster
from tests.spark.support import TOLERANT, batch, end, fill, initial, read, stream

PATTERN = {"subscribe": None, "subscribePattern": "t|u", "startingOffsets": "earliest"}


@pytest.fixture(autouse=True)
async def topics(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokafka.spark._driver._DISCOVERY_INTERVAL", 0.0)
    await cluster.create_topic("u")
    fill(cluster, 5)
    fill(cluster, 5, topic="u")


def hide(cluster: FakeCluster, is_hidden: Callable[[], bool]) -> Any:
    """Leave the topic u out of lists of all topics while `is_hidden` returns True."""

    def without(response: MetadataResponse) -> None:
        response.topics = [topic for topic in response.topics if topic.name != "u"]

    def look(request: Any, _: Any) -> Edit | None:
        return Edit(without) if request.topics is None and is_hidden() else None

    return cluster.intercept(MetadataRequest, look)


@pytest.mark.parametrize("given", [{}, TOLERANT], ids=["strict", "tolerant"])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_stream_goes_on_with_a_topic_that_is_not_listed(
    cluster: FakeCluster, given: dict[str, str], is_restarted: bool
) -> None:
    """It would be new when it is listed again, and read from its start a second time."""
    plan = stream(cluster, **PATTERN, **given)
    at = await end(plan, await initial(plan))
    if is_restarted:
        plan = stream(cluster, **PATTERN, **given, clientIdleTimeout="1h")
    fill(cluster, 1)
    fill(cluster, 1, topic="u")
    with hide(cluster, lambda: True):
        following = await end(plan, at)
        assert await read(plan, at, following) == [("t", 0, 5, 6), ("u", 0, 5, 6)]
    assert await end(plan, following) == following


async def test_a_batch_reads_a_topic_that_the_second_list_lacks(cluster: FakeCluster) -> None:
    with hide(cluster, lambda: cluster.count(ListOffsetsRequest) > 0):
        found = [r[:4] for task in await batch(cluster, **PATTERN) for r in task]
    assert sorted(found) == [("t", 0, 0, 5), ("u", 0, 0, 5)]


async def test_a_topic_that_is_deleted_is_left_out(cluster: FakeCluster) -> None:
    plan = stream(cluster, **PATTERN, **TOLERANT)
    at = await end(plan, await initial(plan))
    await cluster.delete_topic("u")
    fill(cluster, 1)
    following = await end(plan, at)
    assert following == {"t": {"0": 6, "1": 0, "2": 0}}
    assert await read(plan, at, following) == [("t", 0, 5, 6)]
    assert await end(plan, following) == following


async def test_brokers_that_never_agree_on_the_partitions(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each list differs from the one before, and a leader takes longer than a look at them."""
    monkeypatch.setattr("aiokafka.spark._driver._LOOK_INTERVAL", 0.02)
    plan = stream(cluster, **{"kafka.request.timeout.ms": "1000"})
    start = await initial(plan)
    lists = itertools.count()

    def without(response: MetadataResponse) -> None:
        odd = next(lists) % 2
        for topic in response.topics:
            del topic.partitions[3 - odd :]

    cluster.intercept(MetadataRequest, lambda request, _: Edit(without))
    cluster.intercept(ListOffsetsRequest, lambda request, _: Delay(0.5))
    following = await end(plan, start)
    assert following["t"]["0"] == 5
    assert next(lists) > 3
