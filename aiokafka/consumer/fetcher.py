"""Compatibility module, an import path of aiokafka 0.14: the code is in `consumer/fetch/`."""

import asyncio

from aiokafka.consumer.fetch.fetcher import Fetcher
from aiokafka.errors import ConsumerStoppedError, KafkaTimeoutError, RecordTooLargeError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition

__all__ = [
    "ConsumerRecord",
    "ConsumerStoppedError",
    "FetchRequest",
    "Fetcher",
    "KafkaTimeoutError",
    "OffsetAndTimestamp",
    "RecordTooLargeError",
    "TopicPartition",
    "asyncio",
]
