"""Requests of a transaction to its coordinator and to the group coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._compat import timeout_at
from aiokafka._partitions import as_partition, split_offset
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    InvalidTransactionTimeout,
    KafkaError,
    KafkaProtocolError,
    NotCoordinatorError,
    OperationNotAttempted,
    ProducerFenced,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer.sending.sender import ProducerIdentity, check, identity_in, retry
from aiokafka.producer.transactions.state import UNANSWERED, Errand, Strays
from aiokafka.protocol.messages.init_producer_id import InitProducerIdRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.group.group import GroupView
    from aiokafka.net.connection import BrokerConnection

__all__ = [
    "MOST_UNKNOWN",
    "Offsets",
    "Remaining",
    "Share",
    "TransactionRequests",
    "as_group",
    "as_offsets",
    "check_added",
    "check_named",
    "share_out",
    "topics_to_add",
    "with_epochs",
]


# -- Which partitions a coordinator has added to a transaction. No I/O


MOST_UNKNOWN = 5
"""The metadata of a coordinator may lack a new partition for a while. One that it does not know so
many times in a row does not exist, or does not exist any more."""


class Remaining:
    """Partitions to add again, of which some may be gone, or not ours to write any more.

    Owns: those that were neither added nor refused so far, in however many requests and calls.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = set(partitions)
        self._unknown = 0
        """How many times in a row the coordinator did not know some of them."""

    def check_response(self, response: AddPartitionsToTxnResponse) -> None:
        """Take out what was added, or else what was refused.

        Raises an error that a retry may mend, and ProducerFenced.
        """
        try:
            check_added(response, self.partitions)
        except UnknownTopicOrPartitionError:
            self._unknown += 1
            if self._unknown < MOST_UNKNOWN:
                raise
            self._drop_refused(response)
        except BrokerResponseError as error:
            if error.retriable or isinstance(error, ProducerFenced):
                raise
            self._drop_refused(response)
        else:
            self.partitions.clear()

    def _drop_refused(self, response: AddPartitionsToTxnResponse) -> None:
        self._unknown = 0
        telling, _ = _telling_code(response)
        self.partitions -= {partition for partition, code in _codes(response) if code == telling}


def check_added(response: AddPartitionsToTxnResponse, wanted: Set[TopicPartition]) -> None:
    """Raise the error that decides, unless `wanted` were added."""
    check(*_telling_code(response))
    check_named(wanted, {partition for partition, _ in _codes(response)}, "AddPartitionsToTxn")


def check_named(wanted: Set[TopicPartition], named: Set[TopicPartition], what: str) -> None:
    """Raise KafkaProtocolError, which is retried, for a response without a word about a partition.

    If it were taken for added, its records could stay out of the transaction; and its offsets, if
    they were taken for stored, would be lost.
    """
    missing = wanted - named
    if missing:
        topic, number = min(missing)
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise KafkaProtocolError(f"{what}: no word about {topic}-{number}{more} in the response")


def topics_to_add(partitions: Set[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    """Return partitions in the form of a request."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return [AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()]


def _codes(response: AddPartitionsToTxnResponse) -> list[tuple[TopicPartition, int]]:
    return [
        (TopicPartition(topic.name, result.partition_index), result.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]


def _telling_code(response: AddPartitionsToTxnResponse) -> tuple[int, str]:
    """Return the code that decides, and the partition that it is about; (0, "") without an error.

    If one partition is refused, none is added, and the others are only "not attempted". An error
    that a retry does not mend goes before those that it may.
    """
    found: list[tuple[int, int, str]] = []
    for (topic, number), code in _codes(response):
        if code:
            rank = 2 if code == OperationNotAttempted.errno else int(for_code(code).retriable)
            found.append((rank, code, f"{topic}-{number}: not in the transaction"))
    if not found:
        return 0, ""
    _, code, where = min(found, key=lambda entry: entry[0])
    return code, where


# -- Check offsets for a transaction, and find the group members that commit them. No I/O


Offsets = dict[TopicPartition, OffsetAndMetadata]
Share = tuple[ConsumerGroupMetadata, Offsets]
"""The member that commits, and the offsets that it commits."""


class WrongOffsets(TypeError, ValueError):
    """What was given is no offsets: TypeError by meaning, ValueError as aiokafka has it."""


def as_offsets(offsets: Any) -> Offsets:
    """Return offsets that a user gave: by partition an int, (int, str) or OffsetAndMetadata.

    Raises TypeError or ValueError for anything else.
    """
    if not isinstance(offsets, Mapping):
        raise WrongOffsets(f"offsets: must be a dict, not {type(offsets).__name__}")
    found: Offsets = {}
    for partition, value in offsets.items():
        tp = as_partition(partition)
        try:
            offset, metadata, epoch = split_offset(value)
        except ValueError as error:
            raise WrongOffsets(*error.args) from None
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise WrongOffsets(f"offsets: {offset!r} of {partition!r} is not an int")
        if offset < 0:
            raise ValueError(f"offsets: {offset} of {partition!r} is negative")
        if not isinstance(metadata, str):
            raise TypeError(f"Metadata should be a string, but for {tp} is {metadata!r}")
        found[tp] = OffsetAndMetadata(offset, metadata, epoch)
    return found


def as_group(group: Any) -> str | ConsumerGroupMetadata:
    """Return the id of a group, or the member that commits for it if `group` names one: a consumer,
    or its metadata.

    Raises CommitFailedError for a consumer that is not a member now, ValueError for anything else.
    """
    if callable(getattr(group, "group_metadata", None)):
        group = group.group_metadata()
    if isinstance(group, str):
        if not group:
            raise ValueError("group_id: must not be empty")
        return group
    group_id = getattr(group, "group_id", None)
    if not isinstance(group_id, str) or not group_id:
        raise ValueError(f"group_id: must be a group id, a consumer or its metadata, not {group!r}")
    if isinstance(group, ConsumerGroupMetadata):
        return group
    instance_id = getattr(group, "group_instance_id", None)
    return ConsumerGroupMetadata(group_id, group.generation_id, group.member_id, instance_id)


def with_epochs(offsets: Offsets, readers: Sequence[GroupView]) -> Offsets:
    """Return `offsets` with the leader epochs that these consumers know.

    By them the next reader notices that the log was truncated meanwhile (KIP-320).
    """
    found: Offsets = {}
    for partition, entry in offsets.items():
        epoch = entry.leader_epoch
        for reader in readers:
            if epoch < 0:
                epoch = reader.leader_epoch_before(partition, entry.offset)
        found[partition] = entry._replace(leader_epoch=epoch)
    return found


def share_out(
    offsets: Offsets, group: str | ConsumerGroupMetadata, readers: Sequence[GroupView]
) -> list[Share]:
    """Assign each of `offsets` to the member that commits it.

    `readers` are the consumers of the group in this event loop. If `group` is only an id, a
    partition belongs to its reader, or to no member. Raises CommitFailedError if a reader has lost
    a partition since it returned its records.
    """
    if isinstance(group, ConsumerGroupMetadata):
        for reader in readers:
            if group.member_id and group.member_id == reader.member_id:
                reader.refuse_lost(offsets)
        return [(group, offsets)]
    by_reader: dict[GroupView | None, Offsets] = {}
    for partition, entry in offsets.items():
        by_reader.setdefault(_reader_of(partition, entry.offset, readers), {})[partition] = entry
    shares: dict[ConsumerGroupMetadata, Offsets] = {}
    for found, part in by_reader.items():
        member = ConsumerGroupMetadata(group)
        if found is not None:
            found.refuse_lost(part)
            member = found.metadata()
        shares.setdefault(member, {}).update(part)
    return list(shares.items())


def _reader_of(
    partition: TopicPartition, offset: int, readers: Sequence[GroupView]
) -> GroupView | None:
    """Return the reader that returned the records before this offset.

    A rebalance may move a partition between two consumers of this event loop while a transaction
    is open:

    1. Reader A returns the records 0 to 9. The application processes them.
    2. The group revokes the partition from A and assigns it to B. B has read nothing yet.
    3. The application commits offset 10. It belongs to A, which must refuse it, as B begins at 0.
       To commit it in the name of B would be accepted, and both would have processed 0 to 9.

    So B counts only once it has returned records, or stands at this very offset.
    """
    for reader in readers:
        if reader.may_commit(partition, offset):
            return reader
    for reader in readers:
        if reader.has_lost(partition):
            return reader
    return next((reader for reader in readers if reader.owns(partition)), None)


log = logging.getLogger("aiokafka.producer.producer")

T = TypeVar("T")

_LAST_CLIENT_SIDE_ADD = 3  # from version 4 on AddPartitionsToTxn is for brokers (KIP-890)
_LAST_PLAIN_END = 4
_FIRST_RENEWING = 3
_LAST_PLAIN_OFFSETS = 4
_FIRST_WITH_MEMBER = 3  # KIP-447

# A coordinator responds so, too, when it has stored what it was asked for, and lost its replicas or
# its place before they had it, or met an error behind that. It may be carried out.
_STORED_PERHAPS = (
    CoordinatorNotAvailableError.errno,
    NotCoordinatorError.errno,
    UnknownError.errno,
)


class TransactionRequests:
    """Sends requests to the coordinator of one transactional id, and to those of groups.

    Every call repeats what a retry may mend until `deadline` (loop time), then raises
    KafkaTimeoutError. After that, or after a cancellation, it can be repeated. Once `init` had good
    credentials, refused ones are retried as well: nothing is lost while they are changed.

    Owns which errors are retried, whether it has warned of old brokers, and whether the next epoch
    may be ours already.
    """

    def __init__(self, client: AIOKafkaClient, transactional_id: str, strays: Strays) -> None:
        """Begin without credentials that were good. `strays` notes what got no response."""
        self._client = client
        self._id = transactional_id
        self._strays = strays
        self._has_warned = False
        self._passing: tuple[type[KafkaError], ...] = ()
        self.may_have_epoch = False
        """Whether InitProducerId got no response, or none that says what became of it: the next
        epoch may be ours already."""

    async def _retry(self, what: str, deadline: float, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retry(self._client, what, deadline, attempt, self._passing)

    async def _send(
        self,
        kind: CoordinationType,
        key: str,
        request: Any,
        deadline: float,
        max_version: int | None,
        check_response: Callable[[Any], None],
        errand: Errand | None = None,
        adapt: Callable[[BrokerConnection], None] | None = None,
    ) -> Any:
        """Ask the coordinator of `key` once, by `deadline`; wait for the response on an errand.

        `adapt` changes the request for what the broker can do. Returns a response that
        `check_response` has found good: its errors are the broker's.
        """

        async def ask(node_id: int) -> Any:
            connection = await self._connect(node_id, deadline)
            if adapt is not None:
                adapt(connection)
            version = connection.pick(type(request), max_version)
            # An errand bounds its requests by the connection's own timeout: a timer here would
            # leave one on its way that nothing waits for.
            with self._watch(request):
                if errand is not None:
                    with errand.on_wire():
                        response = await connection.request(request, version=version)
                else:
                    async with timeout_at(deadline):
                        response = await connection.request(request, version=version)
            self._note_what_is_open(request, response)
            check_response(response)
            return response

        return await self._ask_coordinator(kind, key, deadline, ask)

    async def _ask_coordinator(
        self, kind: CoordinationType, key: str, deadline: float, ask: Callable[[int], Awaitable[T]]
    ) -> T:
        try:
            return await self._client.ask_coordinator(kind, key, deadline, ask)
        except asyncio.TimeoutError:
            # It may have moved, and the next call may have no time either to find that out.
            self._client.forget_coordinator(kind, key, "no response in time")
            raise

    def _note_what_is_open(self, request: Any, response: Any) -> None:
        if isinstance(request, EndTxnRequest) and response.error_code in _STORED_PERHAPS:
            self._strays.note_end(request.committed)
        elif isinstance(request, InitProducerIdRequest) and response.error_code in _STORED_PERHAPS:
            self.may_have_epoch = True

    def _watch(self, request: Any) -> AbstractContextManager[None]:
        if isinstance(request, TxnOffsetCommitRequest):
            return self._strays.watch_offsets(request.group_id)
        if isinstance(request, InitProducerIdRequest):
            return self._watch_epoch()
        if isinstance(request, EndTxnRequest) and request.committed:
            return self._strays.watch_commit()
        return self._strays.watch_coordinator()

    @contextmanager
    def _watch_epoch(self) -> Iterator[None]:
        try:
            yield
        except UNANSWERED:
            self.may_have_epoch = True
            raise

    async def _connect(self, node_id: int, deadline: float) -> BrokerConnection:
        # Finding the node is not under this timer: at the deadline that says why none was found.
        async with timeout_at(deadline):
            return await self._client.connection(node_id)

    async def _connection(self, deadline: float) -> BrokerConnection:
        """Return a connection to the coordinator of the transactional id."""
        kind = CoordinationType.TRANSACTION
        return await self._retry(
            f"the coordinator of {self._id!r}",
            deadline,
            lambda: self._ask_coordinator(
                kind, self._id, deadline, lambda node_id: self._connect(node_id, deadline)
            ),
        )

    async def _ask(
        self,
        what: str,
        request: Any,
        deadline: float,
        max_version: int | None = None,
        errand: Errand | None = None,
        take: Callable[[Any, str], T] = lambda response, _: response,
    ) -> T:
        """Ask the coordinator of the transactional id; the response has one error code.

        Returns what `take(response, words for an error)` makes of it. What that raises is retried
        like an error of the broker.
        """
        kind = CoordinationType.TRANSACTION
        what = f"{what} of {self._id!r}"

        def check_response(response: Any) -> None:
            check(response.error_code, what)

        async def attempt() -> T:
            response = await self._send(
                kind, self._id, request, deadline, max_version, check_response, errand
            )
            return take(response, what)

        return await self._retry(what, deadline, attempt)

    async def init(
        self, timeout: float, current: ProducerIdentity | None, deadline: float
    ) -> ProducerIdentity:
        """Get the next epoch: fence former owners of the transactional id, abort their work.

        `timeout` is the longest time of a transaction, in seconds. With `current` that identity is
        renewed (KIP-360), which fails if another producer has taken over.
        """
        connection = await self._connection(deadline)
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=int(timeout * 1000)
        )
        if current is not None and connection.pick(InitProducerIdRequest) >= _FIRST_RENEWING:
            request.producer_id, request.producer_epoch = current
        # Version 6 is for two-phase commit (KIP-939), which no broker has in force.
        try:
            identity = await self._ask(
                "InitProducerId", request, deadline, max_version=5, take=identity_in
            )
        except InvalidTransactionTimeout as error:
            raise InvalidTransactionTimeout(
                f"transaction_timeout_ms={timeout * 1000:.0f} is more than the brokers allow: "
                "their transaction.max.timeout.ms is lower (by default 900000)"
            ) from error
        self._passing = REFUSALS
        self.may_have_epoch = False
        return identity

    async def can_renew(self, deadline: float) -> bool:
        """Return whether `init` can tell the owner of the id from other producers (KIP-360)."""
        connection = await self._connection(deadline)
        return connection.pick(InitProducerIdRequest) >= _FIRST_RENEWING

    async def is_version_2(self, deadline: float) -> bool:
        """Return whether the cluster runs transactions of version 2 (KIP-890)."""
        versions = (await self._connection(deadline)).versions
        if versions is None or versions.finalized_features.get("transaction.version", 0) < 2:
            return False
        return versions.pick(EndTxnRequest) > _LAST_PLAIN_END

    async def add_partitions(
        self,
        identity: ProducerIdentity,
        partitions: Set[TopicPartition],
        deadline: float,
        errand: Errand,
    ) -> None:
        """Add partitions to the transaction, before anything is written to them."""

        def check_response(response: AddPartitionsToTxnResponse) -> None:
            check_added(response, partitions)

        await self._add(identity, partitions, deadline, check_response, errand)

    async def add_remaining(
        self, identity: ProducerIdentity, remaining: Remaining, deadline: float
    ) -> None:
        """Add partitions to the transaction, but for those that the coordinator refuses."""
        while remaining.partitions:
            # It adds none while there is one of them.
            await self._add(identity, remaining.partitions, deadline, remaining.check_response)

    async def _add(
        self,
        identity: ProducerIdentity,
        partitions: Set[TopicPartition],
        deadline: float,
        check_response: Callable[[AddPartitionsToTxnResponse], None],
        errand: Errand | None = None,
    ) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=topics_to_add(partitions),
        )
        kind = CoordinationType.TRANSACTION
        limit = _LAST_CLIENT_SIDE_ADD

        async def attempt() -> None:
            await self._send(kind, self._id, request, deadline, limit, check_response, errand)

        await self._retry(f"AddPartitionsToTxn of {self._id!r}", deadline, attempt)

    async def add_group(
        self,
        identity: ProducerIdentity,
        group_id: str,
        deadline: float,
        errand: Errand | None = None,
    ) -> None:
        """Add the offsets of a group to the transaction, before they are committed."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        await self._ask("AddOffsetsToTxn", request, deadline, errand=errand)

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        member: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: float,
        errand: Errand,
        *,
        is_version_2: bool,
    ) -> None:
        """Commit offsets of a group, valid once the transaction commits. In transactions of version
        2 this adds the group as well.

        Raises UnknownTopicOrPartitionError for a partition that the coordinator does not know
        several times in a row.
        """
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=member.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=_offset_topics(offsets),
        )
        kind, group_id = CoordinationType.GROUP, member.group_id
        limit = None if is_version_2 else _LAST_PLAIN_OFFSETS
        commit = _OffsetsCommit(group_id, offsets.keys())

        def adapt(connection: BrokerConnection) -> None:
            if connection.pick(TxnOffsetCommitRequest, limit) >= _FIRST_WITH_MEMBER:
                request.generation_id = member.generation_id
                request.member_id = member.member_id
                request.group_instance_id = member.group_instance_id
            elif member.member_id:
                self._warn_of_frozen_members(group_id)

        async def attempt() -> None:
            await self._send(
                kind, group_id, request, deadline, limit, commit.check_response, errand, adapt
            )

        await self._retry(f"TxnOffsetCommit for {group_id!r}", deadline, attempt)
        if commit.unknown:
            raise commit.unknown[-1]

    def _warn_of_frozen_members(self, group_id: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "Group %r, transactional id %r: brokers before Kafka 2.5 take offsets from members "
                "that were replaced, so records of a process that was frozen for longer than "
                "session_timeout_ms may count twice. Assigned partitions, with a transactional_id "
                "for each set of them, have no such gap.",
                group_id,
                self._id,
            )

    async def end(
        self, identity: ProducerIdentity, is_commit: bool, is_version_2: bool, deadline: float
    ) -> ProducerIdentity | None:
        """Commit or abort. Returns the identity for the next transaction; None if it is another
        one that the response does not contain.

        Repeated after an unknown outcome it has the same effect as the first time.
        """
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )
        limit = None if is_version_2 else _LAST_PLAIN_END
        response: EndTxnResponse = await self._ask("EndTxn", request, deadline, limit)
        told = ProducerIdentity(response.producer_id, response.producer_epoch)
        if min(told) >= 0:
            return told
        return None if is_version_2 else identity


class _OffsetsCommit:
    """What the coordinator of a group has said of offsets, in all attempts to commit them.

    Owns `unknown`: the errors of a partition that it does not know, as long as they come in a row.
    """

    def __init__(self, group_id: str, wanted: Set[TopicPartition]) -> None:
        self.unknown: list[KafkaError] = []
        self._group_id = group_id
        self._wanted = wanted

    def check_response(self, response: TxnOffsetCommitResponse) -> None:
        """Raise the first error. When a partition is unknown for the last time, give up quietly."""
        named = set()
        for topic in response.topics:
            for result in topic.partitions:
                named.add(TopicPartition(topic.name, result.partition_index))
                where = f"{topic.name}-{result.partition_index} of group {self._group_id!r}"
                try:
                    check(result.error_code, where)
                except UnknownTopicOrPartitionError as error:
                    self.unknown.append(error)
                    if len(self.unknown) == MOST_UNKNOWN:
                        return
                    raise
        self.unknown.clear()
        check_named(self._wanted, named, f"TxnOffsetCommit for {self._group_id!r}")


def _offset_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, number), entry in offsets.items():
        part = TxnOffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=entry.offset,
            committed_leader_epoch=entry.leader_epoch,
            committed_metadata=entry.metadata,
        )
        topics.setdefault(topic, []).append(part)
    return [
        TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()
    ]
