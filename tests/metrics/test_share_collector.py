"""What a share consumer tells its `metrics_collector=`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AcknowledgeType, AIOKafkaShareConsumer
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from aiokafka.metrics import ConsumerMetricsCollector, NullConsumerMetricsCollector
from aiokafka.protocol.messages.share_groups import ShareAcknowledgeRequest, ShareFetchRequest
from aiokafka.testing import Cut, Fail, FakeCluster
from tests.support.share import T0, fill, take


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

    def on_records_acknowledged(self, **facts: Any) -> None:
        self.calls.append(("acknowledged", facts))

    def on_acknowledgement_failed(self, **facts: Any) -> None:
        self.calls.append(("acknowledgement failed", facts))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [facts for one, facts in self.calls if one == name]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """A topic `t` with one partition, and a share group `g` that starts at the first record."""
    async with FakeCluster() as fake:
        fake.state.other_configs[32, "g"] = {"share.auto.offset.reset": "earliest"}
        await fake.create_topic("t", 1)
        yield fake


def member(cluster: FakeCluster, collector: Any) -> AIOKafkaShareConsumer[Any, Any]:
    return AIOKafkaShareConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        share_acknowledgement_mode="explicit",
        metrics_collector=collector,
        retry_backoff_ms=10,
    )


async def test_fetches_records_and_acknowledgements(cluster: FakeCluster) -> None:
    notes = Notes()
    fill(cluster, 4)
    async with member(cluster, notes) as consumer:
        first, second, third, fourth = await take(consumer, 4)
        consumer.acknowledge(first)
        consumer.acknowledge(second)
        consumer.acknowledge(third, AcknowledgeType.REJECT)
        consumer.acknowledge(fourth, AcknowledgeType.RENEW)
        assert await consumer.commit() == {T0: None}
    place = {"topic": "t", "partition": 0}
    (fetched,) = notes.of("fetched")
    assert fetched.pop("fetch_seconds") >= 0
    assert fetched.pop("size_bytes") > 0
    assert fetched == {**place, "record_count": 4}
    assert notes.of("consumed") == [{**place, "record_count": 4}]
    outcomes = [
        (each["acknowledge_type"], each["record_count"]) for each in notes.of("acknowledged")
    ]
    assert sorted(outcomes) == [
        (AcknowledgeType.ACCEPT, 2),
        (AcknowledgeType.REJECT, 1),
        (AcknowledgeType.RENEW, 1),
    ]
    assert notes.of("acknowledgement failed") == []


async def test_failures(cluster: FakeCluster) -> None:
    notes = Notes()
    fill(cluster, 2)
    async with member(cluster, notes) as consumer:
        records = await take(consumer, 2)
        for record in records:
            consumer.acknowledge(record)
        cluster.intercept(ShareAcknowledgeRequest, Cut(), times=1)
        assert isinstance((await consumer.commit())[T0], KafkaConnectionError)
        cluster.intercept(ShareFetchRequest, Fail(TopicAuthorizationFailedError), times=1)
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.getone()
    (failed,) = notes.of("acknowledgement failed")
    assert isinstance(failed.pop("exception"), KafkaConnectionError)
    assert failed == {"topic": "t", "partition": 0, "record_count": 2}
    (fetch,) = notes.of("fetch failed")
    assert isinstance(fetch["exception"], TopicAuthorizationFailedError)


async def test_an_exception_of_the_collector_is_logged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(NullConsumerMetricsCollector):
        def on_records_consumed(self, **_: Any) -> None:
            raise ValueError("broken")

    fill(cluster, 1)
    async with member(cluster, Broken()) as consumer:
        (record,) = await take(consumer, 1)
        consumer.acknowledge(record)
        assert await consumer.commit() == {T0: None}
    assert "the metrics collector" in caplog.text
