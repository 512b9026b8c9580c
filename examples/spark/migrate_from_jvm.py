"""Move a query from Spark's own `kafka` format to `aiokafka`, with its checkpoint, and back.

    python examples/spark/migrate_from_jvm.py --bootstrap HOST:PORT --jars A.jar,B.jar

A query adds up payments by account. It runs first as `format("kafka")`, then as
`format("aiokafka")`, then as `format("kafka")` again: nothing changes but that word. Its state and
its offsets are in the checkpoint; in the end the totals have to be what was paid, so each payment
was read once.

The jars are those of Spark's own source, which only the old form of the query needs. Spark fetches
them with `--packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION` instead.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import os
import random
import sys
import tempfile
import uuid

from pyspark.sql import DataFrame, SparkSession

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.spark import register

ACCOUNTS = [f"account-{number}" for number in range(50)]
FORMATS = ("kafka", "aiokafka", "kafka")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", default=os.environ.get("BOOTSTRAP", "localhost:9092"))
    parser.add_argument("--payments", type=int, default=3000, help="before each change")
    parser.add_argument("--jars", default="", help="those of Spark's own source")
    parser.add_argument("--packages", default="", help="its name, for Spark to fetch it")
    arguments = parser.parse_args()
    servers, topic = arguments.bootstrap, f"payments-{uuid.uuid4().hex[:8]}"
    asyncio.run(create_topic(servers, topic))
    spark = start_spark(arguments.jars, arguments.packages)
    paid: collections.Counter[str] = collections.Counter()
    totals: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as checkpoint:
        for form in FORMATS:
            paid += asyncio.run(pay(servers, topic, arguments.payments))
            add_up(spark, form, servers, topic, checkpoint, totals)
    spark.stop()
    if totals != paid:
        sys.exit(f"{sum(paid.values())} was paid, but the totals are {sum(totals.values())}")
    count = len(FORMATS) * arguments.payments
    print(f"{count} payments, read by {', '.join(FORMATS)} in turn, each counted once")


def add_up(
    spark: SparkSession,
    form: str,
    servers: str,
    topic: str,
    checkpoint: str,
    totals: dict[str, int],
) -> None:
    """The query, until it has caught up."""
    rows = (
        spark.readStream.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2000)
        .load()
    )
    by_account = (
        rows.selectExpr(
            "cast(key AS string) AS account", "cast(cast(value AS string) AS long) AS paid"
        )
        .groupBy("account")
        .sum("paid")
    )

    def keep(batch: DataFrame, number: int) -> None:
        totals.update({row["account"]: row["sum(paid)"] for row in batch.collect()})

    query = (
        by_account.writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


async def create_topic(servers: str, topic: str) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(topic, 3, 1)])


async def pay(servers: str, topic: str, count: int) -> collections.Counter[str]:
    """Send payments; how much for each account."""
    paid: collections.Counter[str] = collections.Counter()
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for _ in range(count):
            account, amount = random.choice(ACCOUNTS), random.randrange(1, 1000)
            await producer.send(topic, b"%d" % amount, account.encode())
            paid[account] += amount
    return paid


def start_spark(jars: str, packages: str) -> SparkSession:
    # Python's workers are to be of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("migrate from the JVM source")
        .config("spark.jars", jars)
        .config("spark.jars.packages", packages)
        .config("spark.sql.shuffle.partitions", "2")
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
