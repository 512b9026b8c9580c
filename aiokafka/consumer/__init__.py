"""AIOKafkaConsumer and its parts."""

from typing import TYPE_CHECKING

from aiokafka._loading import on_demand
from aiokafka.consumer.consumer import AIOKafkaConsumer

if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, "fetcher", "group_coordinator")

__all__ = ["AIOKafkaConsumer"]
