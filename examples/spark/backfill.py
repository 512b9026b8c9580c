"""Copy a topic's past to Parquet files, then what has come since, again and again.

    python examples/spark/backfill.py --bootstrap HOST:PORT

Sends events of three days to a topic. The first run copies all but the last day, as a batch that
ends at a time. The second goes on from there as a stream that ends when it has caught up, for a job
that runs once a day, say. Then every offset of the topic has to be in the files once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.spark import register

START = 1_767_225_600_000  # milliseconds since 1970
DAY = 86_400_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", default=os.environ.get("BOOTSTRAP", "localhost:9092"))
    parser.add_argument("--events", type=int, default=3000)
    arguments = parser.parse_args()
    servers, topic = arguments.bootstrap, f"events-{uuid.uuid4().hex[:8]}"
    asyncio.run(send_events(servers, topic, arguments.events))
    spark = start_spark()
    with tempfile.TemporaryDirectory() as directory:
        files = Path(directory) / "events"
        split = START + 2 * DAY
        copy_past(spark, servers, topic, split, files)
        copy_rest(spark, servers, topic, split, files, Path(directory) / "checkpoint")
        check(spark.read.parquet(str(files)), arguments.events)
    spark.stop()


def copy_past(spark: SparkSession, servers: str, topic: str, until: int, files: Path) -> None:
    """Everything up to a time, in more tasks than there are partitions."""
    rows = (
        spark.read.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("endingTimestamp", until)
        .option("minPartitions", 4)
        .load()
    )
    by_day(rows).write.partitionBy("day").parquet(str(files / "part=past"))


def copy_rest(
    spark: SparkSession, servers: str, topic: str, since: int, files: Path, checkpoint: Path
) -> None:
    """What has come since then, or since this was called with the same checkpoint."""
    rows = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingTimestamp", since)
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )

    def write(batch: DataFrame, number: int) -> None:
        # Not append: Spark repeats a batch that it had not finished, and its rows would be there
        # twice.
        place = str(files / f"part={number}")
        batch.write.mode("overwrite").partitionBy("day").parquet(place)

    query = (
        by_day(rows)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def by_day(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", expr("date(timestamp)"))


def check(copied: DataFrame, count: int) -> None:
    """Every offset once."""
    distinct = copied.select("partition", "offset").distinct().count()
    if not copied.count() == distinct == count:
        sys.exit(f"{count} events were sent, but {copied.count()} copied, {distinct} different")
    days = copied.select("day").distinct().count()
    print(f"{count} events of {days} days, each in the files once")


async def send_events(servers: str, topic: str, count: int) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(count):
            time = START + number * 3 * DAY // count
            await producer.send(topic, b"event %d" % number, timestamp_ms=time)


def start_spark() -> SparkSession:
    # Python's workers are to be of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("backfill")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


if __name__ == "__main__":
    try:
        main()
    except KafkaError as error:
        sys.exit(str(error))
