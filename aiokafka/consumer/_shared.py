"""What all rooms of one consumer share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.fetch.desk import ReaderDesk
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = ["Shared"]


@dataclass(frozen=True)
class Shared:
    """The parts that every room of one consumer works with. None of them knows a room."""

    client: AIOKafkaClient
    config: ConsumerConfig
    subscriptions: SubscriptionState
    desk: ReaderDesk
    on_change: Callable[[], None]
    """Called whenever the consumer may be doing better or worse than before."""
