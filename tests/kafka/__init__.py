"""Starts real Apache Kafka brokers for tests and benchmarks: ``python -m tests.kafka --help``."""
