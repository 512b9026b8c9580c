"""The producer."""

from __future__ import annotations

from aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
