"""Share sessions, share partitions and their stored states (KIP-932)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import _clock, errors
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.consumer_group import TopicIdPartition
from aiokafka.testing.share_partition import (
    UNINITIALIZED,
    ShareEvent,
    SharePartition,
    ShareSettings,
    StoredState,
    new_events,
)

if TYPE_CHECKING:
    from aiokafka.testing.log import PartitionLog
    from aiokafka.testing.state import ClusterState, Partition

FULL, FINAL = 0, -1
_MAX_EPOCH = 2**31 - 1
_SECONDS = {"D": 86_400, "H": 3600, "M": 60, "S": 1}

SessionKey = tuple[str, str]
"""Group id and member id."""


@dataclass(slots=True)
class ShareSession:
    """The partitions that a member of a share group fetches from one broker."""

    key: SessionKey
    connection_id: int
    """The connection whose end closes the session."""
    partitions: dict[TopicIdPartition, bool]
    """By partition, whether the next response must include the partition even without records."""
    epoch: int = 1
    """Epoch that the next request of the session must have."""

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1


@dataclass
class ShareBroker:
    """Share sessions and share partitions in the memory of one broker."""

    sessions: dict[SessionKey, ShareSession] = field(default_factory=dict)
    partitions: dict[tuple[str, TopicIdPartition], SharePartition] = field(default_factory=dict)
    connections: dict[int, SessionKey] = field(default_factory=dict)
    """The session that each connection has opened."""

    def session(self, key: SessionKey) -> ShareSession:
        """Return a session. Raise RefusedError if there is none."""
        if key not in self.sessions:
            raise RefusedError(errors.ShareSessionNotFound)
        return self.sessions[key]

    def next_session(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return a session, and advance its epoch. Raise RefusedError if there is no session, or if
        `epoch` is not its current epoch."""
        session = self.session(key)
        if session.epoch != epoch:
            raise RefusedError(errors.InvalidShareSessionEpoch)
        session.advance()
        return session

    def open_session(
        self,
        key: SessionKey,
        connection_id: int,
        partitions: Iterable[TopicIdPartition],
        max_sessions: int,
    ) -> ShareSession:
        """Open a session, in place of the member's session if there is one.

        Raises:
            RefusedError: the broker has `max_sessions` sessions.
        """
        self.sessions.pop(key, None)
        if len(self.sessions) >= max_sessions:
            raise RefusedError(errors.ShareSessionLimitReached)
        session = ShareSession(key, connection_id, dict.fromkeys(partitions, False))
        self.sessions[key] = session
        self.connections[connection_id] = key
        return session

    def close(self) -> None:
        """Close all share partitions and forget all sessions, as a stopped broker does."""
        for partition in self.partitions.values():
            partition.close()
        self.partitions.clear()
        self.sessions.clear()
        self.connections.clear()


class SharePartitionManager:
    """The share sessions and share partitions of all brokers, and the states that the share
    coordinator stores."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._brokers: dict[int, ShareBroker] = {}
        #: The stored state by group and partition. A group that has subscribed to a topic has
        #: states of all its partitions.
        self.stored: dict[str, dict[TopicIdPartition, StoredState]] = {}
        #: What happened to the records of each group.
        self.events: dict[str, deque[ShareEvent]] = {}

    def broker(self, node_id: int) -> ShareBroker:
        """Return the sessions and share partitions of one broker."""
        return self._brokers.setdefault(node_id, ShareBroker())

    # -- sessions ------------------------------------------------------------------------------

    def close_session(self, node_id: int, key: SessionKey) -> None:
        """Close a session, and release the records that its member has acquired."""
        session = self.broker(node_id).sessions.pop(key)
        group_id, member_id = key
        for place in session.partitions:
            partition = self.known(node_id, group_id, place)
            if partition is not None:
                partition.release(member_id)

    def connection_closed(self, node_id: int, connection_id: int) -> None:
        """Close the session that a connection has opened. Forget the group's share partitions if
        the group has no other session at this broker."""
        broker = self.broker(node_id)
        key = broker.connections.pop(connection_id, None)
        if key is None:
            return
        if key in broker.sessions:
            self.close_session(node_id, key)
        if all(group_id != key[0] for group_id, _ in broker.sessions):
            for place in [place for place in broker.partitions if place[0] == key[0]]:
                broker.partitions.pop(place).close()

    # -- share partitions ----------------------------------------------------------------------

    def start_offset(self, group_id: str, partition: Partition) -> int:
        """Return the start offset of a group in a partition, before which no record is delivered
        again: the offset in the memory of the leader, or else by the stored state; -1 if the group
        has not read from the partition."""
        place = (self._state.topics[partition.topic].topic_id, partition.index)
        known = self.known(partition.leader, group_id, place) if partition.leader >= 0 else None
        if known is not None:
            return known.start
        stored = self.of(group_id).get(place)
        if stored is None or stored.start == UNINITIALIZED:
            return UNINITIALIZED
        return stored.first_unfinished(partition.log.start_offset)

    def initialize(self, group_id: str, topics: Iterable[tuple[bytes, int]]) -> None:
        """Create the missing states of a group that has subscribed to topics, given by topic id and
        number of partitions."""
        stored = self.stored.setdefault(group_id, {})
        for topic_id, count in topics:
            for index in range(count):
                stored.setdefault((topic_id, index), StoredState())

    def known(self, node_id: int, group_id: str, place: TopicIdPartition) -> SharePartition | None:
        """Return the share partition that a broker has in memory; None if a fetch must load it, or
        the broker is no longer the leader."""
        broker = self.broker(node_id)
        partition = broker.partitions.get((group_id, place))
        if partition is None:
            return None
        view = self._state.nodes[node_id].view or self._state
        topic = view.topics_by_id.get(place[0])
        leader = None if topic is None else topic.partitions[place[1]]
        leads = (
            leader is not None
            and leader.leader == node_id
            and leader.leader_epoch == partition.leader_epoch
        )
        if leads and not partition.is_closed:
            return partition
        broker.partitions.pop((group_id, place)).close()
        return None

    def load(
        self, node_id: int, group_id: str, place: TopicIdPartition, leader: Partition
    ) -> SharePartition:
        """Return the share partition of a group at the leader of a partition. A new leader
        continues from the stored state.

        Raises:
            RefusedError: the group has not subscribed to the topic, or another broker has become
                the leader.
        """
        known = self.known(node_id, group_id, place)
        if known is not None:
            return known
        stored = self.stored.get(group_id, {}).get(place)
        if stored is None:
            raise RefusedError(errors.UnknownError)
        if leader.leader_epoch < stored.leader_epoch:
            raise RefusedError(errors.NotLeaderForPartitionError)
        start = self._first_offset(group_id, leader.log) if stored.start == UNINITIALIZED else -1
        made = SharePartition(
            start,
            stored,
            leader.leader_epoch,
            partial(self.settings, group_id),
            (leader.topic, leader.index),
            self.events.setdefault(group_id, new_events()),
        )
        self.broker(node_id).partitions[group_id, place] = made
        return made

    def _first_offset(self, group_id: str, log: PartitionLog) -> int:
        """Return the offset at which a group begins (``share.auto.offset.reset``). Raise
        RefusedError if the strategy ``by_duration`` finds no record."""
        strategy = self._state.group_setting(group_id, "share.auto.offset.reset").lower()
        if strategy == "latest":
            return log.high_watermark
        if strategy == "earliest":
            return log.start_offset
        since = int((_clock.wall_time() - seconds_of(strategy.partition(":")[2])) * 1000)
        place = log.offset_for_time(since, log.high_watermark)
        if place is None:
            raise RefusedError(errors.OffsetNotAvailable)
        return place[1]

    def settings(self, group_id: str) -> ShareSettings:
        """Return the settings of a group that its share partitions use."""

        def value(name: str) -> str:
            return self._state.group_setting(group_id, name)

        return ShareSettings(
            int(value("share.record.lock.duration.ms")) / 1000,
            int(value("share.delivery.count.limit")),
            int(value("share.partition.max.record.locks")),
            value("share.renew.acknowledge.enable") == "true",
        )

    def alter(self, group_id: str, place: TopicIdPartition, start: int) -> None:
        """Set the start offset of a share partition, and forget the states of its records."""
        self.stored.setdefault(group_id, {}).setdefault(place, StoredState()).reset(start)

    def delete_topic(self, group_id: str, topic_id: bytes) -> bool:
        """Delete the states of a topic; return whether there were any."""
        stored = self.stored.get(group_id, {})
        found = [place for place in stored if place[0] == topic_id]
        for place in found:
            stored.pop(place).reset(UNINITIALIZED)
        return bool(found)

    def delete_group(self, group_id: str) -> None:
        """Delete all states of a group."""
        for state in self.stored.pop(group_id, {}).values():
            state.reset(UNINITIALIZED)

    def of(self, group_id: str) -> Mapping[TopicIdPartition, StoredState]:
        """Return the stored states of a group."""
        return self.stored.get(group_id, {})

    def topic_deleted(self) -> None:
        """Delete the states of deleted topics."""
        topics = self._state.topics_by_id
        for group_id, stored in self.stored.items():
            for topic_id in {place[0] for place in stored if place[0] not in topics}:
                self.delete_topic(group_id, topic_id)

    def node_stopped(self, node_id: int) -> None:
        """Forget the sessions and share partitions of a stopped broker."""
        self.broker(node_id).close()

    def close(self) -> None:
        """Cancel all timers, and forget what brokers have in memory."""
        for broker in self._brokers.values():
            broker.close()


def seconds_of(duration: str) -> float:
    """Return the seconds of an ISO 8601 duration in days, hours, minutes and seconds, such as
    ``P1DT12H`` or ``PT0.5S``; upper or lower case.

    Raises:
        ValueError: `duration` is any other text.
    """
    text = duration.upper()
    if not text.startswith("P") or len(text) < 3:
        raise ValueError(f"not a duration: {duration!r}")
    total, number = 0.0, ""
    for letter in text[1:].replace("T", ""):
        if letter in _SECONDS:
            total += float(number) * _SECONDS[letter]
            number = ""
        else:
            number += letter
    if number:
        raise ValueError(f"not a duration: {duration!r}")
    return total
