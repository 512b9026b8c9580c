"""What all rooms of one consumer share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka._interception import Interception
from aiokafka._log import SubjectLog
from aiokafka.consumer._meter import ConsumerMeter

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.fetch.desk import ReaderDesk
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = ["Shared"]

log = logging.getLogger("aiokafka.consumer.consumer")


@dataclass(frozen=True)
class Shared:
    """The parts that every room of one consumer works with. None of them knows a room."""

    client: AIOKafkaClient
    config: ConsumerConfig
    subscriptions: SubscriptionState
    desk: ReaderDesk
    on_change: Callable[[], None]
    """Called whenever the consumer may be doing better or worse than before."""
    meter: ConsumerMeter = field(init=False)
    interception: Interception | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        subject = SubjectLog(log, self.config.subject)
        meter = ConsumerMeter(subject, self.config.metrics_collector)
        object.__setattr__(self, "meter", meter)
        if self.config.interceptors:
            config = self.config
            interception = Interception(
                config.interceptors, subject, config.introduction, drops=True
            )
            object.__setattr__(self, "interception", interception)
            self.desk.intercept()
