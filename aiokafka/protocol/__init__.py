"""Kafka's wire protocol: bytes in, objects out. Nothing here does I/O."""
