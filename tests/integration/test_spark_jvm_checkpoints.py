"""Checkpoints that Spark's own `kafka` made go on with `aiokafka`, and go back.

State goes with them in the example, which `test_spark_jvm_migration` runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.spark_jvm import JVM, OURS, Copy, fill, make_topic, marks, with_options
from tests.kafka.fixtures import Kafka

pytestmark = marks

TEN: Any = {"maxOffsetsPerTrigger": "10"}
"""Batches of so many records."""


def test_there_and_back(both: Any, kafka: Kafka, tmp_path: Path) -> None:
    topic, copy = make_topic(kafka), Copy(both, kafka, tmp_path)
    for number, form in enumerate((JVM, OURS, JVM)):
        fill(kafka, topic, number * 20, number * 20 + 20)
        copy.run(form, topic, **TEN)
        assert copy.values() == list(range(number * 20 + 20))
    # In the form that Spark's own source gives it.
    lines = (copy.checkpoint / "offsets" / "2").read_text().splitlines()
    assert json.loads(lines[-1]) == {topic: {"0": 15, "1": 15}}


@pytest.mark.parametrize(("before", "after"), [(JVM, OURS), (OURS, JVM)])
def test_a_batch_that_was_not_finished(
    both: Any, kafka: Kafka, tmp_path: Path, before: str, after: str
) -> None:
    """The other source repeats it as it was, though there is more by now."""
    topic, copy = make_topic(kafka), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 30)
    copy.run(before, topic, **TEN)
    assert copy.last_batch() == 2
    copy.forget_commit()
    fill(kafka, topic, 30, 60)
    copy.run(after, topic)
    assert copy.values() == list(range(60))
    assert copy.last_batch() == 3


@pytest.mark.parametrize(("before", "after"), [(JVM, OURS), (OURS, JVM)])
def test_after_the_first_batch(
    both: Any, kafka: Kafka, tmp_path: Path, before: str, after: str
) -> None:
    topic, copy = make_topic(kafka), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 10)
    copy.run(before, topic)
    assert copy.last_batch() == 0
    fill(kafka, topic, 10, 30)
    copy.run(after, topic)
    assert copy.values() == list(range(30))


def test_a_first_batch_that_was_not_finished(both: Any, kafka: Kafka, tmp_path: Path) -> None:
    """Where it began, Spark does not tell sources in Python."""
    topic, copy = make_topic(kafka), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 10)
    copy.run(JVM, topic)
    copy.forget_commit()
    fill(kafka, topic, 10, 20)
    with pytest.raises(
        Exception, match="set startingOffsets to the content of the file sources/0/0"
    ):
        copy.run(OURS, topic, startingOffsets="latest")
    began_at = (copy.checkpoint / "sources" / "0" / "0").read_text().splitlines()[-1]
    copy.run(OURS, topic, startingOffsets=began_at)
    assert copy.values() == list(range(20))


def test_several_sources_in_one_query(both: Any, kafka: Kafka, tmp_path: Path) -> None:
    """Each goes on with its own offsets: they are kept in the order of the query."""
    one, other = make_topic(kafka), make_topic(kafka, 1)
    copy = Copy(both, kafka, tmp_path)
    for number, form in enumerate((JVM, OURS, JVM)):
        fill(kafka, one, number * 20, number * 20 + 20)
        fill(kafka, other, 1000 + number * 10, 1010 + number * 10, partitions=1)
        copy.run(form, one, other)
    assert copy.values() == [*range(60), *range(1000, 1030)]


def test_the_checkpoint_of_another_query_is_not_spoilt(
    both: Any, kafka: Kafka, tmp_path: Path
) -> None:
    """Spark plans the last batch in a checkpoint again, so none must be noted with other topics."""
    topic, other = make_topic(kafka), make_topic(kafka)
    copy = Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 20)
    fill(kafka, other, 100, 120)
    copy.run(OURS, topic)
    with pytest.raises(Exception, match=f"does not subscribe to: {topic}"):
        copy.run(OURS, other)
    fill(kafka, topic, 20, 40)
    copy.run(OURS, topic)
    assert copy.values() == list(range(40))
    assert copy.last_batch() == 1


def test_a_checkpoint_of_a_source_that_is_not_kafka(
    both: Any, kafka: Kafka, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    both.range(3).write.parquet(str(folder))
    files = both.readStream.schema("id bigint").parquet(str(folder))
    checkpoint = str(tmp_path / "checkpoint")
    writer = files.writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    topic = make_topic(kafka)
    rows = with_options(both.readStream, OURS, kafka, subscribe=topic).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    with pytest.raises(Exception, match=r'has \{"logOffset": 0\} in place of offsets of Kafka'):
        writer.trigger(availableNow=True).start().awaitTermination(60)
