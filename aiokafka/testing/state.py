"""The state that all brokers of a fake cluster share: nodes, topics, leaders, settings."""

from __future__ import annotations

import base64
import copy
import dataclasses
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from aiokafka import _clock, errors
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.settings import (
    BROKER_DEFAULTS,
    GROUP_DEFAULTS,
    GROUP_RESOURCE,
    INHERITED,
    TOPIC_DEFAULTS,
    invalid_topic_setting,
    topic_settings,
)
from aiokafka.testing.versions import RELEASES, BrokerProfile, profile

if TYPE_CHECKING:
    from aiokafka.testing.replication import ReplicaLogs, Replication

FIRST_KRAFT = (3, 0)
"""First release that the fake runs with KRaft: any broker forwards requests to the controller."""

V = TypeVar("V")
_NEWEST = profile(RELEASES[-1])
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _collide(name: str, other: str) -> bool:
    """Return whether two topics have the same name in metrics, where dots become underscores."""
    return name.replace(".", "_") == other.replace(".", "_")


@dataclass
class Node:
    """One broker: its address, whether it runs, its release, and its log directories."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    alive: bool = False
    """Whether the broker runs."""
    registered: bool = False
    """Whether the controller considers the broker alive."""
    restarted: bool = False
    """Whether the broker restarted before the controller noticed that it had stopped."""
    isolated: bool = False
    """Whether the broker cannot reach the controller and the other brokers."""
    profile: BrokerProfile = _NEWEST
    """The release that the broker imitates."""
    view: ClusterState | None = None
    """The outdated cluster state that the broker knows; None if it knows the actual state."""
    is_forgotten: bool = False
    """Whether UnregisterBroker has removed the broker, which has not started since then."""
    log_dirs: tuple[str, ...] = ("/fake/logs-0", "/fake/logs-1")
    """Log directories. Replicas are in the first directory, except those in `moved_logs`."""
    moved_logs: dict[tuple[str, int], str] = field(default_factory=dict)
    """The log directory of each replica that was moved, by topic and partition."""
    failed_logs: dict[tuple[str, int], None] = field(default_factory=dict)
    """Topic and partition of each replica on a failed disk."""


@dataclass
class Partition:
    """One partition: its leader, its replicas, and the leader's log."""

    topic: str
    index: int
    replicas: list[int]
    log: PartitionLog
    leader: int
    """Broker id of the leader; -1 without a leader."""
    leader_epoch: int = 0
    in_sync: list[int] | None = None
    """The in-sync replicas; None while all replicas share one log, so that all live replicas are in
    sync."""
    replica_logs: ReplicaLogs | None = None
    """The log of each replica; None while all replicas share `log`."""

    def log_of(self, node_id: int) -> PartitionLog:
        """Return the log of the replica on a broker: its own log, else the shared `log`."""
        return (
            self.log if self.replica_logs is None else self.replica_logs.logs.get(node_id, self.log)
        )


@dataclass
class Topic:
    """One topic. `config` has only the settings that were set for this topic."""

    name: str
    topic_id: bytes
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    is_internal: bool = False
    broker_config: Mapping[str, str] = field(default_factory=dict)
    """Broker settings, which are the defaults of some topic settings (`INHERITED`)."""

    def setting(self, name: str) -> str:
        """Return the value of a topic setting: the topic's own, else the broker's, else the
        default."""
        default = TOPIC_DEFAULTS.get(name, "")
        if name in INHERITED:
            default = self.broker_config.get(INHERITED[name], default)
        return self.config.get(name, default)


class TopicRefusedError(RefusedError):
    """A topic cannot be created or changed as requested; `errno` and `message` give the reason."""


class ByBroker(dict[int, V]):
    """A dict by broker id. Its KeyError for an unknown id lists the known ids."""

    def __missing__(self, broker_id: object) -> V:
        raise KeyError(f"no broker {broker_id!r}: there are {', '.join(map(str, self))}")


class ClusterState:
    """Nodes, topics and settings of a cluster. Plain data without I/O, changed by request handlers
    and by the methods of :class:`FakeCluster`.
    """

    def __init__(self, profile: BrokerProfile, nodes: Sequence[Node]) -> None:
        #: Profile of the oldest release among the brokers, with the finalized features.
        self.profile = profile
        self.features_epoch = 1
        self.nodes = ByBroker({node.node_id: node for node in nodes})
        for node in nodes:
            node.profile = profile
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.config = dict(BROKER_DEFAULTS)
        #: The directory id of each voter in the controller quorum, by node id.
        self.voters = {node.node_id: _clock.random_uuid().bytes for node in nodes}
        self.controllers = {node.node_id for node in nodes}
        #: Settings of groups, client metrics and loggers, by resource type and name.
        self.other_configs: dict[tuple[int, str], dict[str, str]] = {}
        self.cluster_id = base64.urlsafe_b64encode(_clock.random_uuid().bytes).decode().rstrip("=")
        self.next_producer_id = itertools.count(1000)
        #: Broker ids of the coordinators that a test has chosen, by (kind, key).
        self.placed_coordinators: dict[tuple[int, str], int] = {}
        #: Whether there is a controller; see :class:`Controller`.
        self.has_controller = True
        #: Broker id of the controller that a test has chosen, else -1.
        self.placed_controller = -1
        #: The replication model, which is notified of every new partition.
        self.replication: Replication | None = None
        self._next_leader = itertools.count()

    # -- nodes ---------------------------------------------------------------------------------

    def live_nodes(self) -> list[int]:
        """Return the ids of the brokers that are alive according to the controller."""
        return [node.node_id for node in self.nodes.values() if node.registered]

    @property
    def controller(self) -> int:
        """The broker id of the controller in metadata; -1 if metadata names no controller."""
        # While there is no controller, metadata of Kafka with ZooKeeper names no broker. With KRaft
        # it still names a live broker, because brokers forward requests to the controller.
        if not self.has_controller and self.profile.release < FIRST_KRAFT:
            return -1
        live = self.live_nodes()
        return self.placed_controller if self.placed_controller in live else min(live, default=-1)

    def coordinator(self, kind: int, key: str) -> int:
        """Return the coordinator of a group (0) or transactional id (1): the live broker that a
        test has chosen, otherwise a live broker by the hash of the key; -1 if no broker is live."""
        placed = self.placed_coordinators.get((kind, key))
        live = self.live_nodes()
        if placed in live:
            return placed
        if not live:
            return -1
        order = sorted(self.nodes)
        first = zlib.crc32(key.encode()) % len(order)
        return next(node for node in order[first:] + order[:first] if node in live)

    def isr(self, partition: Partition) -> list[int]:
        """Return the broker ids of the in-sync replicas."""
        if partition.in_sync is not None:
            return list(partition.in_sync)
        return self.live_replicas(partition)

    def live_replicas(self, partition: Partition) -> list[int]:
        """Return the replicas on registered brokers, except replicas on a failed disk."""
        place = (partition.topic, partition.index)
        nodes = (self.nodes[node_id] for node_id in partition.replicas)
        return [n.node_id for n in nodes if n.registered and place not in n.failed_logs]

    def can_serve(self, partition: Partition, node_id: int) -> bool:
        """Return whether a broker runs and is not isolated, and the partition's disk works."""
        node = self.nodes.get(node_id)
        if node is None or not node.alive or node.isolated:
            return False
        return (partition.topic, partition.index) not in node.failed_logs

    def snapshot(self) -> ClusterState:
        """Return a copy with the same logs, for the `view` of a broker with stale metadata."""
        seen = copy.copy(self)
        copies = {n: dataclasses.replace(node) for n, node in self.nodes.items()}
        seen.nodes = ByBroker(copies)
        seen.placed_coordinators = dict(self.placed_coordinators)
        seen.topics = {}
        for name, topic in self.topics.items():
            partitions = [
                dataclasses.replace(
                    p,
                    replicas=list(p.replicas),
                    in_sync=None if p.in_sync is None else list(p.in_sync),
                )
                for p in topic.partitions
            ]
            seen.topics[name] = dataclasses.replace(topic, partitions=partitions)
        seen.topics_by_id = {topic.topic_id: topic for topic in seen.topics.values()}
        return seen

    def set_release(self, node_id: int, release: BrokerProfile) -> None:
        """Change the release of a broker, and finalize the features of the oldest release in the
        cluster."""
        self.nodes[node_id].profile = release
        oldest = min((n.profile for n in self.nodes.values()), key=lambda p: p.release)
        if oldest.features != self.profile.features:
            self.features_epoch += 1
        self.profile = oldest

    def set_levels(self, levels: Mapping[str, int]) -> None:
        """Set the finalized levels of features."""
        features = dict(self.profile.features)
        for name, level in levels.items():
            features[name] = (*features[name][:2], level)
        self.profile = dataclasses.replace(self.profile, features=features)
        self.features_epoch += 1

    # -- elections -----------------------------------------------------------------------------

    def node_up(self, node_id: int) -> None:
        """Register a started broker, and elect leaders for its partitions without a leader."""
        self.nodes[node_id].alive = self.nodes[node_id].registered = True
        self.nodes[node_id].is_forgotten = False
        self.controllers.add(node_id)
        for partition in self.partitions():
            if node_id in partition.replicas:
                self.replica_back(partition)

    def node_down(self, node_id: int) -> None:
        """Unregister a broker, and elect other leaders for the partitions that it led."""
        node = self.nodes[node_id]
        node.registered = False
        node.alive = node.isolated and node.alive
        for partition in self.partitions():
            if node_id in partition.replicas:
                self.replica_lost(partition, node_id)

    def replica_lost(self, partition: Partition, node_id: int) -> None:
        """Remove an unavailable replica from the ISR, unless it is the last in-sync replica. Elect
        another leader if the replica was the leader.
        """
        in_sync = partition.in_sync
        if in_sync is not None and node_id in in_sync and len(in_sync) > 1:
            in_sync.remove(node_id)
        if partition.leader == node_id:
            self.elect(partition)
        elif partition.replica_logs is not None:
            partition.replica_logs.replicate()

    def replica_back(self, partition: Partition) -> None:
        """Elect a leader, or resume replication, after a replica has become available again."""
        if partition.leader == -1:
            self.elect(partition)
        elif partition.replica_logs is not None:
            partition.replica_logs.replicate()

    def elect_again(self) -> None:
        """Update the leaders and ISRs of all partitions, when a controller is available again."""
        for partition in self.partitions():
            live = self.live_replicas(partition)
            for node_id in partition.replicas:
                if node_id not in live:
                    self.replica_lost(partition, node_id)
            if live:
                self.replica_back(partition)

    def elect(self, partition: Partition) -> None:
        """Elect the first live in-sync replica as the leader. If no in-sync replica is live, elect
        the first live replica if the topic allows unclean elections, else no leader (-1).
        """
        live = self.live_replicas(partition)
        clean = [n for n in live if partition.in_sync is None or n in partition.in_sync]
        if not clean and live:
            topic = self.topics[partition.topic]
            if topic.setting("unclean.leader.election.enable") == "true":
                clean = live
        leader = clean[0] if clean else -1
        if (leader, partition.leader) != (-1, -1):
            self.set_leader(partition, leader)

    def set_leader(self, partition: Partition, node_id: int) -> None:
        """Make a broker the leader, -1 for no leader, in a new leader epoch. In an unclean election
        the new leader becomes the only in-sync replica.
        """
        partition.leader = node_id
        partition.leader_epoch += 1
        if partition.replica_logs is None:
            partition.log.begin_epoch(partition.leader_epoch)
            return
        if partition.in_sync is not None and node_id not in (-1, *partition.in_sync):
            partition.in_sync = [node_id]
        partition.replica_logs.set_leader(node_id)

    # -- topics --------------------------------------------------------------------------------

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return one partition; None if it does not exist."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        config: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        is_internal: bool = False,
    ) -> Topic:
        """Create a topic; -1 means the broker's default number.

        Raises:
            TopicRefusedError: the broker rejects the topic.
        """
        self.check_new_topic(name, partitions, replication_factor, config or {}, assignment)
        topic = Topic(
            name,
            _clock.random_uuid().bytes,
            config=topic_settings(config or {}),
            is_internal=is_internal,
        )
        topic.broker_config = self.config
        self.topics[name] = topic
        self.topics_by_id[topic.topic_id] = topic
        if assignment:
            for index in sorted(assignment):
                self._add_partition(topic, list(assignment[index]))
            return topic
        factor = self._factor(replication_factor)
        count = int(self.config["num.partitions"]) if partitions == -1 else partitions
        for _ in range(count):
            self._add_partition(topic, self._spread(factor))
        return topic

    def check_new_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        assignment: Mapping[int, Sequence[int]] | None,
    ) -> None:
        """Raise TopicRefusedError if the topic cannot be created."""
        if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
            raise TopicRefusedError(errors.InvalidTopicError, f"Topic name is illegal: {name!r}")
        if name in self.topics:
            raise TopicRefusedError(
                errors.TopicAlreadyExistsError, f"Topic '{name}' already exists."
            )
        twin = next((other for other in self.topics if _collide(name, other)), None)
        if twin is not None:
            raise TopicRefusedError(
                errors.InvalidTopicError,
                f"Topic '{name}' collides with existing topic: {twin}",
            )
        problem = invalid_topic_setting(config, self.profile.release)
        if problem is not None:
            raise TopicRefusedError(errors.InvalidConfigurationError, problem)
        if assignment:
            self._check_assignment(assignment)
            return
        if partitions != -1 and partitions < 1:
            raise TopicRefusedError(
                errors.InvalidPartitionsError, "Number of partitions must be larger than 0."
            )
        factor = self._factor(replication_factor)
        if not 1 <= factor <= len(self.live_nodes()):
            raise TopicRefusedError(
                errors.InvalidReplicationFactorError,
                f"Replication factor {factor} is not between 1 and the number of brokers, "
                f"{len(self.live_nodes())}.",
            )

    def _check_assignment(self, assignment: Mapping[int, Sequence[int]]) -> None:
        indexes_ok = sorted(assignment) == list(range(len(assignment)))
        nodes_ok = all(
            nodes and len(set(nodes)) == len(nodes) and set(nodes) <= set(self.nodes)
            for nodes in assignment.values()
        )
        same_size = len({len(nodes) for nodes in assignment.values()}) == 1
        if not indexes_ok or not nodes_ok or not same_size:
            raise TopicRefusedError(
                errors.InvalidReplicationAssignmentError,
                "The manual partition assignment is not valid.",
            )

    def add_partitions(
        self, topic: Topic, total: int, assignment: Sequence[Sequence[int]] = ()
    ) -> None:
        """Add partitions up to `total`. `assignment` has the replicas of the first new partitions;
        the replicas of the others are distributed over the live brokers."""
        for replicas in assignment:
            self._add_partition(topic, list(replicas))
        factor = len(topic.partitions[0].replicas)
        while len(topic.partitions) < total:
            self._add_partition(topic, self._spread(factor))

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic, and wake the requests that wait for its records."""
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.leader = -1
            if partition.replica_logs is not None:
                partition.replica_logs.close()
            partition.log.wake()

    def setting(self, name: str) -> int:
        """Return a broker setting as an integer."""
        return int(self.config[name])

    def group_setting(self, group_id: str, name: str) -> str:
        """Return a setting of a group: its own, else the broker's, else the default."""
        own = self.other_configs.get((GROUP_RESOURCE, group_id), {})
        of, default = GROUP_DEFAULTS[name]
        return own[name] if name in own else self.config.get(of, default)

    @property
    def auto_create(self) -> bool:
        """Whether a metadata request for an unknown topic creates the topic."""
        return self.config["auto.create.topics.enable"] == "true"

    def _factor(self, asked: int) -> int:
        return self.setting("default.replication.factor") if asked == -1 else asked

    def _spread(self, factor: int) -> list[int]:
        """Return live brokers for the replicas of a new partition. Each call begins with the next
        broker, so that leaders are distributed."""
        live = self.live_nodes()
        first = next(self._next_leader) % len(live)
        return [live[(first + step) % len(live)] for step in range(min(factor, len(live)))]

    def _add_partition(self, topic: Topic, replicas: list[int]) -> None:
        index = len(topic.partitions)
        live = self.live_nodes()
        leader = next((node for node in replicas if node in live), -1)
        log = PartitionLog(topic.name, index)
        partition = Partition(topic.name, index, replicas, log, leader)
        topic.partitions.append(partition)
        if self.replication is not None:
            self.replication.partition_added(partition)
