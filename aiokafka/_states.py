"""What a client is doing, in a word: the states of `aiokafka.health`."""

from __future__ import annotations

import enum

__all__ = ["ConsumerState", "ProducerState", "Word"]


class Word(str, enum.Enum):
    """A string that is one of a few; it prints and compares as that string."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(str(self.value), spec)


class ConsumerState(Word):
    """What a consumer is doing. Each is a string, such as `"running"`."""

    NEW = "new"
    """`start` was not called."""

    STARTING = "starting"
    """`start` was called and has not returned."""

    UNSUBSCRIBED = "unsubscribed"
    """There is nothing to read: no subscription, no partitions chosen by hand."""

    REBALANCING = "rebalancing"
    """It joins its group, or has to join it again, and has no say over its partitions."""

    RUNNING = "running"
    """It fetches; with a group: as a member, with its share of the partitions."""

    POLL_OVERDUE = "poll_overdue"
    """It left its group, since the application asked for no records for `max_poll_interval_ms`; it
    joins again when the application asks."""

    UNREACHABLE = "unreachable"
    """The group's coordinator does not answer, or none of its partitions can be read: their brokers
    do not answer, or have answered with nothing but errors for five seconds. It goes on trying."""

    FAILED = "failed"
    """It cannot go on, such as when another member took its `group_instance_id`: every call says
    why."""

    CLOSED = "closed"
    """`stop` was called."""


class ProducerState(Word):
    """What a producer is doing. Each is a string, such as `"running"`."""

    NEW = "new"
    """`start` was not called, or has not returned."""

    RUNNING = "running"
    """It sends."""

    UNREACHABLE = "unreachable"
    """No broker that has to get records answers, or takes any for five seconds; or none answers at
    all. It goes on trying."""

    FAILED = "failed"
    """It cannot go on, such as when another producer took its `transactional_id`."""

    CLOSING = "closing"
    """`stop` was called, and has not returned: it delivers the rest."""

    CLOSED = "closed"
    """`stop` has returned, or `start` has failed."""
