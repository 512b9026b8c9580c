"""What several handlers need."""

from __future__ import annotations

from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Partition, Topic

FIRST_KRAFT = (3, 0)
"""From here on the fake behaves like KRaft, where any broker takes requests for the controller."""


def find_topic(context: RequestContext, name: str, topic_id: bytes = ZERO_UUID) -> Topic | None:
    """A topic by id if there is one, else by name."""
    if topic_id != ZERO_UUID:
        return context.state.topics_by_id.get(topic_id)
    return context.state.topics.get(name)


def check_epoch(partition: Partition, epoch: int) -> int:
    """The error code for a request that expects another leader epoch (KIP-320)."""
    if epoch == -1 or epoch == partition.leader_epoch:
        return codes.NONE
    if epoch < partition.leader_epoch:
        return codes.FENCED_LEADER_EPOCH
    return codes.UNKNOWN_LEADER_EPOCH


def check_leader(context: RequestContext, partition: Partition | None, epoch: int = -1) -> int:
    """The error code for a request that only the partition's leader answers."""
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != context.node_id:
        return codes.NOT_LEADER_OR_FOLLOWER
    return check_epoch(partition, epoch)


def check_controller(context: RequestContext) -> int:
    """The error code for a request that, with ZooKeeper, only the controller takes."""
    state = context.state
    if state.profile.release >= FIRST_KRAFT or state.controller == context.node_id:
        return codes.NONE
    return codes.NOT_CONTROLLER


def authorized_operations(wanted: bool, operations: tuple[int, ...]) -> int:
    """A bit field of ACL operations; Kafka's "not asked" value if they are not wanted."""
    if not wanted:
        return -(2**31)
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = (3, 4, 5, 6, 7, 8, 10, 11)
GROUP_OPERATIONS = (3, 6, 8)
CLUSTER_OPERATIONS = (5, 7, 8, 9, 10, 11, 12)
