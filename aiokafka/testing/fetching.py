"""How a broker answers a fetch: what each partition has to give, and when that is enough."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import errors
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing.fetch_sessions import FetchPosition
from aiokafka.testing.handlers._common import check_epoch, is_offline, leads
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Partition

_READ_COMMITTED = 1
_FIRST_FROM_FOLLOWER = 11  # KIP-392


@dataclass(slots=True)
class Look:
    """What one partition of a fetch has to give now."""

    position: FetchPosition
    errno: int = 0
    partition: Partition | None = None
    log: PartitionLog | None = None
    """That of the replica which was asked."""
    limit: int = 0
    """Offset that the client may not read."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the client's log and this one part (KIP-595)."""
    preferred_replica: int = -1

    @property
    def urgent(self) -> bool:
        """Whether the response cannot wait for more records."""
        return bool(self.errno) or self.diverging is not None or self.preferred_replica != -1


def look(context: RequestContext, request: FetchRequest, position: FetchPosition) -> Look:
    """Find out what a partition has to give."""
    state = context.state
    if isinstance(position.topic, bytes):
        topic = state.topics_by_id.get(position.topic)
        missing = errors.UnknownTopicId.errno
    else:
        topic = state.topics.get(position.topic)
        missing = errors.UnknownTopicOrPartitionError.errno
    if topic is None:
        return Look(position, missing)
    errno = context.check_topic(topic.name)
    if errno:
        return Look(position, errno)
    partition = state.partition(topic.name, position.partition)
    if partition is None:
        return Look(position, errors.UnknownTopicOrPartitionError.errno)
    if is_offline(context, partition):
        return Look(position, errors.KafkaStorageError.errno, partition)
    follower = not leads(context, partition)
    may_follow = context.api_version >= _FIRST_FROM_FOLLOWER and partition.leader != -1
    if follower and not (may_follow and context.node_id in partition.replicas):
        return Look(position, errors.NotLeaderForPartitionError.errno, partition)
    errno = check_epoch(partition, position.leader_epoch)
    if errno:
        return Look(position, errno, partition)
    return _look_into_log(context, request, position, partition, follower)


def _look_into_log(
    context: RequestContext,
    request: FetchRequest,
    position: FetchPosition,
    partition: Partition,
    follower: bool,
) -> Look:
    log = partition.log_of(context.node_id)
    if position.last_fetched_epoch >= 0:
        epoch, end = log.end_of_epoch(position.last_fetched_epoch)
        if end == -1:
            return Look(position, errors.OffsetOutOfRangeError.errno, partition, log)
        if end < position.offset or epoch < position.last_fetched_epoch:
            return Look(position, partition=partition, log=log, diverging=(epoch, end))
    if not log.start_offset <= position.offset <= log.end_offset:
        return Look(position, errors.OffsetOutOfRangeError.errno, partition, log)
    committed = request.isolation_level == _READ_COMMITTED
    limit = log.last_stable_offset if committed else log.high_watermark
    replica = -1 if follower else _closer_replica(context, request, partition)
    return Look(position, partition=partition, log=log, limit=limit, preferred_replica=replica)


def _closer_replica(context: RequestContext, request: FetchRequest, partition: Partition) -> int:
    """Return another replica in the client's rack, if this broker is in another (KIP-392);
    else -1.
    """
    nodes = context.state.nodes
    if not request.rack_id or nodes[context.node_id].rack == request.rack_id:
        return -1
    in_rack = [n for n in context.state.isr(partition) if nodes[n].rack == request.rack_id]
    return in_rack[0] if in_rack else -1


def look_at_all(
    context: RequestContext, request: FetchRequest, positions: Sequence[FetchPosition]
) -> tuple[list[Look], bool]:
    """Look at all partitions, and say whether the response can go out: there are `min_bytes` to
    send, a partition has something urgent to say, or the client does not want to wait.
    """
    looks = [look(context, request, position) for position in positions]
    return looks, request.max_wait_ms <= 0 or _is_enough(looks, request.min_bytes)


async def look_until_enough(
    context: RequestContext,
    request: FetchRequest,
    positions: Sequence[FetchPosition],
) -> list[Look]:
    """Look now and at each change, until the response can go out or `max_wait_ms` is over."""
    loop = asyncio.get_running_loop()
    deadline = context.received_at + request.max_wait_ms / 1000
    while True:
        # Whatever was seen before this task ran may have changed since.
        looks, enough = look_at_all(context, request, positions)
        if enough or deadline <= loop.time():
            return looks
        await _changed(looks, deadline, loop)


def _is_enough(looks: list[Look], min_bytes: int) -> bool:
    if min_bytes <= 0 or not looks or any(one.urgent for one in looks):
        return True
    found = 0
    for one in looks:
        if one.log is not None:
            position = one.position
            enough = min(min_bytes - found, position.max_bytes)
            found += one.log.readable(position.offset, enough, one.limit)
            if found >= min_bytes:
                return True
    return False


async def _changed(looks: list[Look], deadline: float, loop: asyncio.AbstractEventLoop) -> None:
    """Wait until one of the logs changes or the deadline passes."""
    changed: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not changed.done():
            changed.set_result(None)

    logs = [one.log for one in looks if one.log is not None]
    timer = loop.call_at(deadline, wake)
    try:
        for log in logs:
            log.subscribe(wake)
        await changed
    finally:
        timer.cancel()
        for log in logs:
            log.unsubscribe(wake)
