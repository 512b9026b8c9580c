"""Share groups, the queues of Kafka: a consumer that acknowledges each record (KIP-932)."""

from __future__ import annotations

from aiokafka.share.acquired import AcknowledgeType, ShareRecord
from aiokafka.share.buffer import RejectRecord
from aiokafka.share.consumer import AIOKafkaShareConsumer

__all__ = ["AIOKafkaShareConsumer", "AcknowledgeType", "RejectRecord", "ShareRecord"]
