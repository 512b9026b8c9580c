"""Keep running totals in a topic: output mode update, each batch written exactly once.

    python examples/spark/update_mode.py --bootstrap HOST:PORT

Sends sales to a topic, adds them up by shop as they come, and writes each total that changed to a
second topic. In the end the last total of every shop is compared with what was sold.
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

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.spark import batch_writer, register

SHOPS = [f"shop-{number}" for number in range(20)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", default=os.environ.get("BOOTSTRAP", "localhost:9092"))
    parser.add_argument("--sales", type=int, default=5000)
    arguments = parser.parse_args()
    servers, name = arguments.bootstrap, uuid.uuid4().hex[:8]
    sales, totals = f"sales-{name}", f"totals-{name}"
    sold = asyncio.run(sell(servers, sales, totals, arguments.sales))
    spark = start_spark()
    with tempfile.TemporaryDirectory() as checkpoint:
        add_up(spark, servers, sales, totals, checkpoint)
    compare(last_totals(spark, servers, totals), sold)
    spark.stop()


def add_up(spark: SparkSession, servers: str, sales: str, totals: str, checkpoint: str) -> None:
    """The pipeline."""
    rows = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", sales)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2000)
        .load()
    )
    by_shop = (
        rows.selectExpr("cast(key AS string) AS shop", "cast(cast(value AS string) AS long) AS sum")
        .groupBy("shop")
        .sum("sum")
        .select(expr("shop AS key"), expr("cast(`sum(sum)` AS string) AS value"))
    )
    query = (
        by_shop.writeStream.outputMode("update")
        .foreachBatch(batch_writer(totals, {"kafka.bootstrap.servers": servers, "topic": totals}))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def last_totals(spark: SparkSession, servers: str, totals: str) -> dict[str, int]:
    """The newest total of every shop."""
    rows = (
        spark.read.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", totals)
        .load()
        .groupBy("key")
        .agg(expr("max_by(cast(value AS string), offset) AS total"))
    )
    return {bytes(row.key).decode(): int(row.total) for row in rows.collect()}


def compare(found: dict[str, int], sold: collections.Counter[str]) -> None:
    if found != dict(sold):
        sys.exit(f"sold {dict(sold)}, but the totals are {found}")
    print(f"{len(found)} shops sold for {sold.total()}, and that is what the totals say")


async def sell(servers: str, sales: str, totals: str, count: int) -> collections.Counter[str]:
    """Send sales, and return what each shop sold for."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in (sales, totals)])
    sold: collections.Counter[str] = collections.Counter()
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for _ in range(count):
            shop, price = random.choice(SHOPS), random.randrange(1, 100)
            sold[shop] += price
            await producer.send(sales, str(price).encode(), key=shop.encode())
    return sold


def start_spark() -> SparkSession:
    # Python's workers are to be of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("update mode")
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
