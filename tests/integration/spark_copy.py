"""Queries from topic to topic, for tests that kill this in the middle.

python -m tests.integration.spark_copy DIRECTORY

Each line of its input is a round as JSON: bootstrap servers, source, where checkpoints are, and the
sinks by the kind of query. All queries of a round run side by side, up to the present end of the
source; one that fails is started again. Then `finished` is noted (see spark_watched).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.integration.spark_session import start_spark
from tests.integration.spark_watched import WatchedSource, note

# A query that fails so often will not come to its end.
ATTEMPTS = 8


def rows(spark: Any, order: dict[str, Any], sink: str) -> Any:
    return (
        spark.readStream.format("watched")
        .option("kafka.bootstrap.servers", order["servers"])
        .option("kafka.group.id", sink)
        .option("subscribe", order["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", order["batch"])
        .load()
    )


def counted(read: Any) -> Any:
    """How many rows each key has in each minute."""
    from pyspark.sql.functions import col, count, expr, window

    counts = (
        read.withWatermark("timestamp", "10 seconds")
        .groupBy(window("timestamp", "1 minute"), col("key"))
        .agg(count("*").alias("n"))
    )
    return counts.select("key", expr("to_json(struct(window.start AS minute, n)) AS value"))


def start(spark: Any, order: dict[str, Any], kind: str) -> Any:
    sink = order["sinks"][kind]
    read = rows(spark, order, sink)
    result = counted(read) if kind == "counts" else read.select("key", "value")
    return (
        result.writeStream.format("watched")
        .option("kafka.bootstrap.servers", order["servers"])
        .option("topic", sink)
        .option("kafka.batch.size", 2048)
        .option("deliveryGuarantee", "at-least-once" if kind == "least" else "exactly-once")
        .option("checkpointLocation", str(Path(order["directory"]) / kind))
        .trigger(availableNow=True)
        .start()
    )


def start_at_last(spark: Any, order: dict[str, Any], kind: str) -> Any:
    """Start a query. What a worker does for the driver, such as to load the source, is tried once
    only by Spark, and fails if the worker is killed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for _ in range(ATTEMPTS - 1):
        try:
            return start(spark, order, kind)
        except (Py4JError, PySparkException) as error:
            print(error, file=sys.stderr, flush=True)
            note("failed", order["sinks"][kind])
    return start(spark, order, kind)


def run(spark: Any, order: dict[str, Any]) -> None:
    """All queries of a round, to their ends."""
    from pyspark.errors import StreamingQueryException

    sinks = order["sinks"]
    running = {kind: start_at_last(spark, order, kind) for kind in sinks}
    for kind, sink in sinks.items():
        for _ in range(ATTEMPTS):
            try:
                running[kind].awaitTermination()
                break
            except StreamingQueryException as error:
                print(error, file=sys.stderr, flush=True)
                note("failed", sink)
                running[kind] = start_at_last(spark, order, kind)
        else:
            raise RuntimeError(f"{kind} failed {ATTEMPTS} times")


def main() -> None:
    directory = Path(sys.argv[1])
    spark = start_spark(directory / "local", master="local[2,6]")
    spark.dataSource.register(WatchedSource)
    # Several batches for each task, and several requests to Kafka.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "400")
    # Spark that is killed while it writes the offsets of the first batch leaves a part of a file,
    # and from 4.2 on it refuses a checkpoint that has such a part and nothing else.
    spark.conf.set("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
    note("started", "-")
    for line in sys.stdin:
        order = json.loads(line)
        run(spark, order)
        note("finished", "-", order["round"])
    spark.stop()


if __name__ == "__main__":
    main()
