"""Spark reads and writes Kafka through this package: `format("aiokafka")` in PySpark 4.2 or newer.

::

    from aiokafka.spark import register

    register(spark)
    df = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders")
        .load()
    )

Nothing here imports pyspark or pyarrow before it is used, and nothing starts a thread or opens a
socket at import: workers are forked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.spark._foreach import batch_writer
from aiokafka.spark._lag import Lag, lag, lag_listener, lag_of

if TYPE_CHECKING:
    from aiokafka.spark.source import KafkaSource

__all__ = ["KafkaSource", "Lag", "batch_writer", "lag", "lag_listener", "lag_of", "register"]


def register(spark: Any) -> None:
    """Register the format `aiokafka` with a session, also over Spark Connect.

    Raises ImportError without PySpark 4.2 or newer.
    """
    from aiokafka.spark.source import KafkaSource

    spark.dataSource.register(KafkaSource)


def __getattr__(name: str) -> Any:
    if name != "KafkaSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aiokafka.spark.source import KafkaSource

    return KafkaSource
