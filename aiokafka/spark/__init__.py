"""Spark reads and writes Kafka through this package: `format("aiokafka")` in PySpark 4.2 or newer.

`register(spark)` makes the format known to a session. Nothing here imports pyspark or pyarrow
before it is used, and nothing starts a thread or opens a socket at import: workers are forked.
"""
