"""Checks and results that several handlers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from aiokafka import errors
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing.acls import OPERATIONS
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.handlers import require
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import FIRST_KRAFT, Partition, Topic

E = TypeVar("E")
K = TypeVar("K", str, bytes)


def find_topic(context: RequestContext, name: str, topic_id: bytes = ZERO_UUID) -> Topic | None:
    """Return a topic by its id, or by its name if the id is zero; None if the topic does not
    exist."""
    if topic_id != ZERO_UUID:
        return context.state.topics_by_id.get(topic_id)
    return context.state.topics.get(name)


def grouped(places: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    """Group (topic, partition) pairs: return the partitions of each topic, in the order of
    `places`."""
    found: dict[K, list[int]] = {}
    for topic, index in places:
        found.setdefault(topic, []).append(index)
    return found


def leader_endpoints(
    context: RequestContext, kind: Callable[..., E], partitions: Iterable[Any]
) -> list[E]:
    """Return the addresses of the brokers that `partitions`, which are parts of a response, name as
    their current leaders (KIP-951). The result has instances of `kind`.
    """
    leaders = {partition.current_leader.leader_id for partition in partitions}
    return [
        kind(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in context.state.nodes.values()
        if node.node_id in leaders
    ]


def check_epoch(partition: Partition, epoch: int) -> int:
    """Compare the leader epoch of a request with the epoch of the partition (KIP-320). Return
    FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer epoch, 0 for the same
    epoch and for -1."""
    if epoch == -1 or epoch == partition.leader_epoch:
        return 0
    if epoch < partition.leader_epoch:
        return errors.FencedLeaderEpoch.errno
    return errors.UnknownLeaderEpoch.errno


def check_leader(context: RequestContext, partition: Partition | None, epoch: int = -1) -> int:
    """Return 0 if this broker leads the partition and the client may use it, else an error code."""
    if partition is None:
        return errors.UnknownTopicOrPartitionError.errno
    errno = context.check_topic(partition.topic)
    if errno:
        return errno
    if is_offline(context, partition):
        return errors.KafkaStorageError.errno
    if not leads(context, partition):
        return errors.NotLeaderForPartitionError.errno
    return check_epoch(partition, epoch)


def require_leader(context: RequestContext, topic: str, index: int, epoch: int = -1) -> Partition:
    """Return a partition that this broker leads.

    Raises:
        RefusedError: this broker may not handle a request for the partition, see `check_leader`.
    """
    partition = context.state.partition(topic, index)
    errno = check_leader(context, partition, epoch)
    if errno or partition is None:
        raise RefusedError(errno)
    return partition


def require_group(context: RequestContext, group_id: str, operation: str) -> None:
    """Raise RefusedError unless this broker coordinates the group, and the client is authorized for
    the operation on the group.
    """
    require(context.services.acls.check_named(context, "group", group_id, operation))
    require(context.services.groups.check_coordinator(context.node_id, group_id))


def leads(context: RequestContext, partition: Partition) -> bool:
    """Return whether this broker may act as the leader of a partition."""
    if context.profile.any_broker_leads:
        return partition.leader != -1
    return partition.leader == context.node_id


def is_offline(context: RequestContext, partition: Partition) -> bool:
    """Return whether this broker's replica of a partition is on a failed disk."""
    failed = context.cluster_state.nodes[context.node_id].failed_logs
    return bool(failed) and (partition.topic, partition.index) in failed


async def await_controller(context: RequestContext, seconds: float) -> None:
    """Wait until the controller can carry out a request. With ZooKeeper, clients send the request
    to the controller itself; a KRaft broker forwards it, and retries until the client's timeout.

    Raises:
        RefusedError: this broker is not the controller, or no controller is available within
            `seconds`.
    """
    if context.profile.release < FIRST_KRAFT:
        if context.cluster_state.controller != context.node_id:
            raise RefusedError(errors.NotControllerError)
    elif not await context.services.controller.wait(seconds):
        raise RefusedError(errors.RequestTimedOutError)


class Source(Protocol):
    """A log or a share partition. It calls the subscribed wakers when a waiting request may be able
    to continue."""

    def subscribe(self, waker: Callable[[], None]) -> None: ...

    def unsubscribe(self, waker: Callable[[], None]) -> None: ...


async def await_change(sources: Sequence[Source], deadline: float) -> None:
    """Wait until one of the sources changes or the deadline (loop time) passes."""
    loop = asyncio.get_running_loop()
    changed: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not changed.done():
            changed.set_result(None)

    timer = loop.call_at(deadline, wake)
    try:
        for source in sources:
            source.subscribe(wake)
        await changed
    finally:
        timer.cancel()
        for source in sources:
            source.unsubscribe(wake)


def over_quota(context: RequestContext, changes: int, first_version: int) -> int:
    """Return THROTTLING_QUOTA_EXCEEDED if the client has exceeded its quota of controller
    mutations (KIP-599). Otherwise charge `changes`, a number of partitions, and return 0.

    API versions before `first_version` do not have this error: their requests are only charged.
    """
    quotas = context.services.quotas
    if quotas.is_idle:
        return 0
    if quotas.is_over("mutation", context.client_id) and context.api_version >= first_version:
        return errors.ThrottlingQuotaExceeded.errno
    quotas.charge("mutation", context.client_id, changes)
    return 0


def in_version(context: RequestContext, errno: int, first_fenced: int) -> int:
    """Return `errno`, but INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED for API versions
    before `first_fenced` (KIP-588).
    """
    if errno == errors.ProducerFenced.errno and context.api_version < first_fenced:
        return errors.InvalidProducerEpoch.errno
    return errno


_FIRST_GROUP_CONFIGS = (4, 0)  # first release with operations on the settings of groups
_OPERATIONS: dict[str, tuple[str, ...]] = {
    "topic": (
        *("read", "write", "create", "delete", "alter", "describe"),
        *("describe_configs", "alter_configs"),
    ),
    "group": ("read", "delete", "describe"),
    "cluster": (
        *("create", "alter", "describe", "cluster_action", "describe_configs", "alter_configs"),
        "idempotent_write",
    ),
}


def authorized_operations(
    context: RequestContext, wanted: bool, resource: str, name: str = ""
) -> int:
    """Return a bit field of the operations that the client may perform on a resource. If `wanted`
    is False, return Kafka's value for "not requested".
    """
    if not wanted:
        return -(2**31)
    denies = context.services.acls.denies
    operations = _OPERATIONS[resource]
    if resource == "group" and context.profile.release >= _FIRST_GROUP_CONFIGS:
        operations += ("describe_configs", "alter_configs")
    return sum(
        1 << OPERATIONS[operation]
        for operation in operations
        if not denies(context, resource, name, operation)
    )
