"""Lets Spark find the format `aiokafka` by itself: it looks into modules named `pyspark_*`.

It must never fail to import, or Spark finds none of the sources of other packages either; nor may
there be a `DefaultSource` that is none.
"""

from __future__ import annotations

try:
    from aiokafka.spark.source import KafkaSource as DefaultSource  # noqa: F401
except Exception:  # no PySpark, or one that is too old
    pass
