"""What all rooms of one consumer share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from aiokafka._log import SubjectLog
from aiokafka._reading import OldEpochs
from aiokafka.consumer._meter import ConsumerMeter

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._interception import Interception
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.fetch.desk import ReaderDesk
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = ["Shared", "telemetry_labels"]

log = logging.getLogger("aiokafka.consumer.consumer")


class Shared:
    """The parts that every room of one consumer works with. None of them knows a room."""

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        desk: ReaderDesk,
        on_change: Callable[[], None],
    ) -> None:
        self.client: Final = client
        self.config: Final = config
        self.subscriptions: Final = subscriptions
        self.old_epochs: Final = OldEpochs(client.versions)
        self.desk: Final = desk
        self.on_change: Final = on_change
        """Called whenever the consumer may be doing better or worse than before."""
        subject = SubjectLog(log, config.subject)
        self.meter: Final = ConsumerMeter(subject, config.metrics_collector)
        self.interception: Final = _interception(config, subject)
        if self.interception is not None:
            desk.intercept()

    def fail(self, error: BaseException) -> None:
        """Wake whatever waits, so that it sees that the background work has failed."""
        self.on_change()
        self.desk.wake_all()


def _interception(config: ConsumerConfig, subject: SubjectLog) -> Interception | None:
    if not config.interceptors:
        return None
    from aiokafka._interception import Interception

    return Interception(config.interceptors, subject, config.introduction, drops=True)


class _Member(Protocol):
    """What takes part in a group."""

    @property
    def member_id(self) -> str:
        """Its id there."""


def telemetry_labels(config: ConsumerConfig, group: _Member | None) -> dict[str, str]:
    """Return what describes a consumer to brokers that take its metrics."""
    return {
        "group_id": config.group_id or "",
        "group_instance_id": config.group_instance_id or "",
        "group_member_id": "" if group is None else group.member_id,
        "client_rack": config.client.client_rack or "",
    }
