"""OffsetCommit and OffsetFetch: commit offsets to the group's coordinator, and fetch them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from aiokafka._compat import timeout_after_reading
from aiokafka._log import SubjectLog
from aiokafka._reading import by_topic
from aiokafka._retry import Backoff
from aiokafka.client import CoordinationType
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._partition_state import PATIENCE_WITH_UNKNOWN
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    IllegalGenerationError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    StaleMemberEpoch,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    for_code,
    for_partition,
)
from aiokafka.net.connection import DeadlineTimer
from aiokafka.net.pool import ConnectionGroup
from aiokafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._health import NodeHealth
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer._context import ConsumerContext
    from aiokafka.consumer.group.classic import ClassicMember
    from aiokafka.consumer.group.kip848 import Kip848Member
    from aiokafka.consumer.group.membership import Member
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request

__all__ = [
    "ALREADY_REBALANCED",
    "FormerTopicOffsets",
    "Identity",
    "OffsetCommitter",
    "OffsetConnection",
    "OffsetsToCommit",
    "UnansweredCommits",
    "common_refusal",
    "most_urgent",
]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

T = TypeVar("T")

# The last version of OffsetCommit and OffsetFetch with topic names; later versions have topic ids.
_LAST_VERSION_WITH_NAMES = 9
_FIRST_MULTI_GROUP_VERSION = 8
_FIRST_STABLE_VERSION = 7
_FIRST_VERSION_WITH_GROUP_ERROR = 2
_FIRST_MEMBER_VERSION = 9
# A coordinator lookup gives one broker a part of its timeout. Compute this part from at least this
# many seconds, so that a slow broker has enough time even if the commit or OffsetFetch has less
# time left. The lookup still ends at the deadline of the commit or OffsetFetch.
_SHORTEST_SEARCH = 3.0

# The library Faust looks for these words in the error of a failed commit. If it finds them, it
# continues; otherwise it crashes.
ALREADY_REBALANCED = "the group has already rebalanced"

_NEVER_A_MEMBER = (
    "The group has members, and this consumer is none of them, because it calls assign(). Use a "
    "group_id for it with which no consumer calls subscribe()."
)

_GONE = (UnknownTopicOrPartitionError, UnknownTopicId)
_NOT_A_MEMBER = (
    GroupIdNotFound,
    IllegalGenerationError,
    UnknownMemberIdError,
    RebalanceInProgressError,
    FencedInstanceId,
    FencedMemberEpoch,
    StaleMemberEpoch,
)
# Errors of OffsetFetch for an outdated member id or epoch. They are retried, because the response
# to the next heartbeat has the new epoch.
_OUTDATED = (UnknownMemberIdError, FencedMemberEpoch, StaleMemberEpoch)


class Identity(NamedTuple):
    """The sender of a commit: a member of the group, or by default a client that is no member."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None

    @classmethod
    def of(cls, member: Member) -> Identity:
        """Return the present identity of a member; an empty identity without membership."""
        if member.generation < 0:
            return cls()
        return cls(member.generation, member.member_id, member.instance_id)


class OffsetsToCommit:
    """The offsets of one call of `OffsetCommitter.commit()`, and what its requests have achieved so
    far."""

    __slots__ = (
        "doubtful",
        "gone",
        "identity",
        "max_version",
        "offsets",
        "on_stored",
        "pending",
        "topic_ids",
    )

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, bytes],
        identity: Identity,
        on_stored: Callable[[Mapping[TopicPartition, OffsetAndMetadata], float], object]
        | None = None,
    ) -> None:
        """Args:
        topic_ids: The ids of the topics that the offsets belong to, by name.
        on_stored: Called with the offsets that a response confirms as stored, even if other
            partitions fail, and the loop time.
        """
        self.offsets = offsets
        self.pending = dict(offsets)
        """The offsets that are not stored yet."""
        self.topic_ids = topic_ids
        self.identity = identity
        self.on_stored = on_stored
        has_ids = topic_ids.keys() >= {tp.topic for tp in offsets}
        self.max_version = None if has_ids else _LAST_VERSION_WITH_NAMES
        """The newest version of the request that can name all topics. A request has the ids of all
        topics, or the names of all: without the id of a topic, it needs a version with names."""
        self.gone: list[KafkaError] = []
        """The errors of partitions whose topic no longer exists."""
        self.doubtful: dict[str, int] = {}
        """The topics whose name has another id in the metadata, each with the number of the latest
        metadata refresh when an attempt first found this."""


Fetched = tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, BrokerResponseError]]
"""Committed offsets, and the errors of single partitions."""


# -- One error for the errors of several partitions. Pure functions


def common_refusal(
    refused: Mapping[TopicPartition, BrokerResponseError], wanted: Collection[TopicPartition]
) -> BrokerResponseError | None:
    """Return the error that concerns all `wanted` partitions; None if there is none. It is

    - NOT_COORDINATOR of any partition, or
    - the one error that all partitions have. An error of a deleted topic concerns its partitions
      only.

    Old brokers return an error of the group or its coordinator for each partition.
    """
    for error in refused.values():
        if isinstance(error, NotCoordinatorForGroupError):
            return error
    reasons = {
        error.args if isinstance(error, TopicAuthorizationFailedError) else type(error)
        for error in refused.values()
    }
    reasons_of_all = reasons.difference(_GONE)
    is_common = len(reasons) == len(reasons_of_all) == 1 and len(refused) == len(set(wanted))
    return next(iter(refused.values())) if is_common else None


def most_urgent(errors: Iterable[KafkaError]) -> KafkaError:
    """Return the error to raise for several errors, by this order:

    1. An error of the member or of the coordinator: if the error of an unauthorized topic were
       raised instead, the consumer would not look up the new coordinator, for example.
    2. An error that is not retriable: a retry would fail, too.
    3. A retriable error.
    """
    return min(errors, key=_rank)


def _rank(error: KafkaError) -> int:
    is_of_all = isinstance(error, (CommitFailedError, NotCoordinatorForGroupError))
    return 0 if is_of_all else 1 + error.retriable


# -- Offsets that were committed by topic name, and stored for a recreated topic of this name


# Largest number of partitions in FormerTopicOffsets. Most of their topics stay deleted, so without
# a limit the offsets would accumulate.
_MOST_STORED = 10_000


class _Stored:
    """A committed offset, and the id of the topic that it belongs to."""

    __slots__ = ("offset", "topic_id")

    def __init__(self, topic_id: bytes, offset: int) -> None:
        self.topic_id = topic_id
        self.offset = offset


class FormerTopicOffsets:
    """Recognizes committed offsets that belong to a deleted topic.

    Before Kafka 4.1 offsets are committed by topic name:

    1. A topic is deleted, and its offsets with it. Another topic is created under its name.
    2. The consumer has outdated metadata, and commits a position in the deleted topic. The
       coordinator stores this offset for the new topic.
    3. Metadata or an assignment has the new topic, and the consumer fetches the group's offset.
       With this offset, it would skip records of the new topic.

    So a fetched offset is ignored if this consumer has committed the same offset by name for a
    topic with another id. Such offsets of other consumers cannot be recognized.

    The offset is forgotten when later metadata has the topic with the id of the commit: then this
    topic still existed at the time of the commit. If it is deleted later, the coordinator deletes
    the offset with it.

    Owns: the offsets that were committed by name since metadata last had the topic with that id.
    """

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, _Stored] = {}

    def add(self, tp: TopicPartition, topic_id: bytes, offset: int) -> None:
        """Store an offset that was committed by name, for the topic with this id."""
        self._stored[tp] = _Stored(topic_id, offset)

    def update(self, cluster: ClusterMetadata) -> None:
        """Forget the offsets of topics that the metadata has with the same id; and the oldest
        offsets if there are more than 10,000."""
        if self._stored:
            self._stored = {
                tp: stored
                for tp, stored in self._stored.items()
                if stored.topic_id != cluster.topic_id(tp.topic)
            }
            for tp in list(self._stored)[:-_MOST_STORED]:
                del self._stored[tp]

    def contains(self, tp: TopicPartition, topic_id: bytes | None, offset: int) -> bool:
        """Return whether a fetched offset belongs to a deleted topic of this name. `topic_id`: the
        present id of the topic; None if unknown (then the result is False)."""
        stored = self._stored.get(tp)
        return (
            stored is not None
            and topic_id is not None
            and stored.topic_id != topic_id
            and stored.offset == offset
        )


# -- Commits without a response, which the coordinator may process after later commits


# A broker may still process requests of a closed connection. This many seconds after a newer commit
# was confirmed, assume that the broker no longer processes them.
_LONGEST_LATENESS = 300.0
# The shortest and the longest pause in seconds between two checks of the committed offset.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# Limit of different offsets without a response that are kept for each partition. Beyond that, the
# oldest offset is dropped: it is no longer checked.
_MOST_VALUES = 100


class _UnansweredOffsets:
    """The commits of one partition without a response (`values`), and the last commit after them
    that the coordinator has confirmed (`later`). `since`: loop time of the first confirmation after
    them."""

    __slots__ = ("later", "since", "values")

    def __init__(self) -> None:
        # By offset, metadata and connection: the number of the last such commit without a response.
        self.values: dict[tuple[int, str, BrokerConnection], int] = {}
        self.later: OffsetAndMetadata | None = None
        self.since = 0.0


class UnansweredCommits:
    """Detects that the coordinator has processed an older commit after a newer one.

    1. A commit of offset 5 is sent. Its connection closes, or its timeout expires.
    2. The next commit, of offset 8, is sent on another connection, and is confirmed.
    3. The coordinator processes the first commit. The member and its generation are the same, so
       the coordinator accepts it: the group has stored 5 again, but the consumer assumes 8.

    So for five minutes after step 2 the consumer fetches the committed offset repeatedly. If the
    fetched offset is that of a commit without a response, the consumer commits the newer offset
    again. The consumer accepts any other offset: other clients may commit for partitions of manual
    assignments.

    The coordinator processes the commits of one connection in order. So the response to a commit
    shows that all earlier commits on the same connection are processed, such as a cancelled commit.

    Owns: `by_partition`.
    """

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, _UnansweredOffsets] = {}
        """The commits without a response, by partition. Nearly always empty, so callers check this
        dict before they call a method."""

    def add(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        connection: BrokerConnection,
        number: int,
    ) -> None:
        """Add a commit that got no response. `number`: increases with each commit."""
        for tp, entry in offsets.items():
            unanswered = self.by_partition.setdefault(tp, _UnansweredOffsets())
            unanswered.later = None
            unanswered.values[entry[0], entry[1], connection] = number
            if len(unanswered.values) > _MOST_VALUES:
                del unanswered.values[next(iter(unanswered.values))]

    def settle(self, connection: BrokerConnection, number: int) -> None:
        """Drop the commits before `number` on this connection, because the response to commit
        `number` has arrived."""
        for tp, unanswered in list(self.by_partition.items()):
            for value, sent_number in list(unanswered.values.items()):
                if value[2] is connection and sent_number < number:
                    del unanswered.values[value]
            if not unanswered.values:
                del self.by_partition[tp]

    def confirm(self, tp: TopicPartition, entry: OffsetAndMetadata, now: float) -> None:
        """Record that the coordinator has confirmed the commit `entry`, which is newer than the
        commits of this partition without a response. `now`: the loop time of the confirmation. Does
        nothing if each commit of this partition got a response."""
        unanswered = self.by_partition.get(tp)
        if unanswered is not None:
            if unanswered.later is None:
                unanswered.since = now
            unanswered.later = entry

    def forget_all_but(self, kept: Collection[TopicPartition]) -> None:
        """Drop all partitions except `kept`: other members may own them from now on."""
        for tp in [tp for tp in self.by_partition if tp not in kept]:
            del self.by_partition[tp]

    def to_look_up(self, now: float) -> list[TopicPartition]:
        """Return the partitions whose committed offset must be checked: a later commit was
        confirmed, and a commit without a response may still overwrite it. Drop a partition five
        minutes after the confirmation, when the coordinator no longer processes such commits."""
        confirmed = {
            tp: unanswered
            for tp, unanswered in self.by_partition.items()
            if unanswered.later is not None
        }
        for tp, unanswered in confirmed.items():
            if now - unanswered.since > _LONGEST_LATENESS:
                del self.by_partition[tp]
        return [tp for tp in confirmed if tp in self.by_partition]

    def pause(self, now: float) -> float:
        """Return the seconds to wait before the next check: the time since the last confirmation
        (`since`), but at least 1 and at most 30."""
        since = (
            unanswered.since
            for unanswered in self.by_partition.values()
            if unanswered.later is not None
        )
        return min(max(now - max(since, default=now), _SHORTEST_PAUSE), _LONGEST_PAUSE)

    def overwritten(
        self, found: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit again. `found`: the offsets that the group has stored. If
        the stored offset of a partition is that of a commit without a response, this commit has
        overwritten a later one, so the result has the last confirmed offset of the partition."""
        again: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp, entry in found.items():
            unanswered = self.by_partition.get(tp)
            if unanswered is None or unanswered.later is None or entry[:2] == unanswered.later[:2]:
                continue
            if any(value[:2] == entry[:2] for value in unanswered.values):
                again[tp] = unanswered.later
        return again


# -- The connection of OffsetCommit and OffsetFetch


class _Deadlines:
    """The deadlines of in-flight requests, with one timer for all: a timer for each commit would be
    a large part of the costs of the commit.

    Has no reference to the client, because the timer would then keep an abandoned client in memory.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = DeadlineTimer(self._loop, self._on_due)
        self._is_closed = False
        self.in_flight: dict[asyncio.Future[Any], float] = {}
        """The deadline of each request. The sender removes the deadline, but does not change the
        timer, because the next request may need it."""

    def add(self, sent: asyncio.Future[Any], deadline: float) -> None:
        """Set TimeoutError as the exception of `sent` at `deadline` (loop time)."""
        self.in_flight[sent] = deadline
        if deadline < self._timer.at:
            self._arm(deadline)

    def close(self) -> None:
        """Cancel the timer: the consumer stops, and its closing connections end the requests."""
        self._is_closed = True
        self._timer.cancel()

    def _arm(self, deadline: float) -> None:
        if not self._is_closed:
            self._timer.arm(deadline)

    def _on_due(self) -> None:
        # If the event loop was blocked, a response that arrived before the deadline may be unread.
        # The loop reads it in this iteration, so expire the requests after that.
        self._loop.call_soon(self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        for sent, deadline in self.in_flight.items():
            if deadline > now:
                self._arm(deadline)
            elif not sent.done():
                sent.set_exception(asyncio.TimeoutError())


class OffsetConnection:
    """Selects the connection for OffsetCommit and OffsetFetch: the connection of the member's other
    requests, or a second connection while a JoinGroup or SyncGroup is pending on the first.

    Without the second connection:

    1. The member joins. The coordinator delays its response until all members have joined.
    2. The application stops the consumer, which commits finished records. The coordinator processes
       one request of a connection at a time, so the commit waits behind the JoinGroup.
    3. The commit times out, or the group continues without this member and rejects the commit. The
       next owner reads the finished records again.

    On the second connection the coordinator processes the commit while the group still joins. Until
    all members have joined, the generation in the commit is valid. Afterwards the coordinator
    rejects the commit, and it is sent again in the next generation (`GroupMembership.stop()`).
    LeaveGroup is sent after the commit.

    Commits must not overtake each other. Callers send one commit at a time for each partition, but
    a cancelled commit may still be in flight:

    1. A commit is sent on one of the two connections, and is cancelled.
    2. A join begins or ends, so the other connection is selected from now on.
    3. The next commit is sent on the other connection. The coordinator may process it before the
       first commit. Then the first commit overwrites the newer offset.

    So while a commit is in flight, later requests use its connection, even behind a join.

    If the connection closes before the response, the commit may still arrive after later commits:
    see `UnansweredCommits`.

    Owns: the connection of the latest commit; the number of calls that use it; the commits without
    a response.
    """

    def __init__(self, client: AIOKafkaClient, held: tuple[type[Request[Any]], ...]) -> None:
        """Args: held: Requests whose response the coordinator may delay (joins)."""
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._held = held
        self._deadlines = _Deadlines()
        self.unanswered = UnansweredCommits()
        self._latest: tuple[int, BrokerConnection] | None = None
        self._numbers = itertools.count()
        self._calls = 0

    async def commit(
        self,
        commit: OffsetsToCommit,
        deadline: float,
        make: Callable[[OffsetsToCommit, int], OffsetCommitRequest | None],
        apply: Callable[[OffsetsToCommit, OffsetCommitResponse], None],
        node_id: int,
    ) -> None:
        """Send the request that `make(commit, version)` returns, and call `apply` with the
        response; do nothing if `make` returns None. Raises errors of the connection, of `make` and
        of `apply`, and TimeoutError at `deadline` (loop time)."""
        connection = await self.select(node_id, deadline)
        # Set `_latest` before any await, because `select()` reads it for later requests.
        self._latest = node_id, connection
        # Count the call before the wait for a throttled connection: later requests must use
        # this connection, too.
        self._calls += 1
        try:
            version = connection.pick(OffsetCommitRequest, commit.max_version)
            request = make(commit, version)
            if request is None:
                return
            if not connection.gate.is_open:
                async with timeout_after_reading(deadline):
                    await connection.gate.wait(self._client.config.request_timeout)
            number, sent = next(self._numbers), connection.send_nowait(request, version)
            self._deadlines.add(sent, deadline)
            try:
                response = await sent
            except BaseException:
                self.unanswered.add(commit.pending, connection, number)
                raise
            finally:
                del self._deadlines.in_flight[sent]
            if self.unanswered.by_partition:
                self.unanswered.settle(connection, number)
            apply(commit, response)
        finally:
            self._calls -= 1

    def close(self) -> None:
        """Cancel the timer of the deadlines: the client closes its connections next."""
        self._deadlines.close()

    async def select(self, node_id: int, deadline: float) -> BrokerConnection:
        """Return the connection for the next request: the connection of an in-flight commit, if
        there is one; else the second connection during a join; else the first connection. Raises
        errors of the connection, and NodeNotReadyError without a connection at `deadline` (loop
        time)."""
        group = ConnectionGroup.COORDINATION
        connection = self._client.usable_connection(node_id, group)
        if connection is None:
            limit = deadline - self._loop.time()
            connection = await self._client.connection(node_id, group, timeout=limit)
        if connection.awaits(*self._held):
            limit = deadline - self._loop.time()
            connection = await self._client.connection(
                node_id, ConnectionGroup.OFFSETS, timeout=limit
            )
        if self._latest is None or self._latest[1] is connection:
            return connection
        latest_id, latest = self._latest
        is_same = latest_id == node_id and latest.is_open
        is_busy = self._calls > 0 or latest.awaits(OffsetCommitRequest)
        return latest if is_same and is_busy else connection


class OffsetCommitter:
    """Sends OffsetCommit and OffsetFetch of one group, and looks the coordinator up again after it
    has moved.

    Owns: the last known ids of topics; its FormerTopicOffsets and OffsetConnection. Records in
    `coordinator_health` whether the coordinator responds.
    """

    def __init__(
        self,
        context: ConsumerContext,
        group_id: str,
        coordinator_health: NodeHealth,
        member: ClassicMember | Kip848Member,
    ) -> None:
        client, config = context.client, context.config
        self._loop = asyncio.get_running_loop()
        self.group_id = group_id
        self.coordinator_health = coordinator_health
        self.member = member
        self._log = SubjectLog(log, config.subject)
        self._meter = context.meter
        self._interception = context.interception
        self._client = client
        self._connection = OffsetConnection(client, member.held_requests)
        self.unanswered = self._connection.unanswered
        self._subscriptions = context.subscriptions
        self.last_ids: dict[str, bytes] = {}
        """The ids of topics in the last metadata; the last id of an assigned topic is kept even if
        the metadata no longer has the topic."""
        self._former = FormerTopicOffsets()
        client.cluster.add_listener(self._follow_metadata)
        self._config = config

    async def commit(
        self, commit: OffsetsToCommit, deadline: float, on_failure: Callable[[KafkaError], None]
    ) -> None:
        """Commit offsets for the group.

        Retries retriable errors; `on_failure` is called with the error of each failed attempt.
        Raises KafkaTimeoutError at `deadline` (loop time); CommitFailedError if the coordinator
        rejects the identity; UnknownTopicOrPartitionError for deleted topics, after the other
        offsets were stored; other errors of the response. After an error or a cancellation, some or
        all of the offsets may have been stored.
        """
        began_at = self._loop.time()
        try:
            make, apply = self._commit_request, self._apply_response
            attempt = partial(self._connection.commit, commit, deadline, make, apply)
            what = "offsets not committed"
            await self._retry("OffsetCommit", attempt, deadline, what, on_failure)
            if commit.gone:
                raise commit.gone[0]
        except KafkaError as error:
            self._meter.committed(commit.offsets, began_at, error)
            raise
        self._meter.committed(commit.offsets, began_at, None)
        if self._interception is not None:
            plain = {tp: entry.offset for tp, entry in commit.offsets.items()}
            self._interception.committed(plain)

    def close(self) -> None:
        """Cancel timers, because the consumer stops."""
        self._connection.close()

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; omit partitions without a committed offset.

        A partition also counts as one without a committed offset after more than
        `PATIENCE_WITH_UNKNOWN` responses in a row with UNKNOWN_TOPIC_OR_PARTITION or
        UNKNOWN_TOPIC_ID. Waits until open transactions that commit some of the offsets have ended
        (KIP-447). Raises KafkaTimeoutError at `deadline` (loop time), and errors that are not
        retriable, such as GroupAuthorizationFailedError, at once.
        """
        wanted = list(partitions)
        unknown_in_a_row = 0

        async def attempt(node_id: int) -> dict[TopicPartition, OffsetAndMetadata]:
            nonlocal unknown_in_a_row
            found, refused = await self._fetch_once(node_id, wanted, deadline)
            unknown = [tp for tp, error in refused.items() if isinstance(error, _GONE)]
            unknown_in_a_row = unknown_in_a_row + 1 if unknown else 0
            if unknown_in_a_row > PATIENCE_WITH_UNKNOWN:
                refused = {tp: refused[tp] for tp in refused if tp not in unknown}
            if refused:
                raise most_urgent(refused.values())
            return found

        what = "committed offsets not read"
        key = f"OffsetFetch of group {self.group_id!r}"
        with self._client.waits.on(key, wanted, is_logged=self.is_outage_logged) as waiting:
            return await self._retry("OffsetFetch", attempt, deadline, what, waiting.note)

    async def fetch_each(
        self, partitions: Iterable[TopicPartition], on_failure: Callable[[KafkaError], None]
    ) -> Fetched:
        """Return the committed offsets, and the errors of single partitions. Unlike `fetch()`, do
        not retry for partitions that are unknown or in an open transaction. Raises an error of the
        request or of all partitions if it is not retriable, and KafkaTimeoutError after the request
        timeout. `on_failure` is called with the error of each failed attempt."""
        wanted = list(partitions)

        deadline = _now() + self._config.client.request_timeout

        async def attempt(node_id: int) -> Fetched:
            found, refused = await self._fetch_once(node_id, wanted, deadline)
            if (error := common_refusal(refused, wanted)) is not None:
                raise error
            return found, refused

        what = "committed offsets not read"
        return await self._retry("OffsetFetch", attempt, deadline, what, on_failure)

    def is_outage_logged(self) -> bool:
        """Return whether an outage of the coordinator is logged, so that waiting calls need not log
        anything."""
        return self.coordinator_health.failing_since is not None

    async def _retry(
        self,
        request: str,
        attempt: Callable[[int], Awaitable[T]],
        deadline: float,
        what: str,
        on_failure: Callable[[KafkaError], None],
    ) -> T:
        """Look the coordinator up, and return the result of `attempt(node_id)`. Repeat both after
        retriable errors and outdated epochs, with a backoff; raise other errors. Raises
        KafkaTimeoutError at `deadline` (loop time), with `what` in its text."""
        loop, client = self._loop, self._config.client
        began = loop.time()
        failure: KafkaError | None = None
        delays: Backoff | None = None
        while True:
            node_id: int | None = None
            try:
                # Expect a response to each attempt, so that `health()` shows since when the
                # response is missing.
                due = self.coordinator_health.expect(request)
                try:
                    node_id = self._client.known_coordinator(CoordinationType.GROUP, self.group_id)
                    if node_id is None or self._client.cluster.broker_metadata(node_id) is None:
                        node_id = None
                        async with timeout_after_reading(deadline):
                            node_id = await self._client.coordinator(
                                CoordinationType.GROUP,
                                self.group_id,
                                max(deadline, loop.time() + _SHORTEST_SEARCH),
                                partial(self._note_lookup_failure, on_failure),
                            )
                    result = await attempt(node_id)
                except BaseException:
                    self.coordinator_health.forgive(due)
                    raise
                self.coordinator_health.succeed(due=due)
                return result
            except asyncio.TimeoutError:
                self._raise_timeout(what, began, failure)
            except KafkaError as error:
                self._note_failure(error, node_id, began)
                on_failure(error)
                if not (error.retriable or isinstance(error, _OUTDATED)):
                    # An earlier failure is more informative than a timeout without a cause.
                    has_no_cause = isinstance(error, KafkaTimeoutError) and error.__cause__ is None
                    if has_no_cause and failure is not None:
                        self._raise_timeout(what, began, failure)
                    raise
                failure = error
            if delays is None:
                delays = Backoff(client.retry_backoff, client.retry_backoff_max)
            await asyncio.sleep(max(0.0, min(delays.next(), deadline - loop.time())))
            if loop.time() >= deadline:
                self._raise_timeout(what, began, failure)

    def _note_lookup_failure(
        self, on_failure: Callable[[KafkaError], None], error: KafkaError
    ) -> None:
        self.coordinator_health.fail(error)
        on_failure(error)

    def _note_failure(self, error: KafkaError, node_id: int | None, began: float) -> None:
        if node_id is not None:
            self._client.coordinator_failed(CoordinationType.GROUP, self.group_id, error)
        self._log.debug("%s", error)
        # If the coordinator has responded to other requests since `began`, such as heartbeats, only
        # this request fails: the coordinator has no outage.
        if (self.coordinator_health.answered_at or 0.0) <= began:
            self.coordinator_health.note(error)

    def _raise_timeout(self, what: str, began: float, failure: KafkaError | None) -> NoReturn:
        # Make the next call look the coordinator up: it may have moved.
        self._client.forget_coordinator(CoordinationType.GROUP, self.group_id, "out of time")
        # `failure` does not include failures of the coordinator lookup, which are recorded in
        # `coordinator_health` only.
        recent = (
            self.coordinator_health.error if self.coordinator_health.error_at >= began else None
        )
        reason = recent or failure
        text = f"group {self.group_id!r}: {what} in time: {reason or 'no response'}"
        raise KafkaTimeoutError(text) from reason

    # -- commit ------------------------------------------------------------------------------------

    def _commit_request(self, commit: OffsetsToCommit, version: int) -> OffsetCommitRequest | None:
        if version <= _LAST_VERSION_WITH_NAMES:
            self._refuse_former(commit)
        if not commit.pending:
            return None
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, number), entry in commit.pending.items():
            topic = topics.get(name)
            if topic is None:
                topic_id = commit.topic_ids.get(name, ZERO_UUID)
                topic = topics[name] = OffsetCommitRequestTopic(
                    name=name, topic_id=topic_id, partitions=[]
                )
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=entry.offset,
                    committed_leader_epoch=entry.leader_epoch,
                    committed_metadata=entry.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=commit.identity.generation,
            member_id=commit.identity.member_id,
            topics=list(topics.values()),
        )
        if commit.identity.instance_id is not None:
            request.group_instance_id = commit.identity.instance_id
        return request

    def _follow_metadata(self, cluster: ClusterMetadata) -> None:
        """Update the last ids from changed metadata; keep the ids of assigned topics that the
        metadata lacks."""
        assigned = {tp.topic for tp in self._subscriptions.assignment.tps}
        names = cluster.topics(exclude_internal_topics=False) | assigned
        found = [(name, cluster.topic_id(name) or self.last_ids.get(name)) for name in names]
        self.last_ids = {name: topic_id for name, topic_id in found if topic_id}
        self._former.update(cluster)

    def _refuse_former(self, commit: OffsetsToCommit) -> None:
        """Remove the offsets of deleted topics from `pending`, and add an error for each offset to
        `gone`: OffsetCommit with topic names (before Kafka 4.1) would store these offsets for the
        recreated topics.

        A topic counts as deleted if the metadata has another id for its name, and also had another
        id at an attempt before the last metadata refresh. If this is the first such attempt for a
        topic, its id may be outdated: request metadata from another broker, and raise a retriable
        error.
        """
        cluster, refresh = self._client.cluster, self._client.metadata_refresh
        doubt = ""
        for tp in list(commit.pending):
            topic_id, current_id = commit.topic_ids.get(tp.topic), cluster.topic_id(tp.topic)
            if topic_id is None or current_id is None:
                continue
            if current_id == topic_id:
                commit.doubtful.pop(tp.topic, None)
                continue
            name = f"{tp.topic}-{tp.partition}"
            text = f"{name}: the topic was deleted, and another has its name now"
            if commit.doubtful.setdefault(tp.topic, refresh) == refresh:
                doubt = doubt or text
            else:
                del commit.pending[tp]
                commit.gone.append(UnknownTopicOrPartitionError(text))
        if doubt:
            self._client.doubt_metadata(doubt)
            raise UnknownTopicId(doubt)

    def _apply_response(self, commit: OffsetsToCommit, response: OffsetCommitResponse) -> None:
        """Remove stored offsets, and offsets of deleted topics, from `pending`, and add the errors
        of deleted topics to `gone`. Raises the most urgent error of the other partitions, and
        KafkaProtocolError if the response lacks partitions."""
        by_id = {topic_id: name for name, topic_id in commit.topic_ids.items()}
        pending = commit.pending
        stored: dict[TopicPartition, OffsetAndMetadata] = {}
        failures: list[KafkaError] = []
        for topic in response.topics:
            name = by_id.get(topic.topic_id, topic.name)
            topic_id = commit.topic_ids.get(name) if topic.topic_id == ZERO_UUID else None
            for p in topic.partitions:
                tp = TopicPartition(name, p.partition_index)
                if not p.error_code:
                    # A retry must not send a stored offset again: a later offset may be stored by
                    # then.
                    if tp in pending:
                        entry = stored[tp] = pending.pop(tp)
                        if topic_id is not None:
                            self._former.add(tp, topic_id, entry.offset)
                elif (error := for_code(p.error_code)) in _GONE:
                    # Do not retry: the topic does not exist any more.
                    pending.pop(tp, None)
                    self._client.request_metadata(f"commit: {tp.topic} is gone")
                    text = f"{tp.topic}-{tp.partition}: offset not committed"
                    commit.gone.append(UnknownTopicOrPartitionError(text))
                else:
                    failures.append(self._commit_failure(error, tp))
        if stored:
            self._note_stored(commit, stored)
        if failures:
            raise most_urgent(failures)
        if commit.pending:
            names = some_names(commit.pending)
            raise KafkaProtocolError(f"the OffsetCommit response lacks {names}")

    def _note_stored(
        self, commit: OffsetsToCommit, stored: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        now = self._loop.time()
        if self.unanswered.by_partition:
            for tp, entry in stored.items():
                self.unanswered.confirm(tp, entry, now)
        if commit.on_stored is not None:
            commit.on_stored(stored, now)

    def _commit_failure(self, error: type[BrokerResponseError], tp: TopicPartition) -> KafkaError:
        if error in _NOT_A_MEMBER:
            # FENCED_INSTANCE_ID is not caused by a rebalance: another program runs with the same
            # instance id.
            is_stranger = error is UnknownMemberIdError and not self._subscriptions.is_by_group
            why = "" if is_stranger or error is FencedInstanceId else f"{ALREADY_REBALANCED}: "
            failed = CommitFailedError(f"{tp}: {why}{error.__name__}")
            if is_stranger:
                failed.args = (_NEVER_A_MEMBER, *failed.args[1:])
            failed.__cause__ = error(self._refused_party(error, tp))
            return failed
        if error is GroupAuthorizationFailedError:
            return error(self.group_id)
        return for_partition(error, tp, "offset not committed")

    def _refused_party(self, error: type[BrokerResponseError], tp: TopicPartition) -> object:
        if error is not FencedInstanceId:
            return tp
        instance_id = self._config.group_instance_id
        return f"group {self.group_id!r}: another member joined with group_{instance_id=}"

    # -- fetch -------------------------------------------------------------------------------------

    async def _fetch_once(
        self, node_id: int, wanted: list[TopicPartition], deadline: float
    ) -> Fetched:
        connection = await self._connection.select(node_id, deadline)
        # Send the topic ids by which the coordinator has assigned the topics (KIP-848): for a name,
        # the coordinator may still have offsets of a deleted topic. Without such ids send names,
        # because ids in metadata may be those of a deleted topic.
        topic_ids = self._subscriptions.assignment.topic_ids
        by_id = topic_ids.keys() >= {tp.topic for tp in wanted}
        version = connection.pick(OffsetFetchRequest, None if by_id else _LAST_VERSION_WITH_NAMES)
        request = self._fetch_request(wanted, topic_ids, version)
        async with timeout_after_reading(deadline):
            response = await connection.request(request, version=version)
        if version > _LAST_VERSION_WITH_NAMES:
            names = {topic_id: name for name, topic_id in topic_ids.items()}
            for group in response.groups:
                for topic in group.topics:
                    topic.name = names.get(topic.topic_id, "")
        return self._read_fetched(response, wanted, version)

    def _fetch_request(
        self, wanted: list[TopicPartition], topic_ids: Mapping[str, bytes], version: int
    ) -> OffsetFetchRequest:
        topics = by_topic((tp, None) for tp in wanted)
        named = [(name, [number for number, _ in entries]) for name, entries in topics.items()]
        if version < _FIRST_MULTI_GROUP_VERSION:
            request = OffsetFetchRequest(
                group_id=self.group_id,
                topics=[OffsetFetchRequestTopic(name=n, partition_indexes=ids) for n, ids in named],
            )
        else:
            group = OffsetFetchRequestGroup(
                group_id=self.group_id,
                topics=[
                    OffsetFetchRequestTopics(
                        name=name, topic_id=topic_ids.get(name, ZERO_UUID), partition_indexes=ids
                    )
                    for name, ids in named
                ],
            )
            member = self.member
            is_named = version >= _FIRST_MEMBER_VERSION and member.is_named_in_fetches
            if is_named and self._subscriptions.is_by_group and member.generation >= 0:
                group.member_id = member.member_id
                group.member_epoch = member.generation
            request = OffsetFetchRequest(groups=[group])
        if version >= _FIRST_STABLE_VERSION:
            request.require_stable = True
        return request

    def _read_fetched(
        self, response: OffsetFetchResponse, wanted: list[TopicPartition], version: int
    ) -> Fetched:
        """Return the offsets and the errors; a partition in neither has no committed offset.

        If the response lacks a partition, its error is UnknownTopicOrPartitionError. Versions 0 and
        1 have no group-level error code, and lack partitions also while the coordinator is loading;
        with these versions, raise the retriable KafkaProtocolError instead. Also raises the
        group-level error of later versions.
        """
        group = response.groups[0] if response.groups else response
        if group.error_code:
            raise for_code(group.error_code)(self.group_id)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        refused: dict[TopicPartition, BrokerResponseError] = {}
        missing = set(wanted)
        for topic in group.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                missing.discard(tp)
                if p.error_code:
                    refused[tp] = for_partition(for_code(p.error_code), tp)
                elif p.committed_offset >= 0 and not self._is_of_former(tp, p.committed_offset):
                    found[tp] = OffsetAndMetadata(
                        p.committed_offset, p.metadata or "", p.committed_leader_epoch
                    )
        text = f"group {self.group_id!r}: the OffsetFetch response lacks "
        if missing and version < _FIRST_VERSION_WITH_GROUP_ERROR:
            raise KafkaProtocolError(f"{text}{min(missing)}")
        for tp in sorted(missing):
            refused[tp] = UnknownTopicOrPartitionError(f"{text}{tp}")
        return found, refused

    def _is_of_former(self, tp: TopicPartition, offset: int) -> bool:
        assigned = self._subscriptions.assignment.topic_ids
        topic_id = assigned.get(tp.topic) or self.last_ids.get(tp.topic)
        return self._former.contains(tp, topic_id, offset)


def _now() -> float:
    return asyncio.get_running_loop().time()
