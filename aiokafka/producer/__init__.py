"""The producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka._loading import on_demand
from aiokafka.producer.producer import AIOKafkaProducer

if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, "sender", "transaction_manager")

__all__ = ["AIOKafkaProducer"]
