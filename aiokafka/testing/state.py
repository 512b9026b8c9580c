"""What the brokers of a fake cluster know in common: nodes, topics, leaders, settings."""

from __future__ import annotations

import base64
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import _seams
from aiokafka.testing import codes
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.settings import (
    BROKER_DEFAULTS,
    INHERITED,
    TOPIC_DEFAULTS,
    invalid_topic_setting,
)
from aiokafka.testing.versions import BrokerProfile

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _collide(name: str, other: str) -> bool:
    """Names of metrics know no difference between a dot and an underscore."""
    return name.replace(".", "_") == other.replace(".", "_")


@dataclass
class Node:
    """One broker, as the others see it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    alive: bool = False


@dataclass
class Partition:
    """One partition: who leads it, who keeps it, and its log."""

    topic: str
    index: int
    replicas: list[int]
    log: PartitionLog
    leader: int
    """Node id, -1 while all replicas are down."""
    leader_epoch: int = 0


@dataclass
class Topic:
    """A topic."""

    name: str
    topic_id: bytes
    partitions: list[Partition] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    is_internal: bool = False
    broker_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the brokers, some of which count for topics that have none of their own."""

    def setting(self, name: str) -> str:
        """The value of a topic setting."""
        default = TOPIC_DEFAULTS.get(name, "")
        if name in INHERITED:
            default = self.broker_config.get(INHERITED[name], default)
        return self.config.get(name, default)


class TopicRefusedError(Exception):
    """A topic cannot be created or changed as asked; `errno` says why."""

    def __init__(self, errno: int, message: str) -> None:
        super().__init__(message)
        self.errno = errno
        self.message = message


class ClusterState:
    """Nodes, topics and settings. Plain data without I/O; request handlers and the
    :class:`FakeCluster` methods change it."""

    def __init__(self, profile: BrokerProfile, nodes: Sequence[Node]) -> None:
        self.profile = profile
        self.nodes = {node.node_id: node for node in nodes}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.config = dict(BROKER_DEFAULTS)
        self.cluster_id = base64.urlsafe_b64encode(_seams.random_uuid().bytes).decode().rstrip("=")
        self.next_producer_id = itertools.count(1000)
        #: (kind, key) -> node that a test made the coordinator.
        self.placed_coordinators: dict[tuple[int, str], int] = {}
        self._next_leader = itertools.count()

    # -- nodes ---------------------------------------------------------------------------------

    def live_nodes(self) -> list[int]:
        """Ids of the brokers that run."""
        return [node.node_id for node in self.nodes.values() if node.alive]

    @property
    def controller(self) -> int:
        """The first live broker; -1 if there is none."""
        return min(self.live_nodes(), default=-1)

    def coordinator(self, kind: int, key: str) -> int:
        """The node that coordinates a group (kind 0) or transactional id (kind 1); -1 if none."""
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
        """The replicas that run."""
        live = self.live_nodes()
        return [node for node in partition.replicas if node in live]

    def node_up(self, node_id: int) -> None:
        """A broker runs (again): leaderless partitions that it keeps get it as leader."""
        self.nodes[node_id].alive = True
        for partition in self.partitions():
            if partition.leader == -1 and node_id in partition.replicas:
                self.set_leader(partition, node_id)

    def node_down(self, node_id: int) -> None:
        """A broker is gone: another live replica takes over each partition that it led."""
        self.nodes[node_id].alive = False
        for partition in self.partitions():
            if partition.leader == node_id:
                successors = self.isr(partition)
                self.set_leader(partition, successors[0] if successors else -1)

    def set_leader(self, partition: Partition, node_id: int) -> None:
        """Let another node lead, in a new epoch; -1 for no leader."""
        partition.leader = node_id
        partition.leader_epoch += 1
        partition.log.begin_epoch(partition.leader_epoch)

    # -- topics --------------------------------------------------------------------------------

    def partitions(self) -> Iterator[Partition]:
        """All partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions

    def partition(self, topic: str, index: int) -> Partition | None:
        """One partition; None if it does not exist."""
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
        """Create a topic; -1 takes the broker's setting.

        Raises:
            TopicRefusedError: the broker would refuse it.
        """
        self.check_new_topic(name, partitions, replication_factor, config or {}, assignment)
        topic = Topic(
            name, _seams.random_uuid().bytes, config=dict(config or {}), is_internal=is_internal
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
        """Raise TopicRefusedError if such a topic cannot be created."""
        if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
            raise TopicRefusedError(codes.INVALID_TOPIC, f"Topic name is illegal: {name!r}")
        if name in self.topics:
            raise TopicRefusedError(codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        twin = next((other for other in self.topics if _collide(name, other)), None)
        if twin is not None:
            raise TopicRefusedError(
                codes.INVALID_TOPIC, f"Topic '{name}' collides with existing topic: {twin}"
            )
        problem = invalid_topic_setting(config, self.profile.release)
        if problem is not None:
            raise TopicRefusedError(codes.INVALID_CONFIG, problem)
        if assignment:
            self._check_assignment(assignment)
            return
        if partitions != -1 and partitions < 1:
            raise TopicRefusedError(
                codes.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
            )
        factor = self._factor(replication_factor)
        if not 1 <= factor <= len(self.live_nodes()):
            raise TopicRefusedError(
                codes.INVALID_REPLICATION_FACTOR,
                f"Replication factor {factor} is not between 1 and the number of brokers, "
                f"{len(self.live_nodes())}.",
            )

    def _check_assignment(self, assignment: Mapping[int, Sequence[int]]) -> None:
        indexes_ok = sorted(assignment) == list(range(len(assignment)))
        nodes_ok = all(
            nodes and len(set(nodes)) == len(nodes) and set(nodes) <= set(self.nodes)
            for nodes in assignment.values()
        )
        if not indexes_ok or not nodes_ok:
            raise TopicRefusedError(
                codes.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment is not valid."
            )

    def add_partitions(
        self, topic: Topic, total: int, assignment: Sequence[Sequence[int]] = ()
    ) -> None:
        """Grow a topic to `total` partitions; `assignment` places the new ones."""
        for replicas in assignment:
            self._add_partition(topic, list(replicas))
        factor = len(topic.partitions[0].replicas)
        while len(topic.partitions) < total:
            self._add_partition(topic, self._spread(factor))

    def delete_topic(self, topic: Topic) -> None:
        """Forget a topic; requests that wait for its records look again and find it gone."""
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.leader = -1
            partition.log.wake()

    def setting(self, name: str) -> int:
        """A broker setting that is a number."""
        return int(self.config[name])

    @property
    def auto_create(self) -> bool:
        """Whether asking for an unknown topic creates it."""
        return self.config["auto.create.topics.enable"] == "true"

    def _factor(self, asked: int) -> int:
        return self.setting("default.replication.factor") if asked == -1 else asked

    def _spread(self, factor: int) -> list[int]:
        """Replicas on neighbouring nodes; leaders go round over all live nodes."""
        live = self.live_nodes()
        first = next(self._next_leader) % len(live)
        return [live[(first + step) % len(live)] for step in range(min(factor, len(live)))]

    def _add_partition(self, topic: Topic, replicas: list[int]) -> None:
        index = len(topic.partitions)
        live = self.live_nodes()
        leader = next((node for node in replicas if node in live), -1)
        log = PartitionLog(topic.name, index)
        topic.partitions.append(Partition(topic.name, index, replicas, log, leader))
