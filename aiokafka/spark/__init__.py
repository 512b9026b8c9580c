"""A Spark data source and sink for Kafka: `format("aiokafka")` in PySpark 4.2 or newer.

::

    from aiokafka.spark import register

    register(spark)
    df = (
        spark.readStream.format("aiokafka")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders")
        .load()
    )

Importing this package does not import pyspark or pyarrow. It starts no thread and opens no socket,
because Spark forks its worker processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka.spark._offsets import Lag, lag, lag_listener, lag_of

if TYPE_CHECKING:
    from aiokafka.spark.source import KafkaSource

__all__ = ["KafkaSource", "Lag", "batch_writer", "lag", "lag_listener", "lag_of", "register"]


def register(spark: Any) -> None:
    """Register the format `aiokafka` with a Spark session, which may be a Spark Connect session.

    Raises ImportError if PySpark is missing or older than 4.2.
    """
    from aiokafka.spark.source import KafkaSource

    spark.dataSource.register(KafkaSource)


def batch_writer(app_id: str, options: Mapping[str, Any]) -> Callable[[Any, int], None]:
    """Return a function for `writeStream.foreachBatch` that writes each batch exactly once.

    Use it for the output mode `update`, which Python data sources do not support::

        totals.writeStream.outputMode("update").foreachBatch(
            batch_writer("totals", {"kafka.bootstrap.servers": "...", "topic": "totals"})
        ).option("checkpointLocation", "...").start()

    `app_id` is the permanent name of the query. A query with a new checkpoint needs a new name:
    otherwise it fails, because its first batches would look like repeated batches. To write a batch
    to several topics, create one writer for each topic. `options` are the options of a batch write.
    Raises ValueError for an empty `app_id`, and for the options txnAppId, txnVersion and
    deliveryGuarantee, because this function determines them.
    """
    if not app_id:
        raise ValueError(f"app_id={app_id!r}: must be a name that is not empty")
    given = {name.lower() for name in options} & {"txnappid", "txnversion", "deliveryguarantee"}
    if given:
        raise ValueError(f"options: {', '.join(sorted(given))} is set by batch_writer")

    def write(rows: Any, batch_id: int) -> None:
        writer = rows.write.format("aiokafka").options(**options)
        writer = writer.option("txnAppId", app_id).option("txnVersion", str(batch_id))
        writer.mode("append").save()

    return write


def __getattr__(name: str) -> Any:
    if name != "KafkaSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aiokafka.spark.source import KafkaSource

    return KafkaSource
