"""Over which connection a group's offsets go."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka.consumer.position.unanswered import UnansweredCommits
from aiokafka.net.pool import ConnectionGroup
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request
    from aiokafka.structs import TopicPartition

__all__ = ["OffsetsWay"]


class OffsetsWay:
    """Chooses the connection for commits of a group and for look-ups of what it has stored: that of
    the membership, and another one past a request that the coordinator keeps for long.

    Without the other one:

    1. The member joins. The coordinator keeps its JoinGroup until all others have joined, too.
    2. The application stops the consumer, which commits what is finished. The coordinator serves
       one request of a connection at a time, so the commit waits behind the JoinGroup.
    3. Its time is over, or the group goes on without this member, and the commit is refused. What
       was finished is read again by the next owner.

    On the other one the commit arrives while the group still waits, and is stored: the generation
    that it names is the present one until all have joined. Should that be so by then, the
    coordinator refuses it, and it is sent again as of the next generation (`Group.stop()`).
    LeaveGroup follows when the commit is over.

    No commit overtakes another one. Callers wait for theirs one after the other, but one that was
    cancelled, or whose time is over, may still be on its way:

    1. A commit is sent on one of the two connections, and is cancelled.
    2. A join begins, or ends, so that the other connection is the one to take.
    3. The next commit is sent there. The coordinator may read it before the first one, which then
       puts back what the group has stored.

    So while a commit has no response, whatever follows goes the same way, even behind a join.

    Without a response until its connection is gone, a commit may still arrive behind those that go
    over the next connection: see `UnansweredCommits`.

    Owns: the connection of the latest commit, and how many calls are about to use it; the commits
    without a response.

    Args:
        kept: The requests of the membership to which the coordinator may respond late.
    """

    def __init__(self, client: AIOKafkaClient, kept: tuple[type[Request[Any]], ...]) -> None:
        self._client = client
        self._kept = kept
        self.unanswered = UnansweredCommits()
        self._latest: tuple[int, BrokerConnection] | None = None
        self._numbers = itertools.count()
        self._calls = 0

    async def commit(
        self,
        node_id: int,
        make: Callable[[int], OffsetCommitRequest | None],
        max_version: int | None,
        offsets: Mapping[TopicPartition, tuple[int, str, int]],
    ) -> OffsetCommitResponse | None:
        """Send the commit that `make(version)` returns; return the response. Both may be None, for
        nothing to send. `offsets` are those in the request. Raises errors of the network."""
        connection = await self.for_look_up(node_id)
        # Before anything waits: whatever follows looks here for where it has to go.
        self._latest = node_id, connection
        # A throttled connection sends it later.
        self._calls += 1
        try:
            version = connection.pick(OffsetCommitRequest, max_version)
            request = make(version)
            if request is None:
                return None
            if not connection.gate.is_open:
                await connection.gate.wait(self._client.config.request_timeout)
            number, sent = next(self._numbers), connection.send_nowait(request, version)
            try:
                response = await sent
            except BaseException:
                self.unanswered.add(offsets, connection, number)
                raise
            if self.unanswered:
                self.unanswered.settle(connection, number)
            return response
        finally:
            self._calls -= 1

    async def for_look_up(self, node_id: int) -> BrokerConnection:
        """Return the connection for OffsetFetch, which sees what was committed before. Raises
        errors of the network."""
        connection = await self._client.connection(node_id, ConnectionGroup.COORDINATION)
        if connection.awaits(*self._kept):
            connection = await self._client.connection(node_id, ConnectionGroup.OFFSETS)
        return self._of_commits_in_flight(node_id) or connection

    def _of_commits_in_flight(self, node_id: int) -> BrokerConnection | None:
        if self._latest is None:
            return None
        latest_id, latest = self._latest
        is_same = latest_id == node_id and latest.is_open
        is_busy = self._calls > 0 or latest.awaits(OffsetCommitRequest)
        return latest if is_same and is_busy else None
