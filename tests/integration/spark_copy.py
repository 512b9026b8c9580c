"""Copy a topic to another exactly once, for tests that kill this in the middle.

python -m tests.integration.spark_copy BOOTSTRAP SOURCE SINK DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.spark_session import start_spark


def main() -> None:
    servers, source, sink, directory = sys.argv[1:]
    spark = start_spark(Path(directory) / "local", master="local[1,4]")
    rows = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2000)
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(Path(directory) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
