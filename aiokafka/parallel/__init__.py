"""Process records concurrently, in order by key; retry topics and dead-letter topics.

This package uses only the public API of the consumer and the producer.
"""

from __future__ import annotations

from aiokafka.parallel.processor import ParallelConsumer
from aiokafka.parallel.retry import RetryInfo, RetryTopics
from aiokafka.parallel.work import Work

__all__ = ["ParallelConsumer", "RetryInfo", "RetryTopics", "Work"]
