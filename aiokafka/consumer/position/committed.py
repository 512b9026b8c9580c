"""Store positions with the group's coordinator, and read them back."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aiokafka._log import SubjectLog
from aiokafka._reading import by_topic
from aiokafka._retry import Backoff, OutOfTimeError, until, within
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
from aiokafka.net.pool import ConnectionGroup
from aiokafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiokafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._health import NodeHealth, Wait
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer._shared import Shared
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request

__all__ = [
    "ALREADY_REBALANCED",
    "CommittedOffset",
    "Identity",
    "KnownIds",
    "LateCommits",
    "OffsetCommitter",
    "OffsetsWay",
    "Positions",
    "UnansweredCommits",
    "common_refusal",
    "most_urgent",
]


# -- What the errors of several partitions say of all of them. Pure


def common_refusal(
    refused: Mapping[TopicPartition, BrokerResponseError], wanted: Collection[TopicPartition]
) -> BrokerResponseError | None:
    """Return the error that stands for all of these partitions; None if some have another one, or
    none.

    Old brokers say of each partition what is wrong with the group or its coordinator. A topic that
    is denied is no reason to refuse those of another one, and a partition that is unknown says
    nothing of others.
    """
    for error in refused.values():
        if isinstance(error, NotCoordinatorForGroupError):
            return error
    reasons = {
        error.args if isinstance(error, TopicAuthorizationFailedError) else type(error)
        for error in refused.values()
    }
    reasons_of_all = reasons - {UnknownTopicOrPartitionError}
    is_common = len(reasons) == len(reasons_of_all) == 1 and len(refused) == len(set(wanted))
    return next(iter(refused.values())) if is_common else None


def most_urgent(errors: Iterable[KafkaError]) -> KafkaError:
    """Return the error that decides what follows from those of several partitions.

    1. What is refused for another reason than its topic or its metadata is refused to this member,
       or by this broker. Unheard for as long as a topic is denied, it would be so for ever.
    2. What no other attempt can change: it would be in vain for as long as the last kind lasts.
    3. What passes.
    """
    return min(errors, key=_rank)


def _rank(error: KafkaError) -> int:
    is_of_all = isinstance(error, (CommitFailedError, NotCoordinatorForGroupError))
    return 0 if is_of_all else 1 + error.retriable


# -- The ids of the topics that positions are in, of those as well that are gone. Pure


class KnownIds:
    """Tells the ids of topics that metadata does not show any more.

    1. A topic is deleted, and metadata lacks it. Its partitions stay assigned, with their
       positions.
    2. Commits of these positions fail, and auto-commit tries again.
    3. Another topic is made under the name, and the next attempt comes before new metadata.
    Without an id that would be a commit by name, and a position in the new topic.

    Owns: the last id of each topic that metadata shows, or that has assigned partitions.
    """

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}

    def look(self, cluster: ClusterMetadata, assigned: Iterable[TopicPartition]) -> None:
        """Take the ids from a snapshot, and keep those of assigned topics that it lacks."""
        names = cluster.topics(exclude_internal_topics=False) | {tp.topic for tp in assigned}
        found = ((name, cluster.topic_id(name) or self._ids.get(name)) for name in names)
        self._ids = {name: topic_id for name, topic_id in found if topic_id}

    def last_of(self, topic: str) -> bytes | None:
        """Return the topic's last id, None if none is known."""
        return self._ids.get(topic)


# -- Offsets that were stored for a topic when another one may have had its name already. Pure


# Partitions of topics that are gone; most of them have been deleted, and do not come back.
_MOST_STORED = 10_000


class _Stored(NamedTuple):
    """An offset, and the id of the topic that it was read from."""

    topic_id: bytes
    offset: int


class LateCommits:
    """Tells which of the group's offsets this consumer has stored for a topic that is gone.

    Before Kafka 4.1 offsets are stored by the names of topics:

    1. A topic is deleted, and its offsets with it. Another one is made under its name.
    2. The consumer has not heard of that, and commits a position in the deleted topic. The
       coordinator takes it for one in the new topic.
    3. The consumer hears of it, by metadata or by an assignment, and asks where the group is in the
       new topic. It would skip what is before its own old position there.

    So an offset that the consumer has stored itself, for a topic with another id, is none. That is
    kept in mind until metadata shows the topic again: then it was there when the offset was stored,
    and the offset was deleted with it. What other consumers have stored so cannot be told apart.

    Owns: the offsets that were stored by name since their topic was seen last.
    """

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, _Stored] = {}

    def add(self, tp: TopicPartition, topic_id: bytes, offset: int) -> None:
        """Note that an offset was stored by the name of a topic that had this id."""
        self._stored[tp] = _Stored(topic_id, offset)

    def look(self, cluster: ClusterMetadata) -> None:
        """Forget the offsets in topics that are still there, and the oldest ones where there are
        many: a listener of the metadata."""
        if self._stored:
            self._stored = {
                tp: stored
                for tp, stored in self._stored.items()
                if stored.topic_id != cluster.topic_id(tp.topic)
            }
            for tp in list(self._stored)[:-_MOST_STORED]:
                del self._stored[tp]

    def is_of_former_topic(self, tp: TopicPartition, topic_id: bytes | None, offset: int) -> bool:
        """Return whether an offset of the group is one in the topic that had the name before."""
        stored = self._stored.get(tp)
        return (
            stored is not None
            and topic_id is not None
            and stored.topic_id != topic_id
            and stored.offset == offset
        )


# -- Commits without a response, which the coordinator may carry out behind later ones


Entry = tuple[int, str, int]
"""Offset, metadata, leader epoch."""

# Seconds after a later commit is confirmed. By then a broker has read, or dropped, what was sent
# over a connection that is gone.
_LONGEST_DOUBT = 300.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# Different offsets of one partition, each of a commit without a response.
_MOST_VALUES = 100


class _Doubt:
    """Commits of one partition without a response, and the one that was confirmed after them."""

    __slots__ = ("later", "since", "values")

    def __init__(self) -> None:
        # By offset, metadata and connection: the number of the last of these commits.
        self.values: dict[tuple[int, str, BrokerConnection], int] = {}
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
            doubt.values[entry[0], entry[1], connection] = number
            if len(doubt.values) > _MOST_VALUES:
                del doubt.values[next(iter(doubt.values))]

    def settle(self, connection: BrokerConnection, number: int) -> None:
        """Drop what was sent over this connection before the commit of this number, which has got
        its response."""
        for tp, doubt in list(self._doubts.items()):
            for value, sent_number in list(doubt.values.items()):
                if value[2] is connection and sent_number < number:
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
            if any(value[:2] == entry[:2] for value in doubt.values):
                again[tp] = doubt.later
        return again


# -- Over which connection a group's offsets go


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


log = logging.getLogger("aiokafka.consumer.group_coordinator")

T = TypeVar("T")

# Later versions name topics by id only.
_LAST_VERSION_WITH_NAMES = 9
_FIRST_MULTI_GROUP_VERSION = 8
_FIRST_STABLE_VERSION = 7
_FIRST_VERSION_WITH_GROUP_ERROR = 2
_FIRST_MEMBER_VERSION = 9
# Seconds to look for a coordinator, of which a silent broker has a part, and a slow one enough.
_SHORTEST_SEARCH = 3.0

# Faust looks for these words: with them it goes on after a commit that has failed, without them it
# crashes.
ALREADY_REBALANCED = "the group has already rebalanced"

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
# What a member that reads is told when the group has gone on: it soon hears of it itself.
_OUTDATED = (UnknownMemberIdError, FencedMemberEpoch, StaleMemberEpoch)


class CommittedOffset(NamedTuple):
    """A position in the group's store."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class Identity(NamedTuple):
    """Who commits: a member of the group, or a client outside it (the default)."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Positions(NamedTuple):
    """Offsets to commit, and which topics they are positions in, by name: both of one moment."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    topic_ids: Mapping[str, bytes]
    on_stored: Callable[[TopicPartition], object] = lambda _: None
    """Is called for each that is stored, whatever becomes of the others."""


Fetched = tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, BrokerResponseError]]
"""Committed offsets, and the errors of single partitions."""


class OffsetCommitter:
    """OffsetCommit and OffsetFetch for one group, with the coordinator found, and found again, on
    the way.

    Owns nothing but its `LateCommits` and `KnownIds`, and what its `OffsetsWay` has: the positions
    are the partitions' own.
    `contact` learns whether the coordinator answers; `identify` says who reads, for groups that
    want to know (KIP-848); `kept` are the requests of the membership behind which nothing may have
    to wait.
    """

    def __init__(
        self,
        shared: Shared,
        group_id: str,
        contact: NodeHealth,
        identify: Callable[[], Identity],
        kept: tuple[type[Request[Any]], ...] = (),
    ) -> None:
        client, config = shared.client, shared.config
        self.group_id = group_id
        self.contact = contact
        self._log = SubjectLog(log, config.subject)
        self._identify = identify
        self._meter = shared.meter
        self._interception = shared.interception
        self._client = client
        self._way = OffsetsWay(client, kept)
        self._subscriptions = shared.subscriptions
        self._ids = KnownIds()
        self._late = LateCommits()
        client.cluster.add_listener(self._look)
        self._config = config

    async def commit(self, positions: Positions, identity: Identity, deadline: float) -> None:
        """Store positions for the group.

        Retries what passes by itself. Raises KafkaTimeoutError at `deadline` (loop time);
        CommitFailedError when the group no longer counts `identity` as a member;
        UnknownTopicOrPartitionError for topics that are gone, when the others are stored; any other
        error response as itself. After an error or a cancellation some or all of the offsets may
        have been stored.
        """
        offsets, topic_ids, on_stored = positions
        pending = dict(offsets)
        gone: list[KafkaError] = []
        doubted: list[int] = []

        async def attempt(node_id: int) -> None:
            # With all stored, or gone, an attempt that is repeated has nothing to send.
            if pending:
                checked = partial(self._refuse_former, pending, gone, topic_ids, doubted)
                response = await self._commit_once(node_id, pending, checked, topic_ids, identity)
                if response is not None:
                    self._note_late(response, pending, topic_ids)
                    self._take_in(response, pending, gone, on_stored)

        began_at = asyncio.get_running_loop().time()
        plain = {tp: entry.offset for tp, entry in offsets.items()}
        try:
            with self._wait_for("OffsetCommit", pending) as waiting:
                what = "offsets not committed"
                await self._retry(attempt, deadline, what, "OffsetCommit", waiting.note)
            if gone:
                raise gone[0]
        except KafkaError as error:
            self._meter.committed(plain, began_at, error)
            raise
        self._meter.committed(plain, began_at, None)
        if self._interception is not None:
            self._interception.tell("on_commit", plain)

    async def fetch(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of those partitions that have one.

        A partition that the coordinator does not know, though asked repeatedly, has none. Waits
        while a transaction that commits some of them is open (KIP-447). Raises KafkaTimeoutError at
        `deadline` (loop time), GroupAuthorizationFailedError and other errors that no retry mends
        at once.
        """
        wanted = list(partitions)
        doubts = 0

        async def attempt(node_id: int) -> dict[TopicPartition, CommittedOffset]:
            nonlocal doubts
            found, refused = await self._fetch_once(node_id, wanted)
            unknown = [tp for tp, error in refused.items() if isinstance(error, _GONE)]
            doubts = doubts + 1 if unknown else 0
            if doubts > PATIENCE_WITH_UNKNOWN:
                refused = {tp: refused[tp] for tp in refused if tp not in unknown}
            if refused:
                raise most_urgent(refused.values())
            return found

        what = "committed offsets not read"
        with self._wait_for("OffsetFetch", wanted) as waiting:
            return await self._retry(attempt, deadline, what, "OffsetFetch", waiting.note)

    def _wait_for(self, request: str, partitions: Collection[TopicPartition]) -> Wait:
        """Return the block in which a call waits for a response to `request`."""
        return self._client.waits.on(
            f"{request} of group {self.group_id!r}",
            partitions,
            is_logged=lambda: self.contact.failing_since is not None,
        )

    async def fetch_each(
        self, partitions: Iterable[TopicPartition], on_failure: Callable[[KafkaError], None]
    ) -> Fetched:
        """Return committed offsets as `fetch`, and the errors of single partitions as values: those
        with offsets in an open transaction, or unknown to the coordinator, do not hold up the
        others. `on_failure` is called with the error of each attempt that is repeated."""
        deadline = asyncio.get_running_loop().time() + self._config.client.request_timeout
        wanted = list(partitions)

        async def attempt(node_id: int) -> Fetched:
            found, refused = await self._fetch_once(node_id, wanted)
            if (error := common_refusal(refused, wanted)) is not None:
                raise error
            return found, refused

        what = "committed offsets not read"
        return await self._retry(attempt, deadline, what, "OffsetFetch", on_failure)

    async def _retry(
        self,
        attempt: Callable[[int], Awaitable[T]],
        deadline: float,
        what: str,
        request: str,
        on_failure: Callable[[KafkaError], None],
    ) -> T:
        backoff = Backoff(self._config.client.retry_backoff, self._config.client.retry_backoff_max)
        began = asyncio.get_running_loop().time()

        def fail(error: KafkaError) -> None:
            self.contact.fail(error)
            on_failure(error)

        async def asked() -> T:
            by = max(deadline, asyncio.get_running_loop().time() + _SHORTEST_SEARCH)
            try:
                # In each attempt, so that health() knows since when there is no response.
                with self.contact.asked(request):
                    result = await self._client.ask_coordinator(
                        CoordinationType.GROUP, self.group_id, by, attempt, fail
                    )
            except KafkaError as error:
                self._log.debug("%s", error)
                on_failure(error)
                # A coordinator that answers heartbeats is there: this request alone is refused.
                if (self.contact.answered_at or 0.0) <= began:
                    self.contact.note(error)
                raise
            self.contact.succeed()
            return result

        try:
            timed = within(deadline, asked)
            return await until(deadline, timed, lambda _: backoff.next(), _may_pass)
        except OutOfTimeError as late:
            # It may have moved; no call may be long enough to tell.
            self._client.forget_coordinator(CoordinationType.GROUP, self.group_id, "out of time")
            # The search for the coordinator tells its failures to the contact only.
            told = self.contact.error if self.contact.error_at >= began else None
            reason = told or late.failure
            raise KafkaTimeoutError(
                f"group {self.group_id!r}: {what} in time: {reason or 'no answer'}"
            ) from reason

    # -- commit ------------------------------------------------------------------------------------

    async def _commit_once(
        self,
        node_id: int,
        pending: Mapping[TopicPartition, CommittedOffset],
        check_names: Callable[[], None],
        topic_ids: Mapping[str, bytes],
        identity: Identity,
    ) -> OffsetCommitResponse | None:
        def make(version: int) -> OffsetCommitRequest | None:
            if version <= _LAST_VERSION_WITH_NAMES:
                check_names()
            if not pending:
                return None
            request = OffsetCommitRequest(
                group_id=self.group_id,
                generation_id_or_member_epoch=identity.generation,
                member_id=identity.member_id,
                topics=[
                    _commit_topic(name, topic_ids.get(name, ZERO_UUID), partitions)
                    for name, partitions in by_topic(pending.items()).items()
                ],
            )
            if identity.instance_id is not None:
                request.group_instance_id = identity.instance_id
            return request

        # All by id, or all by name: one unknown id decides for the whole request.
        by_id = topic_ids.keys() >= {tp.topic for tp in pending}
        last = None if by_id else _LAST_VERSION_WITH_NAMES
        response = await self._way.commit(node_id, make, last, pending)
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        for topic in response.topics if response is not None else ():
            topic.name = names.get(topic.topic_id, topic.name)
        return response

    def topic_ids(
        self, partitions: Iterable[TopicPartition], given: Mapping[str, bytes] | None = None
    ) -> dict[str, bytes]:
        """Return the ids of those of their topics whose ids are known: of now, for the names may be
        those of other topics when the offsets are sent, or sent again. Those that the group has
        assigned by (`given`, by default now) go first.

        1. A topic is deleted and made again under its name.
        2. The member is told so by the group, or by an error, before it has new metadata.
        3. On its way out it commits where it is: a position in the deleted topic.
        By name, that would become a position in the new topic, and what is before it would be
        skipped. By id, the coordinator refuses it (UNKNOWN_TOPIC_ID). Positions follow the ids of
        the assignment, else those in the metadata, so they belong to these.
        """
        if given is None:
            given = self._subscriptions.assignment.topic_ids
        known, cluster = self._ids, self._client.cluster
        ids = {
            name: given.get(name) or cluster.topic_id(name) or known.last_of(name)
            for name in dict.fromkeys(tp.topic for tp in partitions)
        }
        return {name: topic_id for name, topic_id in ids.items() if topic_id}

    def _refuse_former(
        self,
        pending: dict[TopicPartition, CommittedOffset],
        gone: list[KafkaError],
        topic_ids: Mapping[str, bytes],
        doubted: list[int],
    ) -> None:
        """Take out positions in topics whose names others have by now: sent by name (before Kafka
        4.1) they would be stored as positions in those. Their errors go to `gone`. Raises one that
        passes while only one refresh (`doubted`) says so: that broker may lag, another is asked.
        """
        cluster = self._client.cluster
        for tp in list(pending):
            topic_id = topic_ids.get(tp.topic)
            if topic_id is None or cluster.topic_id(tp.topic) in (None, topic_id):
                continue
            name = f"{tp.topic}-{tp.partition}"
            text = f"{name}: the topic was deleted, and another has its name now"
            if not doubted:
                doubted.append(self._client.metadata_refresh)
            if self._client.metadata_refresh == doubted[0]:
                self._client.doubt_metadata(text)
                raise UnknownTopicId(text)
            del pending[tp]
            gone.append(UnknownTopicOrPartitionError(text))

    def _look(self, cluster: ClusterMetadata) -> None:
        self._ids.look(cluster, self._subscriptions.assignment.tps)
        self._late.look(cluster)

    def _note_late(
        self,
        response: OffsetCommitResponse,
        pending: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        """Keep in mind what was stored by name."""
        for topic in response.topics:
            topic_id = topic_ids.get(topic.name)
            if topic.topic_id != ZERO_UUID or topic_id is None:
                continue
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if tp in pending and not p.error_code:
                    self._late.add(tp, topic_id, pending[tp].offset)

    def _take_in(
        self,
        response: OffsetCommitResponse,
        pending: dict[TopicPartition, CommittedOffset],
        gone: list[KafkaError],
        on_stored: Callable[[TopicPartition], object],
    ) -> None:
        """Drop from `pending` what was stored, and what has no topic any more: its error goes to
        `gone`. Raises the error of what is left."""
        failures: list[KafkaError] = []
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                error = for_code(p.error_code) if p.error_code else None
                if error is None:
                    # Not sent again with the rest: what is stored may be overtaken by then.
                    if (stored := pending.pop(tp, None)) is not None:
                        if self._way.unanswered:
                            self._way.unanswered.confirm(tp, stored, _now())
                        on_stored(tp)
                elif error in _GONE:
                    # No retry brings a topic back, and the others must not wait for it.
                    pending.pop(tp, None)
                    self._client.request_metadata(f"commit: {tp.topic} is gone")
                    text = f"{tp.topic}-{tp.partition}: offset not committed"
                    gone.append(UnknownTopicOrPartitionError(text))
                else:
                    failures.append(self._commit_failure(error, tp))
        if failures:
            raise most_urgent(failures)
        if pending:
            names = some_names(pending)
            raise KafkaProtocolError(f"a commit was answered without a word about {names}")

    def _commit_failure(self, error: type[BrokerResponseError], tp: TopicPartition) -> KafkaError:
        if error in _NOT_A_MEMBER:
            # Of a fenced instance the program has to hear: another one runs under its name.
            why = "" if error is FencedInstanceId else f"{ALREADY_REBALANCED}: "
            failed = CommitFailedError(f"{tp}: {why}{error.__name__}")
            failed.__cause__ = error(self._who_was_refused(error, tp))
            return failed
        if error is GroupAuthorizationFailedError:
            return error(self.group_id)
        return for_partition(error, tp, "offset not committed")

    def _who_was_refused(self, error: type[BrokerResponseError], tp: TopicPartition) -> object:
        if error is not FencedInstanceId:
            return tp
        instance_id = self._config.group_instance_id
        return f"group {self.group_id!r}: another member joined with group_{instance_id=}"

    # -- commits without a response ----------------------------------------------------------------

    @property
    def to_look_up(self) -> frozenset[TopicPartition]:
        """Partitions of which an earlier commit without a response may overwrite a later one."""
        unanswered = self._way.unanswered
        return unanswered.to_look_up(_now()) if unanswered else frozenset()

    @property
    def look_up_pause(self) -> float:
        """Seconds until the next look at them."""
        return self._way.unanswered.pause(_now())

    def forget_all_but(self, kept: Collection[TopicPartition]) -> None:
        """Look up no other partitions than these any more."""
        if self._way.unanswered:
            self._way.unanswered.forget_all_but(kept)

    def overwritten(
        self, found: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets to store again, as an earlier commit was carried out after theirs, by
        what the group has stored."""
        again = self._way.unanswered.overwritten(found)
        return {tp: CommittedOffset(*entry) for tp, entry in again.items()}

    # -- fetch -------------------------------------------------------------------------------------

    async def _fetch_once(self, node_id: int, wanted: list[TopicPartition]) -> Fetched:
        connection = await self._way.for_look_up(node_id)
        version = connection.pick(OffsetFetchRequest, _LAST_VERSION_WITH_NAMES)
        request = self._fetch_request(wanted, version)
        response = await connection.request(request, version=version)
        return self._read_fetched(response, wanted, version)

    def _fetch_request(self, wanted: list[TopicPartition], version: int) -> OffsetFetchRequest:
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
                    OffsetFetchRequestTopics(name=n, partition_indexes=ids) for n, ids in named
                ],
            )
            identity = self._identify()
            if version >= _FIRST_MEMBER_VERSION and identity.generation >= 0:
                group.member_id = identity.member_id
                group.member_epoch = identity.generation
            request = OffsetFetchRequest(groups=[group])
        if version >= _FIRST_STABLE_VERSION:
            request.require_stable = True
        return request

    def _read_fetched(
        self, response: OffsetFetchResponse, wanted: list[TopicPartition], version: int
    ) -> Fetched:
        """Return the offsets, and the errors; a partition without either has no offset.

        A partition that the response does not mention is one that the coordinator does not know.
        Before errors of groups were in the response, it may have been left out because the
        coordinator was loading: then it is asked for again.
        """
        group = response.groups[0] if response.groups else response
        if group.error_code:
            raise for_code(group.error_code)(self.group_id)
        found: dict[TopicPartition, CommittedOffset] = {}
        refused: dict[TopicPartition, BrokerResponseError] = {}
        missing = set(wanted)
        for topic in group.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                missing.discard(tp)
                if p.error_code:
                    refused[tp] = for_partition(for_code(p.error_code), tp)
                elif p.committed_offset >= 0 and not self._is_late(tp, p.committed_offset):
                    found[tp] = CommittedOffset(
                        p.committed_offset, p.metadata or "", p.committed_leader_epoch
                    )
        text = f"group {self.group_id!r}: the OffsetFetch response lacks "
        if missing and version < _FIRST_VERSION_WITH_GROUP_ERROR:
            raise KafkaProtocolError(f"{text}{min(missing)}")
        for tp in sorted(missing):
            refused[tp] = UnknownTopicOrPartitionError(f"{text}{tp}")
        return found, refused

    def _is_late(self, tp: TopicPartition, offset: int) -> bool:
        return self._late.is_of_former_topic(tp, self.topic_ids([tp]).get(tp.topic), offset)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _commit_topic(
    name: str, topic_id: bytes, partitions: list[tuple[int, CommittedOffset]]
) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
            for number, committed in partitions
        ],
    )


def _may_pass(error: KafkaError) -> bool:
    return error.retriable or isinstance(error, _OUTDATED)
