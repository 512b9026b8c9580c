"""The requests of transactions: which broker to ask, and what its response means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._compat import timeout_at
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    CoordinatorNotAvailableError,
    InvalidTransactionTimeout,
    KafkaError,
    NotCoordinatorError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer.sending.producer_id import ProducerIdentity, check, identity_in, retry
from aiokafka.producer.transactions.additions import (
    MOST_UNKNOWN,
    Remaining,
    check_added,
    check_named,
    topics_to_add,
)
from aiokafka.producer.transactions.errands import Errand
from aiokafka.producer.transactions.strays import UNANSWERED, Strays
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
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
    from aiokafka.net.connection import BrokerConnection

__all__ = ["TransactionRequests"]

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
