"""Immutable snapshots of the cluster: brokers, topics, partitions, leaders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._compat import timeout_at
from aiokafka._typing import later
from aiokafka.errors import (
    InvalidTopicError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    MetadataEmptyBrokerList,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.net.dialing import is_address
from aiokafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import BrokerMetadata, PartitionMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._upstream.messages import Response
    from aiokafka.client import AIOKafkaClient
else:
    AIOKafkaClient = later("aiokafka.client.AIOKafkaClient")
    Response = later("aiokafka._upstream.messages.Response")

__all__ = [
    "AllTopics",
    "BrokerMetadata",
    "ClusterMetadata",
    "PartitionInfo",
    "PartitionMetadata",
    "TopicInfo",
    "TopicPartition",
]


# -- Topics and partitions, and how a metadata response updates them


log = logging.getLogger("aiokafka.cluster")

# A known topic is dropped after this many consecutive responses with UNKNOWN_TOPIC_OR_PARTITION, or
# with an error that is not retriable, or without the topic in a list of all topics. A single such
# response is not enough: a broker that has just started sends such responses until it has loaded
# its metadata.
_PATIENCE_WITH_UNKNOWN = 3

# Without topic ids, a topic counts as recreated after this many consecutive responses with an older
# leader epoch: the epochs of a recreated topic start at 0. Fewer such responses may come from
# brokers that lag behind. (A new topic id shows a recreated topic at once.) After this many
# consecutive responses without an epoch, the known epoch is dropped: the leader would reject all
# fetches with an outdated epoch.
_PATIENCE_WITH_OLD = 3


class PartitionInfo(NamedTuple):
    """The leader and the replicas of a partition.

    `leader` is -1 without a leader, `epoch` is -1 if unknown. `doubts` counts the latest
    consecutive responses with an older epoch or without an epoch, which left `epoch` unchanged.
    """

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int
    doubts: int = 0


class TopicInfo(NamedTuple):
    """The id of a topic (16 zero bytes before Kafka 2.8) and its partitions by number.

    `error` is the error code of the last response. `misses` counts the latest consecutive responses
    with an error that left `partitions` unchanged.
    """

    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]
    error: int = 0
    misses: int = 0


def merge_topic(old: TopicInfo | None, topic: MetadataResponseTopic) -> TopicInfo:
    """Return the state of a topic after a response. `old`: its state before, None if unknown;
    `topic`: the part of the response about the topic. After an error the known partitions are kept,
    unless the error is final (`_is_final`)."""
    if topic.error_code == 0:
        # The leader epochs of a recreated topic start at 0, so do not compare them with known ones.
        is_same = old is not None and (
            old.topic_id == topic.topic_id or ZERO_UUID in (old.topic_id, topic.topic_id)
        )
        known = old.partitions if old is not None and is_same else {}
        has_id = topic.topic_id != ZERO_UUID
        partitions = {
            p.partition_index: _merge_partition(topic.name, known.get(p.partition_index), p, has_id)
            for p in topic.partitions
            if p.partition_index >= 0
        }
        if len(partitions) < len(known) and has_id and old and old.topic_id == topic.topic_id:
            # Kafka never removes partitions from a topic, so a broker that sends fewer partitions
            # lags behind.
            partitions = {**known, **partitions}
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID and old is not None and is_same:
            topic_id = old.topic_id
        return TopicInfo(topic_id, topic.is_internal, partitions)
    if old is None or not old.partitions or _is_final(topic.error_code, old.misses):
        return TopicInfo(ZERO_UUID, topic.is_internal, {}, topic.error_code)
    return old._replace(error=topic.error_code, misses=old.misses + 1)


def merge_missing(old: TopicInfo) -> TopicInfo | None:
    """Return the state of a topic that a response about all topics lacks; None if the topic counts
    as deleted."""
    error_code = UnknownTopicOrPartitionError.errno
    if not old.partitions or _is_final(error_code, old.misses):
        return None
    return old._replace(error=error_code, misses=old.misses + 1)


def _is_final(error_code: int, misses: int) -> bool:
    """Return whether to drop the known partitions of a topic after `error_code` and `misses`
    consecutive earlier errors:

    - The client is not authorized, or the name is invalid: at once.
    - UNKNOWN_TOPIC_OR_PARTITION, although it is retriable, and errors that are not retriable:
      after `_PATIENCE_WITH_UNKNOWN` errors.
    - Any other error: never.
    """
    if error_code in (TopicAuthorizationFailedError.errno, InvalidTopicError.errno):
        return True
    if error_code == UnknownTopicOrPartitionError.errno or not for_code(error_code).retriable:
        return misses + 1 >= _PATIENCE_WITH_UNKNOWN
    return False


def _merge_partition(
    topic: str | None, old: PartitionInfo | None, new: MetadataResponsePartition, has_id: bool
) -> PartitionInfo:
    """Return the state of a partition after a response: `new`, with two exceptions.

    - `new` has an older leader epoch than `old` (KIP-320): return `old`. But without `has_id`,
      after `_PATIENCE_WITH_OLD` such responses in a row, the topic counts as recreated.
    - `new` has the same leader without an epoch: keep the known epoch, until there are
      `_PATIENCE_WITH_OLD` such responses in a row.

    `has_id`: whether the topic has an id that has not changed, so that it was not recreated.
    """
    epoch, doubts = new.leader_epoch, 0
    if old is not None and 0 <= epoch < old.epoch:
        if has_id or old.doubts + 1 < _PATIENCE_WITH_OLD:
            return old._replace(doubts=old.doubts + 1)
        log.info(
            "%s-%d has leader epoch %d after %d: its topic was deleted and created again",
            topic,
            new.partition_index,
            epoch,
            old.epoch,
            extra={"topic": topic, "partition": new.partition_index},
        )
    if (
        old is not None
        and epoch < 0 <= old.epoch
        and new.leader_id == old.leader
        and old.doubts + 1 < _PATIENCE_WITH_OLD
    ):
        epoch, doubts = old.epoch, old.doubts + 1
    code = new.error_code
    leader = -1 if code == LeaderNotAvailableError.errno else new.leader_id
    nodes = (tuple(new.replica_nodes), tuple(new.isr_nodes), tuple(new.offline_replicas))
    # The next snapshot shares the PartitionInfo of an unchanged partition.
    partition = PartitionInfo(leader, epoch, *nodes, code, doubts)
    return old if old is not None and old == partition else partition


# -- The snapshot


class ClusterMetadata:
    """An immutable snapshot of the cluster. Each update is a new object with a higher `epoch`.

    `client.cluster` is the current snapshot; read it again after an `await`. Callers may change the
    sets that methods return; tuples and frozensets are shared and cached.

    For tests of assignors and partitioners, `ClusterMetadata()` is an empty cluster that
    `update_metadata(response)` changes in place.
    """

    # Caches: `_index` resets them, and the first use for a topic fills them.
    _node_ids: tuple[int, ...]
    _by_leader: dict[int, set[TopicPartition]] | None
    _names_by_id: dict[bytes, str]
    _partition_tuples: dict[str, tuple[int, ...]]
    _partition_sets: dict[str, frozenset[int]]
    _available_tuples: dict[str, tuple[int, ...]]

    def __init__(self, **configs: Any) -> None:
        self.config: dict[str, Any] = configs
        self.epoch = 0
        self.cluster_id: str | None = None
        self.need_all_topic_metadata = False
        self.has_all_topics = False
        """Whether the last response listed every topic of the cluster."""
        self._brokers: dict[int, BrokerMetadata] = {}
        self._controller_id = -1
        self._topics: dict[str, TopicInfo] = {}
        # By topic: the brokers whose last response reported the topic as unknown.
        self._denied_by: dict[str, frozenset[int]] = {}
        self._listeners: list[Callable[[ClusterMetadata], Any]] = []
        self._request_update: Callable[[], Any] | None = None
        self._update: Future[ClusterMetadata] | None = None
        self._index()

    def __repr__(self) -> str:
        return (
            f"<ClusterMetadata {self.cluster_id} epoch={self.epoch} "
            f"brokers={len(self._brokers)} topics={len(self._topics)}>"
        )

    # -- brokers

    def brokers(self) -> set[BrokerMetadata]:
        """Return the known brokers as a new set."""
        return set(self._brokers.values())

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return the broker with this node id, None if unknown."""
        return self._brokers.get(broker_id)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The node ids of all known brokers."""
        return self._node_ids

    @property
    def controller(self) -> BrokerMetadata | None:
        """The controller of the cluster; None if unknown (as with Kafka 0.9)."""
        return self._brokers.get(self._controller_id)

    def is_bootstrap(self, node_id: int | str) -> bool:
        """Return whether `node_id` is negative, which stands for one of `bootstrap_servers`.

        For a string such as "bootstrap-0", the node id of a bootstrap server in aiokafka before
        0.13, returns False.
        """
        return not isinstance(node_id, str) and node_id < 0

    # -- topics and partitions

    @property
    def _partitions(self) -> dict[str, dict[int, PartitionMetadata]]:
        """The PartitionMetadata by topic and number, for programs that read this attribute of
        aiokafka 0.14."""
        return {
            name: {n: _as_metadata(name, n, info) for n, info in topic.partitions.items()}
            for name, topic in self._topics.items()
            if topic.partitions
        }

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the names of the known topics, by default without Kafka's internal topics."""
        names = {name for name, topic in self._topics.items() if topic.partitions}
        return names - self.internal_topics if exclude_internal_topics else names

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of all partitions of `topic`, None if the topic is unknown."""
        known = self.known_partitions(topic)
        return None if known is None else set(known)

    def known_partitions(self, topic: str) -> frozenset[int] | None:
        """Return what `partitions_for_topic` returns, as a shared frozenset without a copy."""
        known = self._partition_sets.get(topic)
        return self._partition_set(topic) if known is None else known

    def partition_ids(self, topic: str) -> tuple[int, ...]:
        """Return the numbers of all partitions of `topic`, ascending; () if the topic is
        unknown.
        """
        return self._partition_tuples.get(topic) or self._partition_tuple(topic)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of the partitions of `topic` with a leader, None for an unknown topic.

        Partitions whose leader has reported the topic as unknown are left out, unless no other
        partition has a leader.
        """
        if self.known_partitions(topic) is None:
            return None
        return set(self.available_partition_ids(topic))

    def available_partition_ids(self, topic: str) -> tuple[int, ...]:
        """Return the partitions with a leader in ascending order, () for an unknown topic."""
        known = self._available_tuples.get(topic)
        return self._available_tuple(topic) if known is None else known

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the leader's node id; -1 without a leader, None for an unknown partition."""
        topic = self._topics.get(partition[0])
        info = None if topic is None else topic.partitions.get(partition[1])
        return None if info is None else info.leader

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the leader epoch of a partition (KIP-320), -1 if unknown."""
        info = self.partition(partition)
        return -1 if info is None else info.epoch

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """Return the PartitionInfo of a partition, None if unknown."""
        topic = self._topics.get(partition[0])
        return None if topic is None else topic.partitions.get(partition[1])

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """Return the partitions that this broker leads, None if it leads none."""
        if self._by_leader is None:
            by_leader: dict[int, set[TopicPartition]] = {}
            for name, topic in self._topics.items():
                for number, info in topic.partitions.items():
                    by_leader.setdefault(info.leader, set()).add(TopicPartition(name, number))
            self._by_leader = by_leader
        led = self._by_leader.get(broker_id)
        return None if led is None else set(led)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of `topic` (KIP-516): 16 bytes, None if unknown or before Kafka 2.8."""
        info = self._topics.get(topic)
        return None if info is None or info.topic_id == ZERO_UUID else info.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, None if unknown."""
        return self._names_by_id.get(topic_id)

    def topic_info(self, topic: str) -> TopicInfo | None:
        """Return the TopicInfo from the last response about `topic`, None if unknown. Every
        response about the topic creates a new object, so callers can detect a newer response by
        identity."""
        return self._topics.get(topic)

    def topic_error(self, topic: str) -> int:
        """Return the error code of the last response about `topic`; 0 without an error."""
        info = self._topics.get(topic)
        return 0 if info is None else info.error

    def topic_errors(self) -> dict[str, int]:
        """Return a dict from topic to the error code of the last response, for topics with an
        error."""
        return {name: topic.error for name, topic in self._topics.items() if topic.error}

    def topics_without_leaders(self, topics: Iterable[str]) -> set[str]:
        """Return those of `topics` that are known, and have an error or a partition without a
        leader."""
        found = set()
        for name in topics:
            topic = self._topics.get(name)
            if topic is None or not topic.partitions:
                continue
            if topic.error or any(info.leader < 0 for info in topic.partitions.values()):
                found.add(name)
        return found

    def doubtful_topics(self) -> set[str]:
        """Return the topics that the last response reported as unknown although their partitions
        are known."""
        gone = UnknownTopicOrPartitionError.errno
        return {n for n, topic in self._topics.items() if topic.error == gone and topic.partitions}

    def missing_topics(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of `topics` that have no known partitions, and a retriable error in the last
        response: they do not exist now, but may be created."""
        found = set()
        for name in topics:
            topic = self._topics.get(name)
            if topic is None or topic.partitions or not topic.error:
                continue
            if for_code(topic.error).retriable:
                found.add(name)
        return frozenset(found)

    # -- updates

    def updated(
        self,
        response: MetadataResponse,
        *,
        is_full: bool = True,
        has_all: bool = False,
        keep: Iterable[str] = (),
        node_id: int | None = None,
    ) -> ClusterMetadata:
        """Return the snapshot after `response`.

        A topic with an error keeps its known partitions, unless the error is final (`_is_final`). A
        leader with an older epoch than the known epoch is ignored unless the topic was recreated
        (KIP-320, KIP-516).

        Args:
            is_full: The response has all topics in use; forget other topics, except `keep`.
            has_all: The response has all topics of the cluster. A topic that is missing in several
                such responses no longer exists.
            node_id: The broker that sent the response, None if unknown.
        """
        snapshot = self._next_snapshot()
        snapshot._brokers = {
            broker.node_id: BrokerMetadata(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        } or dict(self._brokers)
        snapshot.cluster_id = response.cluster_id or self.cluster_id
        snapshot._controller_id = response.controller_id
        answered = {topic.name: topic for topic in response.topics if topic.name is not None}
        kept = self._topics.keys() & set(keep) if is_full else self._topics.keys()
        topics = {name: self._topics[name] for name in kept if name not in answered}
        for name, topic in answered.items():
            topics[name] = merge_topic(self._topics.get(name), topic)
        # Only responses about all topics of the cluster can show that a topic no longer exists.
        if has_all and self.has_all_topics:
            for name in self._topics.keys() - topics.keys():
                missed = merge_missing(self._topics[name])
                if missed is not None:
                    topics[name] = missed
        snapshot._topics = topics
        snapshot._denied_by = self._denials_after(answered, node_id, topics)
        snapshot.has_all_topics = has_all
        snapshot._index()
        return snapshot

    def _denials_after(
        self,
        answered: Mapping[str, MetadataResponseTopic],
        node_id: int | None,
        topics: Iterable[str],
    ) -> dict[str, frozenset[int]]:
        """Return the new value of `_denied_by`: by topic, the brokers whose last response reported
        the topic as unknown."""
        denied_by = {name: by for name, by in self._denied_by.items() if name in topics}
        if node_id is None:
            return denied_by
        for name, topic in answered.items():
            by = denied_by.pop(name, frozenset()) - {node_id}
            if topic.error_code == UnknownTopicOrPartitionError.errno:
                by |= {node_id}
            if by:
                denied_by[name] = by
        return denied_by

    def with_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, int]],
        endpoints: Iterable[BrokerMetadata] = (),
    ) -> ClusterMetadata:
        """Return a snapshot with newer (leader id, epoch) pairs from an error response (KIP-951);
        self if the response has nothing new.

        A leader with an unknown address is ignored: its newer epoch would take precedence over the
        leaders of metadata responses.
        """
        brokers = {
            broker.nodeId: broker
            for broker in endpoints
            if _is_new_address(self._brokers.get(broker.nodeId), broker)
        }
        newer = {
            tp: leader
            for tp, leader in leaders.items()
            if (leader[0] in self._brokers or leader[0] in brokers)
            and self._is_newer(tp, leader[1])
        }
        if not newer and not brokers:
            return self
        snapshot = self._next_snapshot()
        snapshot._brokers = {**self._brokers, **brokers}
        snapshot._node_ids = tuple(snapshot._brokers)
        snapshot._move_leaders(newer)
        return snapshot

    def _is_newer(self, tp: TopicPartition, epoch: int) -> bool:
        known = self.partition(tp)
        return known is not None and epoch > known.epoch

    def _move_leaders(self, leaders: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Set the leaders of this new snapshot. Copy only the changed topics, and share the others
        with the previous snapshot."""
        topics = dict(self._topics)
        copied: dict[str, dict[int, PartitionInfo]] = {}
        for (name, number), (leader, epoch) in leaders.items():
            if name not in copied:
                copied[name] = dict(topics[name].partitions)
                topics[name] = topics[name]._replace(partitions=copied[name])
            info = copied[name][number]
            copied[name][number] = info._replace(leader=leader, epoch=epoch)
        self._topics = topics
        self._available_tuples = dict(self._available_tuples)
        for name in copied:
            self._available_tuples.pop(name, None)

    def with_partitions(self, partitions_to_add: Iterable[PartitionMetadata]) -> ClusterMetadata:
        """Return a snapshot with additional partitions."""
        snapshot = self._next_snapshot()
        snapshot._topics = dict(self._topics)
        for added in partitions_to_add:
            topic = snapshot._topics.get(added.topic) or TopicInfo(ZERO_UUID, False, {})
            info = PartitionInfo(added.leader, -1, tuple(added.replicas), tuple(added.isr), (), 0)
            snapshot._topics[added.topic] = topic._replace(
                partitions={**topic.partitions, added.partition: info}
            )
        snapshot._index()
        return snapshot

    def _next_snapshot(self) -> ClusterMetadata:
        # Do not import the module `copy` for this: no other part of a client's start needs it.
        snapshot = object.__new__(type(self))
        vars(snapshot).update(vars(self))
        snapshot.epoch = self.epoch + 1
        snapshot._by_leader = None
        return snapshot

    def _index(self) -> None:
        """Reset the caches; collect the topic ids, the internal topics and the unauthorized
        topics."""
        self._node_ids = tuple(self._brokers)
        self._by_leader = None
        self._names_by_id = {}
        self._partition_tuples = {}
        self._available_tuples = {}
        self._partition_sets = {}
        self.internal_topics: set[str] = set()
        self.unauthorized_topics: set[str] = set()
        for name, topic in self._topics.items():
            if topic.is_internal:
                self.internal_topics.add(name)
            if topic.error == TopicAuthorizationFailedError.errno:
                self.unauthorized_topics.add(name)
            if topic.partitions and topic.topic_id != ZERO_UUID:
                self._names_by_id[topic.topic_id] = name

    def _partition_tuple(self, name: str) -> tuple[int, ...]:
        topic = self._topics.get(name)
        if topic is None or not topic.partitions:
            return ()
        numbers = self._partition_tuples[name] = tuple(sorted(topic.partitions))
        return numbers

    def _partition_set(self, name: str) -> frozenset[int] | None:
        numbers = self.partition_ids(name)
        if not numbers:
            return None
        found = self._partition_sets[name] = frozenset(numbers)
        return found

    def _available_tuple(self, name: str) -> tuple[int, ...]:
        numbers = self.partition_ids(name)
        if not numbers:
            return ()
        partitions = self._topics[name].partitions
        available = tuple([number for number in numbers if partitions[number].leader >= 0])
        if denied_by := self._denied_by.get(name):
            # A broker that does not know the topic rejects records for the partitions it leads.
            others = [number for number in available if partitions[number].leader not in denied_by]
            available = tuple(others) or available
        # Usually all partitions are available: share the tuple of `partition_ids`.
        self._available_tuples[name] = available = numbers if available == numbers else available
        return available

    # -- methods of the mutable class of aiokafka 0.14

    def add_listener(self, listener: Callable[[ClusterMetadata], Any]) -> None:
        """Call `listener(cluster)` with every new snapshot of the client."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[ClusterMetadata], Any]) -> None:
        """Stop calling `listener`; ignore an unknown listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def notify_listeners(self) -> None:
        """Call every listener with this snapshot, and log the exceptions of listeners."""
        for listener in tuple(self._listeners):
            try:
                listener(self)
            except Exception:
                log.exception("Metadata listener %r failed", listener)

    def request_update(self) -> Any:
        """Request a metadata refresh, and return a future of it. Without a client, the next
        `update_metadata()` or `failed_update()` resolves the future."""
        if self._request_update is not None:
            return self._request_update()
        if self._update is None:
            self._update = Future()
        return self._update

    def on_request_update(self, request: Callable[[], Any]) -> None:
        """Set the function that `request_update()` of this and later snapshots calls."""
        self._request_update = request

    def update_metadata(self, metadata: MetadataResponse | Response) -> None:
        """Change this object by a metadata response, in either form that `AIOKafkaClient.send`
        returns.

        Only for a cluster without a client. A response without brokers, which brokers send during
        their start, fails the future of `request_update()`.
        """
        from aiokafka._upstream.messages import Response  # few programs need this module

        message: Any = metadata
        if isinstance(metadata, Response):
            message = metadata.message()
        if not message.brokers:
            self.failed_update(MetadataEmptyBrokerList("the response names no broker"))
            return
        update, self._update = self._update, None
        self.__dict__.update(self.updated(message).__dict__)
        if update is not None:
            update.set_result(self)
        self.notify_listeners()

    def failed_update(self, exception: BaseException) -> None:
        """Fail the future of `request_update()`, without changing the cluster."""
        log.debug("Metadata update failed: %s", exception)
        update, self._update = self._update, None
        if update is not None:
            update.set_exception(exception)


def _as_metadata(topic: str, number: int, info: PartitionInfo) -> PartitionMetadata:
    error = for_code(info.error) if info.error else None
    replicas, isr = list(info.replicas), list(info.isr)
    return PartitionMetadata(topic, number, info.leader, replicas, isr, error)


def _is_new_address(known: BrokerMetadata | None, broker: BrokerMetadata) -> bool:
    """Return whether `broker` has a valid address that differs from `known`. Ignores the rack,
    which responses may lack."""
    if broker.nodeId < 0 or not is_address(broker.host, broker.port):
        return False
    return known is None or (known.host, known.port) != (broker.host, broker.port)


class AllTopics:
    """Names and partition numbers of all topics of a cluster at one moment.

    Used for calls of the application about topics that the client itself does not use. Leaders and
    replicas, which take megabytes for 10,000 partitions, are left out.
    """

    def __init__(self, response: MetadataResponse) -> None:
        """`response` is about all topics; topics with an error are left out."""
        self._partitions: dict[str, Collection[int]] = {}
        self._internal: set[str] = set()
        for topic in response.topics:
            numbers = {p.partition_index for p in topic.partitions if p.partition_index >= 0}
            if topic.name is None or topic.error_code or not numbers:
                continue
            usual = range(len(numbers))
            self._partitions[topic.name] = usual if max(numbers) == usual[-1] else numbers
            if topic.is_internal:
                self._internal.add(topic.name)

    @classmethod
    async def of(cls, client: AIOKafkaClient, limit: float) -> AllTopics:
        """Request all topics from a broker; raise KafkaTimeoutError after `limit` seconds."""
        deadline = asyncio.get_running_loop().time() + limit
        try:
            async with timeout_at(deadline):
                return cls(await client.fetch_all_topics(deadline))
        except asyncio.TimeoutError:
            raise KafkaTimeoutError(f"all topics: no broker has answered in {limit:g} s") from None

    def names(self, exclude_internal: bool) -> set[str]:
        """Return the names of the topics; with `exclude_internal`, without Kafka's internal
        topics."""
        return self._partitions.keys() - (self._internal if exclude_internal else set())

    def partitions(self, topic: str) -> set[int] | None:
        """Return the numbers of all partitions of `topic`, None for an unknown topic."""
        numbers = self._partitions.get(topic)
        return None if numbers is None else set(numbers)
