"""What a consumer tells its `metrics_collector=`."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)
from aiokafka.metrics import ConsumerMetricsCollector
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import Cut, Fail, FakeCluster
from tests.support.consumers import Start, fill, partition_error
from tests.support.producers import TOPIC

T0, T1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class Notes(ConsumerMetricsCollector):
    """Keeps every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def on_fetch_completed(self, **facts: Any) -> None:
        self.calls.append(("fetched", facts))

    def on_fetch_failed(self, **facts: Any) -> None:
        self.calls.append(("fetch failed", facts))

    def on_records_consumed(self, **facts: Any) -> None:
        self.calls.append(("consumed", facts))

    def on_records_lag(self, **facts: Any) -> None:
        self.calls.append(("lag", facts))

    def on_commit_completed(self, **facts: Any) -> None:
        self.calls.append(("committed", facts))

    def on_commit_failed(self, **facts: Any) -> None:
        self.calls.append(("commit failed", facts))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [facts for one, facts in self.calls if one == name]

    def consumed(self, tp: TopicPartition) -> int:
        return sum(
            facts["record_count"]
            for facts in self.of("consumed")
            if (facts["topic"], facts["partition"]) == tp
        )


async def test_what_getmany_returns(cluster: FakeCluster, start: Start) -> None:
    notes = Notes()
    fill(cluster, 0, 10, topic=TOPIC, batch=5)
    consumer = await start(cluster, assign=[T0], metrics_collector=notes)
    taken = await consumer.getmany(timeout_ms=5000, max_records=4)
    assert [len(records) for records in taken.values()] == [4]
    assert notes.consumed(T0) == 4
    fetched = notes.of("fetched")[0]
    assert fetched.pop("fetch_seconds") >= 0
    assert fetched.pop("size_bytes") > 2 * 61
    assert fetched == {"topic": TOPIC, "partition": 0, "record_count": 10}
    assert notes.of("lag")[0] == {"topic": TOPIC, "partition": 0, "lag": 10}


async def test_what_getone_returns(cluster: FakeCluster, start: Start) -> None:
    notes = Notes()
    fill(cluster, 0, 10, topic=TOPIC, batch=5)
    fill(cluster, 1, 3, topic=TOPIC)
    consumer = await start(cluster, assign=[T0, T1], metrics_collector=notes)
    for _ in range(13):
        await consumer.getone()
    # The next call finds that everything was returned.
    assert await consumer.getmany() == {}
    assert (notes.consumed(T0), notes.consumed(T1)) == (10, 3)


async def test_records_read_again_after_a_seek_count_again(
    cluster: FakeCluster, start: Start
) -> None:
    notes = Notes()
    fill(cluster, 0, 10, topic=TOPIC, batch=10)
    consumer = await start(cluster, assign=[T0], metrics_collector=notes)
    for _ in range(7):
        await consumer.getone()
    consumer.seek(T0, 5)
    for _ in range(5):
        await consumer.getone()
    await consumer.stop()
    assert notes.consumed(T0) == 12


async def test_a_fetch_without_a_response(cluster: FakeCluster, start: Start) -> None:
    notes = Notes()
    fill(cluster, 0, 1, topic=TOPIC)
    with cluster.intercept(FetchRequest, Cut(), times=1):
        consumer = await start(cluster, assign=[T0], metrics_collector=notes)
        await consumer.getone()
    (failed,) = notes.of("fetch failed")
    assert isinstance(failed.pop("exception"), Exception)
    assert failed == {"topic": TOPIC, "partition": 0}


async def test_an_error_that_the_reader_gets(cluster: FakeCluster, start: Start) -> None:
    notes = Notes()
    with cluster.intercept(FetchRequest, partition_error(TopicAuthorizationFailedError), times=1):
        consumer = await start(cluster, assign=[T0], metrics_collector=notes)
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.getone()
    assert [type(facts["exception"]) for facts in notes.of("fetch failed")] == [
        TopicAuthorizationFailedError
    ]


async def test_commits(cluster: FakeCluster, start: Start) -> None:
    notes = Notes()
    options = {"group_id": "group", "enable_auto_commit": False, "metrics_collector": notes}
    consumer = await start(cluster, assign=[T0, T1], **options)
    await consumer.commit({T0: 4, T1: 7})
    (done,) = notes.of("committed")
    assert done.pop("commit_seconds") >= 0
    assert done == {"offsets": {T0: 4, T1: 7}}
    refusal: type[BrokerResponseError] = GroupAuthorizationFailedError
    with cluster.intercept(OffsetCommitRequest, Fail(refusal)):
        with pytest.raises(refusal):
            await consumer.commit({T0: 5})
    (failed,) = notes.of("commit failed")
    assert isinstance(failed["exception"], refusal) and failed["offsets"] == {T0: 5}


class Raises(ConsumerMetricsCollector):
    def on_fetch_completed(self, **facts: Any) -> None:
        raise RuntimeError("a broken collector")

    on_fetch_failed = on_records_consumed = on_records_lag = on_fetch_completed
    on_commit_completed = on_commit_failed = on_fetch_completed


async def test_a_collector_that_raises(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], metrics_collector=Raises(), group_id="group")
    for _ in range(5):
        await consumer.getone()
    await consumer.commit()
    complaints = [line for line in caplog.records if "a broken collector" in line.getMessage()]
    assert len(complaints) == 1
