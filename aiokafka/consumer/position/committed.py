"""Store positions with the group's coordinator, and read them back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aiokafka._backoff import Backoff
from aiokafka._log import SubjectLog
from aiokafka._reading import by_topic
from aiokafka._retry import OutOfTimeError, until, within
from aiokafka.client import CoordinationType
from aiokafka.consumer._names import some_names
from aiokafka.consumer.position.known_ids import KnownIds
from aiokafka.consumer.position.late_commits import LateCommits
from aiokafka.consumer.position.refusals import common_refusal, most_urgent
from aiokafka.consumer.position.way import OffsetsWay
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
    RebalanceInProgressError,
    StaleMemberEpoch,
    UnknownMemberIdError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    for_code,
    for_partition,
)
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
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._vitals import Contact
    from aiokafka._waits import Wait
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer._shared import Shared
    from aiokafka.protocol.schema import Request

__all__ = [
    "ALREADY_REBALANCED",
    "PATIENCE_WITH_UNKNOWN",
    "CommittedOffset",
    "Identity",
    "OffsetCommitter",
    "Positions",
]

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
# How often in a row a coordinator may call a partition unknown before its offset counts as missing.
# 1. A gateway such as Azure Event Hubs may respond so for a partition without a committed offset.
#    Apache Kafka did so in version 0 only, and takes any name since.
# 2. A coordinator that has not heard of a topic yet responds so as well, and may have an offset.
PATIENCE_WITH_UNKNOWN = 3
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
        contact: Contact,
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

    async def overwritten(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets to store again, as an earlier commit was carried out after theirs.
        Raises as `fetch`."""
        found = await self.fetch(partitions, deadline)
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
