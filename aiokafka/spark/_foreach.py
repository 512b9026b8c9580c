"""Write in `foreachBatch` exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["batch_writer"]


def batch_writer(app_id: str, options: Mapping[str, Any]) -> Callable[[Any, int], None]:
    """Return a function for `writeStream.foreachBatch` that writes each batch exactly once.

    It is for output mode `update`, which data sources in Python lack::

        totals.writeStream.outputMode("update").foreachBatch(
            batch_writer("totals", {"kafka.bootstrap.servers": "...", "topic": "totals"})
        ).option("checkpointLocation", "...").start()

    `app_id` is the permanent name of the query. A new checkpoint needs another one, or the query
    fails because its first batches would look like repetitions. To write several topics of a batch,
    make one writer for each. `options` are those of a batch write. Raises ValueError for an empty
    `app_id`, and for options that the function sets itself.
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
