"""Kafka from PySpark: ours, the JVM connector, and a source over confluent-kafka."""
