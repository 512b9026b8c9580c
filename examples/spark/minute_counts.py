"""Count words per minute from topic to topic, each word exactly once, however often Spark dies.

    python examples/spark/minute_counts.py [--bootstrap HOST:PORT] [FILES ...]

Sends the words of text files to a topic, as if one line came a second. Spark counts them by word
and minute, and writes the counts to another topic. Then every word is counted again to see that
none is missing and none was counted twice. Without --bootstrap a Kafka inside the process does.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import os
import re
import sys
import tempfile
import threading
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, expr, window

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.spark import register
from aiokafka.testing import FakeCluster

START = 1_767_225_600_000  # the first line's time, in milliseconds since 1970
MINUTE = 60_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", default=os.environ.get("BOOTSTRAP"))
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    files = arguments.files or sorted(Path(__file__).parent.parent.parent.glob("docs/*.rst"))
    servers = arguments.bootstrap or start_kafka()
    name = uuid.uuid4().hex[:8]
    words, counts = f"words-{name}", f"counts-{name}"
    sent = asyncio.run(send_words(servers, words, counts, files))
    where = f"the Kafka at {servers}" if arguments.bootstrap else "a Kafka in this process"
    print(f"{sent.total()} words of {len(files)} files are in a topic of {where}", flush=True)
    spark = start_spark()
    with tempfile.TemporaryDirectory() as checkpoint:
        count_words(spark, servers, words, counts, checkpoint)
    show(spark, servers, counts, sent)
    spark.stop()


def count_words(spark: SparkSession, servers: str, words: str, counts: str, path: str) -> None:
    """The pipeline."""
    lines = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", words)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 5000)
        .load()
    )
    by_minute = (
        # As late as one partition may come behind another in a batch.
        lines.withWatermark("timestamp", "10 minutes")
        .groupBy(window("timestamp", "1 minute"), col("key"))
        .agg(count("*").alias("n"))
    )
    query = (
        by_minute.select("key", expr("to_json(struct(window.start AS minute, n)) AS value"))
        .writeStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", counts)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", path)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read_counts(spark: SparkSession, servers: str, counts: str) -> DataFrame:
    """What was counted, by word and minute."""
    return (
        spark.read.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", counts)
        .load()
        .selectExpr(
            "cast(key AS string) AS word",
            "from_json(cast(value AS string), 'minute timestamp, n bigint') AS counted",
        )
        .select("word", "counted.minute", "counted.n")
    )


def show(spark: SparkSession, servers: str, counts: str, sent: collections.Counter[str]) -> None:
    found = read_counts(spark, servers, counts).cache()
    totals = found.groupBy("word").agg(expr("sum(n) AS total"))
    totals.orderBy(col("total").desc(), "word").show(10)
    counted = {row.word: row.total for row in totals.collect()}
    if counted != dict(sent):
        sys.exit(f"sent {sent.total()} words, but counted {sum(counted.values())}")
    minutes = found.select("minute").distinct().count()
    print(f"{sent.total()} words in {minutes} minutes, each counted once")


async def send_words(
    servers: str, words: str, counts: str, files: list[Path]
) -> collections.Counter[str]:
    """Send every word with the time of its line, and return how often each was sent."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in (words, counts)])
    sent: collections.Counter[str] = collections.Counter()
    time = START
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for file in files:
            for line in file.read_text().splitlines():
                time += 1000
                for word in re.findall(r"[a-z]{3,}", line.lower()):
                    sent[word] += 1
                    await producer.send(words, b"", key=word.encode(), timestamp_ms=time)
        # A minute is only counted when a later one has come.
        for partition in range(2):
            await producer.send(words, b"", partition=partition, timestamp_ms=time + 20 * MINUTE)
    return sent


def start_spark() -> SparkSession:
    # Python's workers are to be of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("minute counts")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def start_kafka() -> str:
    """A Kafka in this process, with a thread of its own."""

    async def start() -> str:
        return (await FakeCluster().__aenter__()).bootstrap_servers

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return asyncio.run_coroutine_threadsafe(start(), loop).result()


if __name__ == "__main__":
    try:
        main()
    except KafkaError as error:
        sys.exit(str(error))
