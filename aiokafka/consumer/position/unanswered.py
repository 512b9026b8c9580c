"""Commits without a response, which the coordinator may carry out behind later ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.net.connection import BrokerConnection

__all__ = ["UnansweredCommits"]

Entry = tuple[int, str, int]
"""Offset, metadata, leader epoch."""

# Seconds after a later commit is confirmed. By then a broker has read, or dropped, what was sent
# over a connection that is gone.
_LONGEST_DOUBT = 300.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# Different offsets of one partition, each of a commit without a response.
_MOST_VALUES = 100


class _Sent(NamedTuple):
    connection: BrokerConnection
    number: int
    """In the order in which commits were sent."""


class _Doubt:
    """Commits of one partition without a response, and the one that was confirmed after them."""

    __slots__ = ("later", "since", "values")

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], _Sent] = {}
        self.later: Entry | None = None
        self.since = 0.0


class UnansweredCommits:
    """Finds out that an older commit was carried out behind a newer one.

    1. A commit of offset 5 is sent. Its connection is cut, or the time for the response is over.
    2. The next commit, of offset 8, goes over another connection, and is confirmed.
    3. The coordinator comes to the first one. It is the same member's, of the same generation, so
       nothing refuses it: the group has stored 5 again, and the consumer takes 8 for stored.

    So for a while after 2 the consumer looks what the group has stored, and stores the newer offset
    again if it finds that of a commit without a response, and no other: other clients may commit
    for partitions that belong to no member.

    Commits over one connection are carried out in their order. With a response to one of them,
    those that were sent over it before, and cancelled, are in doubt no longer.

    Owns: by partition, what got no response, what was confirmed after that, and since when.
    """

    def __init__(self) -> None:
        self._doubts: dict[TopicPartition, _Doubt] = {}

    def __bool__(self) -> bool:
        return bool(self._doubts)

    def add(
        self, offsets: Mapping[TopicPartition, Entry], connection: BrokerConnection, number: int
    ) -> None:
        """Note that a commit of these offsets was sent over this connection, without a response.
        Later ones have higher numbers."""
        for tp, entry in offsets.items():
            doubt = self._doubts.setdefault(tp, _Doubt())
            doubt.later = None
            doubt.values[entry[:2]] = _Sent(connection, number)
            if len(doubt.values) > _MOST_VALUES:
                del doubt.values[next(iter(doubt.values))]

    def settle(self, connection: BrokerConnection, number: int) -> None:
        """Drop what was sent over this connection before the commit of this number, which has got
        its response."""
        for tp, doubt in list(self._doubts.items()):
            for value, sent in list(doubt.values.items()):
                if sent.connection is connection and sent.number < number:
                    del doubt.values[value]
            if not doubt.values:
                del self._doubts[tp]

    def confirm(self, tp: TopicPartition, entry: Entry, now: float) -> None:
        """Note that the group has stored this offset, as far as the coordinator says."""
        doubt = self._doubts.get(tp)
        if doubt is not None:
            if doubt.later is None:
                doubt.since = now
            doubt.later = entry

    def forget_all_but(self, kept: Collection[TopicPartition]) -> None:
        """Drop other partitions: they are others' from now on."""
        for tp in [tp for tp in self._doubts if tp not in kept]:
            del self._doubts[tp]

    def to_look_up(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions of which a later commit is confirmed; those of which that was long
        ago are dropped."""
        confirmed = {tp: doubt for tp, doubt in self._doubts.items() if doubt.later is not None}
        for tp, doubt in confirmed.items():
            if now - doubt.since > _LONGEST_DOUBT:
                del self._doubts[tp]
        return frozenset(confirmed.keys() & self._doubts.keys())

    def pause(self, now: float) -> float:
        """Return the seconds until the next look: the longer nothing was found, the more."""
        since = (doubt.since for doubt in self._doubts.values() if doubt.later is not None)
        return min(max(now - max(since, default=now), _SHORTEST_PAUSE), _LONGEST_PAUSE)

    def overwritten(self, found: Mapping[TopicPartition, Entry]) -> dict[TopicPartition, Entry]:
        """Return what to store again, by what the group has stored."""
        again: dict[TopicPartition, Entry] = {}
        for tp, entry in found.items():
            doubt = self._doubts.get(tp)
            if doubt is None or doubt.later is None or entry[:2] == doubt.later[:2]:
                continue
            if entry[:2] in doubt.values:
                again[tp] = doubt.later
        return again
