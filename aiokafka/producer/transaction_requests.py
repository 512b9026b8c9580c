"""The requests of transactions: which broker to ask, and what its response means."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._compat import timeout_at
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    InvalidTransactionTimeout,
    KafkaError,
    OperationNotAttempted,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer.errands import Errand
from aiokafka.producer.producer_id import ProducerIdentity, check, identity_in, retry
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

# The metadata of a coordinator may lack a new partition for a while. One that it does not know so
# many times in a row does not exist, or does not exist any more.
_MOST_UNKNOWN = 5


class TransactionRequests:
    """Sends requests to the coordinator of one transactional id, and to those of groups.

    Every call repeats what a retry may mend until `deadline` (loop time), then raises
    KafkaTimeoutError. After that, or after a cancellation, it can be repeated. Once `init` had good
    credentials, refused ones are retried as well: nothing is lost while they are changed.

    Owns which errors are retried, and whether it has warned of old brokers.
    """

    def __init__(self, client: AIOKafkaClient, transactional_id: str) -> None:
        self._client = client
        self._id = transactional_id
        self._has_warned = False
        self._passing: tuple[type[KafkaError], ...] = ()

    async def _retry(self, what: str, deadline: float, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retry(self._client, what, deadline, attempt, self._passing)

    async def _send(
        self,
        kind: CoordinationType,
        key: str,
        request: Any,
        deadline: float,
        max_version: int | None,
        errand: Errand | None = None,
    ) -> Any:
        """Ask the coordinator of `key` once, by `deadline`; wait for the response on an errand."""
        _, connection = await self._connect(kind, key, deadline)
        version = connection.pick(type(request), max_version)
        try:
            if errand is not None:
                with errand.on_wire():
                    return await connection.request(request, version=version)
            async with timeout_at(deadline):
                return await connection.request(request, version=version)
        except KafkaError as error:
            self._client.coordinator_failed(kind, key, error)
            raise

    async def _connect(
        self, kind: CoordinationType, key: str, deadline: float
    ) -> tuple[int, BrokerConnection]:
        """Find the coordinator of `key` and connect to it, in one attempt."""
        # Not under the timer below: at the deadline its error says why no coordinator was found.
        node_id = await self._client.coordinator(kind, key, deadline)
        try:
            async with timeout_at(deadline):
                return node_id, await self._client.connection(node_id)
        except KafkaError as error:
            self._client.coordinator_failed(kind, key, error)
            raise

    async def _connection(self, deadline: float) -> BrokerConnection:
        """Return a connection to the coordinator of the transactional id."""
        kind = CoordinationType.TRANSACTION
        _, connection = await self._retry(
            f"the coordinator of {self._id!r}",
            deadline,
            lambda: self._connect(kind, self._id, deadline),
        )
        return connection

    def _read(self, kind: CoordinationType, key: str, error_code: int, what: str) -> None:
        try:
            check(error_code, what)
        except KafkaError as error:
            self._client.coordinator_failed(kind, key, error)
            raise

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

        async def attempt() -> T:
            response = await self._send(kind, self._id, request, deadline, max_version, errand)
            self._read(kind, self._id, response.error_code, what)
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
        partitions: Iterable[TopicPartition],
        deadline: float,
        errand: Errand,
    ) -> None:
        """Add partitions to the transaction, before anything is written to them."""
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )
        kind = CoordinationType.TRANSACTION

        async def attempt() -> None:
            response = await self._send(
                kind, self._id, request, deadline, _LAST_CLIENT_SIDE_ADD, errand
            )
            code, where = _telling_code(response)
            self._read(kind, self._id, code, where)

        await self._retry(f"AddPartitionsToTxn of {self._id!r}", deadline, attempt)

    async def add_group(
        self, identity: ProducerIdentity, group_id: str, deadline: float, errand: Errand
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
        unknown: list[KafkaError] = []

        async def attempt() -> None:
            _, connection = await self._connect(kind, group_id, deadline)
            limit = None if is_version_2 else _LAST_PLAIN_OFFSETS
            if connection.pick(TxnOffsetCommitRequest, limit) >= _FIRST_WITH_MEMBER:
                request.generation_id = member.generation_id
                request.member_id = member.member_id
                request.group_instance_id = member.group_instance_id
            elif member.member_id:
                self._warn_of_frozen_members(group_id)
            response = await self._send(kind, group_id, request, deadline, limit, errand)
            for topic in response.topics:
                for result in topic.partitions:
                    where = f"{topic.name}-{result.partition_index} of group {group_id!r}"
                    try:
                        self._read(kind, group_id, result.error_code, where)
                    except UnknownTopicOrPartitionError as error:
                        unknown.append(error)
                        if len(unknown) == _MOST_UNKNOWN:
                            return
                        raise
            unknown.clear()

        await self._retry(f"TxnOffsetCommit for {group_id!r}", deadline, attempt)
        if unknown:
            raise unknown[-1]

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


def _telling_code(response: AddPartitionsToTxnResponse) -> tuple[int, str]:
    """Return the code that decides, and the partition that it is about; (0, "") without an error.

    If one partition is refused, none is added, and the others are only "not attempted". An error
    that a retry does not mend goes before those that it may.
    """
    found: list[tuple[int, int, str]] = []
    for topic in response.results_by_topic_v3_and_below:
        for result in topic.results_by_partition:
            code = result.partition_error_code
            if code:
                rank = 2 if code == OperationNotAttempted.errno else int(for_code(code).retriable)
                where = f"{topic.name}-{result.partition_index}: not in the transaction"
                found.append((rank, code, where))
    if not found:
        return 0, ""
    _, code, where = min(found, key=lambda entry: entry[0])
    return code, where


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
