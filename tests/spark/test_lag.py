"""How far a query is behind, from what Spark tells of its progress."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.spark import lag, lag_of

PROGRESS = {
    "name": "q",
    "sources": [
        {
            "endOffset": {"t": {"00": 1, "0": 10, "1": 5}},
            "latestOffset": {"t": {"0": 25, "1": 5}},
        },
        {"endOffset": '{"u": {"0": 1}}', "latestOffset": '{"u": {"0": 4}}'},
        {"endOffset": 3, "latestOffset": "4"},
        {"endOffset": None, "latestOffset": None},
    ],
}


class Query:
    """Stands for Spark's."""

    def __init__(self, progress: object) -> None:
        self.lastProgress = progress


def test_lag_of_every_partition() -> None:
    behind = lag_of(PROGRESS)
    assert behind.partitions == {
        TopicPartition("t", 0): 15,
        TopicPartition("t", 1): 0,
        TopicPartition("u", 0): 3,
    }
    assert behind.metrics == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 15,
        "avgOffsetsBehindLatest": 6,
    }
    assert lag(Query(PROGRESS)) == behind


def test_no_batch_yet() -> None:
    assert lag(Query(None)) is None
    assert lag_of({"sources": []}).metrics["maxOffsetsBehindLatest"] == 0
