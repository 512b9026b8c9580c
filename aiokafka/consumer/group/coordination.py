"""What the consumer asks of its group, or of what stands in for one."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka._vitals import Contact
    from aiokafka.errors import KafkaError

__all__ = ["Coordination", "GroupPhase"]


class GroupPhase(enum.Enum):
    """How a consumer stands with its group, as `health()` sees it."""

    OUTSIDE = "has no group, or nothing to do with its members"
    JOINING = "joins, or is about to join"
    JOINED = "has its share of the partitions"
    IDLE = "left, because the application does not ask for records"


class Coordination(Protocol):
    """Writes the assignment while there is a subscription by topics or pattern."""

    @property
    def contact(self) -> Contact | None:
        """Whether the group's coordinator answers; None without a group."""

    @property
    def generation(self) -> int:
        """The group's generation, or the member's epoch; -1 outside a group."""

    @property
    def beat_at(self) -> float | None:
        """When the coordinator last answered as to a member (loop time)."""

    @property
    def session_timeout(self) -> float:
        """Seconds without a heartbeat after which the group drops a member."""

    @property
    def phase(self) -> GroupPhase:
        """How the consumer stands with its group."""

    @property
    def reason(self) -> str:
        """Why the member joins, "" if it does not."""

    @property
    def trouble(self) -> KafkaError | None:
        """Why there is no assignment yet, or why heartbeats are refused; None if that is not
        known."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the membership."""

    def check(self) -> None:
        """Raise the error that ended the membership."""

    async def start(self, tasks: TaskOwner) -> None:
        """Work in the background; with a group wait for the first assignment."""

    async def stop(self, deadline: float) -> None:
        """End the background work, commit and leave, until `deadline` (loop time) at most."""

    async def close(self, deadline: float | None = None) -> None:
        """End what `stop()` left, if it was cancelled."""

    def abandon(self) -> None:
        """End the background work without waiting for it."""

    def on_subscribed(self) -> None:
        """Follow the subscription: the application has changed it."""

    def on_metadata(self) -> None:
        """Bring the assignment up to the metadata, then have everything fetched from the right
        broker."""
