"""Parse JSON, and go on at records that are none: two topics, each batch written exactly once.

    python examples/spark/bad_records.py --bootstrap HOST:PORT

Sends orders to a topic, some of which are broken. Orders that can be read are added up with their
lines and go to a second topic; the others go to a third one as they came, with a header that says
from where. The query is stopped between these two writes of a batch, as if it had died there, and
started again. In the end each order is in one of the topics, once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import uuid
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, from_json

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.spark import batch_writer, register

ORDER = "id BIGINT, shop STRING, amounts ARRAY<DECIMAL(12, 2)>"
BROKEN = [b"", b"{", b"[]", b'{"shop": "no id"}', b'{"id": "x", "amounts": []}', b"\xff\xfe"]

Write = Callable[[DataFrame, int], None]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", default=os.environ.get("BOOTSTRAP", "localhost:9092"))
    parser.add_argument("--orders", type=int, default=3000)
    arguments = parser.parse_args()
    servers, name = arguments.bootstrap, uuid.uuid4().hex[:8]
    incoming, orders, rejects = (f"{what}-{name}" for what in ("incoming", "orders", "rejects"))
    broken = asyncio.run(send(servers, [incoming, orders, rejects], arguments.orders))
    spark = start_spark()
    with tempfile.TemporaryDirectory() as checkpoint:
        # Spark raises the failure of the first run as an error of its own.
        with contextlib.suppress(Exception):
            parse(spark, servers, incoming, checkpoint, sorter(servers, orders, rejects, dies=True))
        parse(spark, servers, incoming, checkpoint, sorter(servers, orders, rejects, dies=False))
    check(spark, servers, orders, rejects, arguments.orders, broken)
    spark.stop()


def sorter(servers: str, orders: str, rejects: str, *, dies: bool) -> Write:
    """What writes a batch; `dies`: between the two topics, to show that it does no harm."""
    options = {"kafka.bootstrap.servers": servers}
    # A name for each of them, which is kept for ever.
    write_orders = batch_writer(orders, {**options, "topic": orders})
    write_rejects = batch_writer(rejects, {**options, "topic": rejects})

    def write(rows: DataFrame, batch: int) -> None:
        parsed = rows.withColumn("order", from_json(col("value").cast("string"), ORDER))
        # Both writes use it: without this each would read from Kafka and parse.
        parsed.persist()
        try:
            is_good = "order.id IS NOT NULL AND order.amounts IS NOT NULL"
            good, bad = parsed.where(is_good), parsed.where(f"NOT ({is_good})")
            write_orders(good.selectExpr("key", ORDER_JSON), batch)
            if dies and batch == 1:
                raise RuntimeError("dead between the two")
            write_rejects(bad.selectExpr("key", "value", WHERE_FROM), batch)
        finally:
            parsed.unpersist()

    return write


ORDER_JSON = """to_json(struct(
    order.id,
    order.shop,
    aggregate(
        order.amounts, CAST(0 AS DECIMAL(22, 2)), (sum, x) -> CAST(sum + x AS DECIMAL(22, 2))
    ) AS total
)) AS value"""
WHERE_FROM = """array(struct(
    'came-from' AS key, CAST(concat_ws('/', topic, partition, offset) AS BINARY) AS value
)) AS headers"""


def parse(spark: SparkSession, servers: str, incoming: str, checkpoint: str, write: Write) -> None:
    """The pipeline, up to the end of what there is."""
    rows = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", incoming)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .load()
    )
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def check(
    spark: SparkSession, servers: str, orders: str, rejects: str, count: int, broken: int
) -> None:
    found = [json.loads(row.value)["id"] for row in read(spark, servers, orders)]
    rejected = read(spark, servers, rejects)
    places = {bytes(row.headers[0].value) for row in rejected}
    if sorted(found) != sorted(set(found)) or len(found) != count - broken:
        sys.exit(f"{count - broken} orders were good, but {len(found)} were written")
    if not len(rejected) == len(places) == broken:
        sys.exit(f"{broken} were broken, but {len(rejected)} from {len(places)} were rejected")
    print(f"{len(found)} orders and {broken} rejects, each written once")


def read(spark: SparkSession, servers: str, topic: str) -> list[Any]:
    return list(
        spark.read.format("aiokafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("subscribe", topic)
        .load()
        .select("value", expr("headers"))
        .collect()
    )


async def send(servers: str, topics: list[str], count: int) -> int:
    """Make the topics, send orders to the first, and return how many of them are broken."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in topics])
    broken = 0
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(count):
            key = f"shop-{number % 7}"
            amounts = [random.randrange(100, 9999) / 100 for _ in range(number % 4)]
            value = json.dumps({"id": number, "shop": key, "amounts": amounts}).encode()
            if number % 20 == 0:
                value, broken = random.choice(BROKEN), broken + 1
            await producer.send(topics[0], value, key=key.encode())
    return broken


def start_spark() -> SparkSession:
    # Python's workers are to be of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("bad records")
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
