"""Sessions of users, from topic to topic, with more state than memory would hold.

    python examples/spark/sessions.py --bootstrap HOST:PORT [--users 500] [--clicks 20000]

Sends a day's clicks to a topic. A session of a user ends when half an hour passes without a click;
Spark keeps the open ones in RocksDB, on disk, and writes each to a second topic once it has ended.
A group of consumers mirrors how far the query is, so that every tool for groups shows its lag. In
the end the sessions are compared with those that plain Python makes of the clicks.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import uuid
from datetime import datetime, timezone

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, expr, max_by, min_by, session_window
from pyspark.sql.streaming import StreamingQuery

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.spark import Lag, lag, lag_listener, register

START = 1_767_225_600_000  # milliseconds since 1970
DAY = 86_400_000
GAP = 30 * 60_000

# A user, the first click of a session, how many there are, the page that was seen last.
Session = tuple[str, int, int, str]
Click = tuple[int, str]  # when, and on which page


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", default=os.environ.get("BOOTSTRAP", "localhost:9092"))
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--clicks", type=int, default=20_000)
    arguments = parser.parse_args()
    servers, name = arguments.bootstrap, uuid.uuid4().hex[:8]
    clicks, sessions = f"clicks-{name}", f"sessions-{name}"
    sent = asyncio.run(send_clicks(servers, clicks, sessions, arguments.users, arguments.clicks))
    spark = start_spark()
    spark.streams.addListener(lag_listener(show_lag))
    with tempfile.TemporaryDirectory() as checkpoint:
        query = find_sessions(spark, servers, clicks, sessions, checkpoint)
        query.awaitTermination()
        check_lag(query, asyncio.run(group_lag(servers, clicks)))
    compare(read_sessions(spark, servers, sessions), sent)
    spark.stop()


def find_sessions(
    spark: SparkSession, servers: str, clicks: str, sessions: str, checkpoint: str
) -> StreamingQuery:
    """The pipeline."""
    rows = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", clicks)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 8000)
        .option("commitOffsets", "true")
        .option("kafka.group.id", clicks)
        .load()
    )
    ended = (
        rows.withColumn("page", expr("cast(value AS string)"))
        # As late as one partition may come behind another in a batch.
        .withWatermark("timestamp", "2 hours")
        .groupBy(session_window("timestamp", f"{GAP} milliseconds"), "key")
        .agg(
            count("*").alias("clicks"),
            min_by("page", "timestamp").alias("first"),
            max_by("page", "timestamp").alias("last"),
        )
    )
    begin = "unix_millis(session_window.start) AS start"
    return (
        ended.select("key", expr(f"to_json(struct({begin}, clicks, first, last)) AS value"))
        .writeStream.format("aiokafka")
        .queryName("sessions")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sessions)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def show_lag(query: str | None, lag: Lag) -> None:
    """After every batch."""
    print(f"{query}: {sum(lag.partitions.values())} clicks behind", flush=True)


def check_lag(query: StreamingQuery, of_group: int) -> None:
    """What Spark and Kafka say at the end."""
    found = lag(query)
    if found is None or any(found.partitions.values()) or of_group:
        sys.exit(f"in the end the query is behind by {found}, its group by {of_group}")
    most = max(progress.stateOperators[0].numRowsTotal for progress in query.recentProgress)
    print(f"group {of_group} clicks behind; up to {most} sessions were open at once")


async def group_lag(servers: str, clicks: str) -> int:
    """As tools for groups tell it: the ends of the partitions less what is committed."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        committed = await admin.list_consumer_group_offsets(clicks)
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        ends = await consumer.end_offsets(committed)
    return sum(ends[tp] - stored.offset for tp, stored in committed.items())


def read_sessions(spark: SparkSession, servers: str, sessions: str) -> DataFrame:
    """What was found."""
    fields = "start bigint, clicks bigint, first string, last string"
    return (
        spark.read.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", sessions)
        .load()
        .select(
            expr("cast(key AS string) AS user"),
            expr(f"from_json(cast(value AS string), '{fields}') AS session"),
        )
        .select("user", "session.*")
    )


def compare(written: DataFrame, sent: dict[str, list[Click]]) -> None:
    found = sorted((row.user, row.start, row.clicks, row.last) for row in written.collect())
    wanted = sorted(session for user in sent for session in sessions_of(user, sent[user]))
    if found != wanted:
        different = sorted(set(found) ^ set(wanted))
        sys.exit(f"{len(wanted)} sessions, but {len(found)} written; different: {different[:5]}")
    for user, start, clicks, last in sorted(found, key=lambda session: -session[2])[:3]:
        time = datetime.fromtimestamp(start / 1000, timezone.utc)
        print(f"{user} from {time:%H:%M}: {clicks} clicks, the last on {last}")
    print(f"{len(found)} sessions of {len(sent)} users, each written once")


def sessions_of(user: str, clicks: list[Click]) -> list[Session]:
    """In plain Python."""
    gaps = (b[0] - a[0] >= GAP for a, b in itertools.pairwise(clicks))
    numbers = itertools.accumulate(gaps, initial=0)
    found = []
    for _, group in itertools.groupby(zip(numbers, clicks, strict=True), lambda pair: pair[0]):
        of_session = [click for _, click in group]
        found.append((user, of_session[0][0], len(of_session), of_session[-1][1]))
    return found


async def send_clicks(
    servers: str, clicks: str, sessions: str, users: int, count: int
) -> dict[str, list[Click]]:
    """Send clicks, and return those of each user."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in (clicks, sessions)])
    sent: dict[str, list[Click]] = {}
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(count):
            time = START + number * DAY // count
            user, page = f"user-{random.randrange(users)}", f"/page/{random.randrange(100)}"
            sent.setdefault(user, []).append((time, page))
            await producer.send(clicks, page.encode(), key=user.encode(), timestamp_ms=time)
        # Sessions end when later clicks come.
        for partition in range(2):
            await producer.send(clicks, b"", partition=partition, timestamp_ms=START + 2 * DAY)
    return sent


def start_spark() -> SparkSession:
    # Python's workers are to be of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("sessions")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass", state)
        # Write what has changed in a batch, not all the state.
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
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
