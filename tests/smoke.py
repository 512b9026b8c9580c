"""A record through the installed package: ``smoke.py [--compiled]``. Needs nothing but aiokafka."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import sys

import aiokafka
from aiokafka.record import batch
from aiokafka.testing import FakeCluster


async def round_trip() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("smoke")
        servers = cluster.bootstrap_servers
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("smoke", b"value", key=b"key")
        consumer = aiokafka.AIOKafkaConsumer(
            "smoke", bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        async with consumer:
            record = await asyncio.wait_for(consumer.getone(), 10)
        if (record.key, record.value) != (b"key", b"value"):
            sys.exit(f"read back {record}")


def check_spark() -> None:
    """Spark looks into `pyspark_aiokafka`, which must be there, and not fail for want of Spark."""
    import pyspark_aiokafka
    from aiokafka import spark

    if importlib.util.find_spec("pyspark") is None:
        if hasattr(pyspark_aiokafka, "DefaultSource"):
            sys.exit("pyspark_aiokafka has a source without Spark")
        try:
            spark.register(None)
        except ImportError as error:
            if "PySpark 4.2 or newer" not in str(error):
                sys.exit(f"without PySpark register() says only: {error}")
    wanted = [name for name in importlib.metadata.requires("aiokafka") or () if "spark" in name]
    if not any(name.startswith("pyarrow") for name in wanted):
        sys.exit(f"the extra spark requires {wanted}")


def main() -> None:
    compiled = not str(batch.__file__).endswith(".py")
    if "--compiled" in sys.argv[1:] and not compiled:
        sys.exit("the extensions are missing from this package")
    asyncio.run(round_trip())
    check_spark()
    print(f"aiokafka {aiokafka.__version__}, {'compiled' if compiled else 'pure Python'}")


if __name__ == "__main__":
    main()
