"""Apache Kafka client for asyncio.

A public name is imported when it is first used, so importing the package is cheap.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from aiokafka._loading import is_main
from aiokafka._version import __version__ as __version__

if os.environ.get("AIOKAFKA_NO_EXTENSIONS") or not is_main():
    # Before other modules are imported, install the hook that imports the `.py` files; otherwise
    # Python would load the extension modules beside them.
    from aiokafka._loading import install

    install()

if TYPE_CHECKING:
    from aiokafka import abc as abc
    from aiokafka import client as client
    from aiokafka import cluster as cluster
    from aiokafka import codec as codec
    from aiokafka import conn as conn
    from aiokafka import consumer as consumer
    from aiokafka import coordinator as coordinator
    from aiokafka import errors as errors
    from aiokafka import metrics as metrics
    from aiokafka import partitioner as partitioner
    from aiokafka import producer as producer
    from aiokafka import protocol as protocol
    from aiokafka import record as record
    from aiokafka import session as session
    from aiokafka import structs as structs
    from aiokafka import util as util
    from aiokafka._config.defaults import Defaults, defaults
    from aiokafka.abc import AsyncConsumerRebalanceListener, ConsumerRebalanceListener
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.consumer import AIOKafkaConsumer
    from aiokafka.errors import ConsumerStoppedError, IllegalOperation
    from aiokafka.health import (
        ConsumerHealth,
        ConsumerState,
        ProducerHealth,
        ProducerState,
        ShareConsumerHealth,
    )
    from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector
    from aiokafka.producer.producer import AIOKafkaProducer
    from aiokafka.session.session import TransactionalSession
    from aiokafka.share.acquired import AcknowledgeType, ShareRecord
    from aiokafka.share.buffer import RejectRecord
    from aiokafka.share.consumer import AIOKafkaShareConsumer
    from aiokafka.structs import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        SubscriptionPattern,
        TopicPartition,
    )

__all__ = [
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "AIOKafkaShareConsumer",
    "AcknowledgeType",
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerHealth",
    "ConsumerMetricsCollector",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerState",
    "ConsumerStoppedError",
    "Defaults",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "ProducerHealth",
    "ProducerMetricsCollector",
    "ProducerState",
    "RejectRecord",
    "ShareConsumerHealth",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
    "TransactionalSession",
    "defaults",
]

_HOMES = {
    "AIOKafkaClient": "aiokafka.client",
    "AIOKafkaConsumer": "aiokafka.consumer.consumer",
    "AIOKafkaProducer": "aiokafka.producer.producer",
    "AIOKafkaShareConsumer": "aiokafka.share.consumer",
    "AcknowledgeType": "aiokafka.share.acquired",
    "AsyncConsumerRebalanceListener": "aiokafka.abc",
    "ConsumerGroupMetadata": "aiokafka.structs",
    "ConsumerHealth": "aiokafka.health",
    "ConsumerMetricsCollector": "aiokafka.metrics",
    "ConsumerRebalanceListener": "aiokafka.abc",
    "ConsumerRecord": "aiokafka.structs",
    "ConsumerState": "aiokafka.health",
    "ConsumerStoppedError": "aiokafka.errors",
    "Defaults": "aiokafka._config.defaults",
    "IllegalOperation": "aiokafka.errors",
    "OffsetAndMetadata": "aiokafka.structs",
    "OffsetAndTimestamp": "aiokafka.structs",
    "ProducerHealth": "aiokafka.health",
    "ProducerMetricsCollector": "aiokafka.metrics",
    "ProducerState": "aiokafka.health",
    "RejectRecord": "aiokafka.share.buffer",
    "ShareConsumerHealth": "aiokafka.health",
    "ShareRecord": "aiokafka.share.acquired",
    "SubscriptionPattern": "aiokafka.structs",
    "TopicPartition": "aiokafka.structs",
    "TransactionalSession": "aiokafka.session.session",
    "defaults": "aiokafka._config.defaults",
}

_SUBMODULES = frozenset(
    (
        "abc",
        "client",
        "cluster",
        "codec",
        "conn",
        "consumer",
        "coordinator",
        "errors",
        "metrics",
        "parallel",
        "partitioner",
        "producer",
        "protocol",
        "record",
        "session",
        "structs",
        "util",
    )
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(importlib.import_module(home), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"aiokafka.{name}")
    else:
        raise AttributeError(f"module 'aiokafka' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_SUBMODULES})
