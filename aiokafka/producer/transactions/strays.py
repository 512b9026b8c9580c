"""Know which requests of a transaction got no response, and may be carried out after its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError
from aiokafka.net.failures import REFUSALS
from aiokafka.structs import TopicPartition

__all__ = ["UNANSWERED", "Strays"]

# A session that cannot be renewed ends its connection with what was in flight.
UNANSWERED = (
    KafkaConnectionError,
    NodeNotReadyError,
    RequestTimedOutError,
    *REFUSALS,
    asyncio.TimeoutError,
    asyncio.CancelledError,
)


class Strays:
    """Owns what brokers may still be asked by requests of the transaction that got no response.

    One that was sent again counts as well, whatever became of the repetition.
    """

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        """Where records may still be written."""
        self.groups: set[str] = set()
        """Whose offsets may still be stored."""
        self.of_coordinator = False
        """Whether the transaction may still be changed or ended at its coordinator."""
        self.of_commit = False
        """Whether a request to commit it got no response that says what became of it: it may be
        committed, whatever a later request is told."""

    def __bool__(self) -> bool:
        return bool(self.partitions or self.groups or self.of_coordinator)

    def note_records(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a Produce request with records of these partitions got no response."""
        self.partitions.update(partitions)

    @contextmanager
    def watch_offsets(self, group_id: str) -> Iterator[None]:
        """Guard a request that stores offsets of a group."""
        try:
            yield
        except UNANSWERED:
            self.groups.add(group_id)
            raise

    @contextmanager
    def watch_coordinator(self) -> Iterator[None]:
        """Guard a request that changes or ends the transaction at its coordinator."""
        try:
            yield
        except UNANSWERED:
            self.of_coordinator = True
            raise

    @contextmanager
    def watch_commit(self) -> Iterator[None]:
        """Guard a request that commits the transaction."""
        try:
            with self.watch_coordinator():
                yield
        except BaseException:
            self.of_commit = True
            raise

    def note_end(self, is_commit: bool) -> None:
        """Note that a request to end the transaction may have been stored by a coordinator that was
        not able to say so."""
        self.of_commit |= is_commit

    def forget_records(self) -> None:
        """Drop the partitions: every record of the transaction was acknowledged, so leaders know
        what comes once more by its sequence number."""
        self.partitions.clear()

    def take(self) -> Strays:
        """Return what was noted, and begin again with nothing."""
        taken = Strays()
        taken.partitions, self.partitions = self.partitions, set()
        taken.groups, self.groups = self.groups, set()
        taken.of_coordinator, self.of_coordinator = self.of_coordinator, False
        taken.of_commit, self.of_commit = self.of_commit, False
        return taken
