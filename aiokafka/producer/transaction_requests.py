"""Requests of a transaction to its coordinator and to group coordinators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._compat import timeout_at
from aiokafka._partitions import as_partition, split_offset
from aiokafka._retry import fail_late
from aiokafka._tasks import TaskOwner
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NotCoordinatorError,
    OperationNotAttempted,
    ProducerClosed,
    ProducerFenced,
    TransactionStateError,
    UnknownError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer.sender import ProducerIdentity, check, identity_in, retry
from aiokafka.producer.transaction_manager import UNANSWERED, Transaction, UnansweredRequests
from aiokafka.protocol.messages.produce import InitProducerIdRequest
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
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.group.group import GroupView
    from aiokafka.net.connection import BrokerConnection

__all__ = [
    "MOST_UNKNOWN",
    "MemberOffsets",
    "Offsets",
    "PendingTxnRequest",
    "PendingTxnRequests",
    "RemainingPartitions",
    "TransactionRequests",
    "as_group",
    "as_offsets",
    "offsets_by_member",
    "with_epochs",
]

log = logging.getLogger("aiokafka.producer.producer")

T = TypeVar("T")


# -- Tasks that send the requests, which a commit or an abort waits for


# After these errors `_apply_error` does not fail the transaction, because `Fencing.explain` does.
# The task calls `explain`; if the task was cancelled, the commit or abort calls it.
_EXPLAINED_ERRORS = (ProducerFenced, InvalidTxnState)


class _CancelledError(Exception):
    """Raised by `in_flight` before the request is sent, if the task was cancelled."""


class PendingTxnRequest:
    """A task that sends the requests of one call to a coordinator, with lookups and backoffs.

    The task can be cancelled between two requests. During a request, a cancellation takes effect
    after the response.
    """

    def __init__(self, name: str, transaction: Transaction) -> None:
        self.name = name
        self.number = transaction.number
        self.task: asyncio.Task[None] | None = None
        self.error: BaseException | None = None
        self.is_in_flight = False
        """Whether a request was sent and has no response."""
        self.is_cancelled = False
        self.is_detached = False
        """Whether the caller of `PendingTxnRequests.run` no longer waits for the task."""
        self.must_finish = False
        """Whether `cancel` and `cancel_now` have no effect."""
        self._transaction = transaction
        self._has_begun = False

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Run a block that sends a request and waits for its response. `cancel` takes effect after
        the block. From now on the coordinator may know the transaction."""
        if self.is_cancelled:
            raise _CancelledError
        self._transaction.note_effects()
        self.is_in_flight = True
        try:
            yield
        finally:
            self.is_in_flight = False
            self._on_response()

    def _on_response(self) -> None:
        if self.is_cancelled:
            # Cancel in a callback, so that the task reads the response first.
            asyncio.get_running_loop().call_soon(self.cancel)

    def cancel(self) -> None:
        """Cancel the task as soon as it has no in-flight request; do nothing with `must_finish`."""
        if not self.must_finish:
            self.is_cancelled = True
            if not self.is_in_flight:
                self._cancel_task()

    def cancel_now(self) -> None:
        """Cancel the task even if a request is in flight; do nothing with `must_finish`."""
        if not self.must_finish:
            self.is_cancelled = True
            self._cancel_task()

    def _cancel_task(self) -> None:
        # Do not cancel a task before its first step: it would never run `execute`. `execute` checks
        # `is_cancelled` itself.
        if self._has_begun and self.task is not None and not self.task.done():
            self.task.cancel()

    async def execute(self, work: Callable[[PendingTxnRequest], Awaitable[None]]) -> None:
        """Run `work` unless `cancel` was called before; store an exception of `work` in `error`."""
        self._has_begun = True
        try:
            if not self.is_cancelled:
                await work(self)
        except asyncio.CancelledError:
            # If `cancel` was not called, the producer is being closed.
            if not self.is_cancelled:
                raise
        except _CancelledError:
            pass
        except Exception as error:
            self.error = error


class PendingTxnRequests:
    """Runs PendingTxnRequest tasks, and owns the tasks that are not done.

    What could happen without these tasks, if callers sent the requests themselves:

    1. A caller sends TxnOffsetCommit, or AddPartitionsToTxn, and is cancelled.
    2. The transaction is aborted. EndTxn goes to another broker, which responds at once.
    3. The next transaction begins, in version 1 with the same epoch.
    4. Now the first broker processes the request of step 1: the offsets of the aborted transaction
       become part of the next transaction, and are committed with it.

    So a task waits for the response of step 1 even if its caller is cancelled, and step 2 waits for
    the task. If no response arrives, `Fencing.fence_unanswered` makes brokers refuse the request.
    In version 2 (KIP-890) every transaction has its own epoch. Brokers refuse the late request
    because of its outdated epoch, so an abort need not wait for its response.
    """

    def __init__(self, transaction: Transaction, owner: TaskOwner) -> None:
        self._transaction = transaction
        self._owner = owner
        self._pending: dict[PendingTxnRequest, None] = {}

    async def run(
        self, name: str, work: Callable[[PendingTxnRequest], Awaitable[None]], deadline: float
    ) -> None:
        """Run `work` in a task, after the earlier tasks of this name, and wait for the task. `work`
        ends by `deadline` (loop time), or later if it waits for a response.

        Raises the error of `work`, KafkaTimeoutError at the deadline, TransactionStateError if the
        transaction has ended before the task. If the call is cancelled, the task continues: a
        commit waits for the task, and fails if the task fails; an abort cancels the task.
        """
        # The task is added to `_pending` at once, because a commit must also wait for tasks that
        # have not begun.
        before = [one for one in self._pending if one.name == name]

        async def in_turn(pending: PendingTxnRequest) -> None:
            for other in before:
                await self._wait_for(
                    other, deadline, f"{name}: timed out while it waited for an earlier call"
                )
            self._transaction.raise_failure()
            await work(pending)

        pending = PendingTxnRequest(name, self._transaction)
        pending.task = self._owner.start(self._execute(pending, in_turn), name=name)
        self._pending[pending] = None
        try:
            await self._result(pending, deadline)
        except KafkaError:
            pending.cancel()
            raise
        finally:
            pending.is_detached = True

    async def _execute(
        self, pending: PendingTxnRequest, work: Callable[[PendingTxnRequest], Awaitable[None]]
    ) -> None:
        try:
            await pending.execute(work)
        finally:
            self._pending.pop(pending, None)
            self._apply_error(pending)

    def _apply_error(self, pending: PendingTxnRequest) -> None:
        """Fail the transaction if a task has failed. Called as soon as the task is done.

        The caller of `run` cannot do this: it may be cancelled, or may run some iterations of the
        event loop later. Until then a commit could send EndTxn without the partitions or offsets of
        the task.
        """
        transaction = self._transaction
        # A task of an earlier transaction must not fail the current transaction.
        if pending.number != transaction.number:
            return
        error = pending.error
        # An error other than a KafkaError is due to wrong arguments, and is raised before the first
        # request. If the caller still waits, `run` raises this error, and the transaction need not
        # fail.
        if not pending.is_detached and not isinstance(error, KafkaError):
            return
        if error is not None and not isinstance(error, _EXPLAINED_ERRORS):
            transaction.fail(error)

    async def _wait_for(
        self, pending: PendingTxnRequest, deadline: float | None, text: str
    ) -> None:
        """Wait until `pending` is done. Raises KafkaTimeoutError at `deadline` (loop time)."""
        assert pending.task is not None
        limit = None
        if deadline is not None:
            limit = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait([pending.task], timeout=limit)
        if not pending.task.done():
            raise KafkaTimeoutError(text)
        self._pending.pop(pending, None)

    async def _result(self, pending: PendingTxnRequest, deadline: float) -> None:
        text = f"{pending.name}: the broker has not responded in time"
        try:
            await self._wait_for(pending, deadline, text)
        except KafkaTimeoutError:
            if pending.is_in_flight:
                raise
            # The task ends at the same deadline by itself, and its error has the reason.
            await self._wait_for(pending, None, text)
        assert pending.task is not None
        if pending.error is not None:
            raise pending.error
        if pending.task.cancelled():
            raise ProducerClosed("the producer was stopped")
        if pending.is_cancelled:
            raise TransactionStateError(f"{pending.name}: the transaction ended during the call")

    async def wait_for_all(self, deadline: float) -> None:
        """Wait until all tasks are done. Raises KafkaTimeoutError at `deadline` (loop time)."""
        while self._pending:
            pending = next(iter(self._pending))
            await self._wait_for(
                pending, deadline, f"timed out: {pending.name} is still in progress"
            )

    async def cancel_all(self, deadline: float) -> None:
        """Cancel all tasks, and wait until they are done: afterwards no task adds partitions or
        offsets to the transaction.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        for pending in tuple(self._pending):
            if self._transaction.is_version_2:
                # After the abort, brokers reject the request because its producer epoch is outdated
                # (KIP-890).
                pending.cancel_now()
            else:
                pending.cancel()
        await self.wait_for_all(deadline)


# -- Partitions that a coordinator has added to a transaction. No I/O


MOST_UNKNOWN = 5
"""Number of responses in a row with UNKNOWN_TOPIC_OR_PARTITION after which a partition counts as
missing. After fewer responses the coordinator's metadata may only lack a new partition."""


class RemainingPartitions:
    """Partitions that `Fencing.fence_unanswered` has still to add to its transaction. This
    transaction gets no records: its end fences requests without a response. Some partitions may be
    deleted, or the producer may be no longer authorized to use them.

    Owns: the partitions that were neither added nor refused so far.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = set(partitions)
        self._unknown = 0
        """The number of responses in a row with UNKNOWN_TOPIC_OR_PARTITION."""

    def check_response(self, response: AddPartitionsToTxnResponse) -> None:
        """Remove all partitions if they were added, else the partitions that were refused.

        Raises retriable errors (UNKNOWN_TOPIC_OR_PARTITION less than `MOST_UNKNOWN` times in a
        row), KafkaProtocolError if the response lacks a partition, and ProducerFenced.
        """
        try:
            _check_added(response, self.partitions)
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
        decisive, _ = _decisive_code(response)
        self.partitions -= {partition for partition, code in _codes(response) if code == decisive}


def _check_added(response: AddPartitionsToTxnResponse, wanted: Set[TopicPartition]) -> None:
    """Raise the error of `_decisive_code`, or KafkaProtocolError if the response lacks a partition
    of `wanted`."""
    check(*_decisive_code(response))
    _check_named(wanted, {partition for partition, _ in _codes(response)}, "AddPartitionsToTxn")


def _check_named(wanted: Set[TopicPartition], named: Set[TopicPartition], what: str) -> None:
    """Raise KafkaProtocolError, which is retriable, if a partition of `wanted` is missing in
    `named`, the partitions of a response.

    If a missing partition counted as added, its records might not be in the transaction; if its
    offset counted as stored, the offset might be lost.
    """
    missing = wanted - named
    if missing:
        topic, number = min(missing)
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise KafkaProtocolError(f"{what}: the response lacks {topic}-{number}{more}")


def _topics_to_add(partitions: Set[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
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


def _decisive_code(response: AddPartitionsToTxnResponse) -> tuple[int, str]:
    """Return the error code because of which no partition was added, and a text with the name of a
    partition with this code; (0, "") without an error.

    If the coordinator refuses one partition, it adds no partition, and the code of the others is
    OPERATION_NOT_ATTEMPTED. A code that is not retriable takes precedence over a retriable code.
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


# -- Offsets for a transaction, and the group members that commit them. No I/O


Offsets = dict[TopicPartition, OffsetAndMetadata]
MemberOffsets = tuple[ConsumerGroupMetadata, Offsets, dict[str, bytes]]
"""A group member, the offsets that this member commits, and the topic ids that the member knows, by
topic name."""


class WrongOffsets(TypeError, ValueError):
    """The `offsets` argument has a wrong type. Also a ValueError, as in aiokafka 0.14."""


def as_offsets(offsets: Any) -> Offsets:
    """Return the offsets of an application as a dict from partition to OffsetAndMetadata.

    Raises TypeError or ValueError unless `offsets` is a mapping of partitions to an int,
    (int, str) or OffsetAndMetadata, and ValueError for a negative offset.
    """
    if not isinstance(offsets, Mapping):
        raise WrongOffsets(f"offsets: must be a dict, not {type(offsets).__name__}")
    found: Offsets = {}
    for partition, value in offsets.items():
        tp = as_partition(partition, "Key should be TopicPartition instance in offsets")
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
    """Return `group` if it is a group id. For a consumer or its `group_metadata()`, return the
    metadata of the member.

    Raises CommitFailedError for a consumer that is not a member now, ValueError for an empty id or
    another type.
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
    """Return `offsets` with the leader epoch of the record before each offset, if one of the
    consumers `readers` knows this epoch.

    With a leader epoch, a consumer that resumes at the offset detects a truncated log (KIP-320).
    """
    found: Offsets = {}
    for partition, entry in offsets.items():
        epoch = entry.leader_epoch
        for reader in readers:
            if epoch < 0:
                epoch = reader.leader_epoch_before(partition, entry.offset)
        found[partition] = entry._replace(leader_epoch=epoch)
    return found


def offsets_by_member(
    offsets: Offsets, group: str | ConsumerGroupMetadata, readers: Sequence[GroupView]
) -> list[MemberOffsets]:
    """Return `offsets`, grouped by the member that commits them.

    If `group` is a member, it commits all offsets. If `group` is a group id, the consumer that read
    the partition commits its offset (`_reader_of`); without such a consumer, the offset is
    committed without a member. `readers`: the consumers of the group in this event loop. Raises the
    CommitFailedError of `GroupView.refuse_lost()` if a consumer has lost a partition since it
    returned the partition's records, or if the topic may have been recreated.
    """
    ids: dict[str, bytes] = {}
    if isinstance(group, ConsumerGroupMetadata):
        for reader in readers:
            if group.member_id and group.member_id == reader.member_id:
                reader.refuse_lost(offsets)
                ids = reader.topic_ids(offsets)
        return [(group, offsets, ids)]
    by_reader: dict[GroupView | None, Offsets] = {}
    for partition, entry in offsets.items():
        by_reader.setdefault(_reader_of(partition, entry.offset, readers), {})[partition] = entry
    by_member: dict[ConsumerGroupMetadata, MemberOffsets] = {}
    for found, part in by_reader.items():
        member, ids = ConsumerGroupMetadata(group), {}
        if found is not None:
            found.refuse_lost(part)
            member, ids = found.metadata(), found.topic_ids(part)
        _, merged, merged_ids = by_member.setdefault(member, (member, {}, {}))
        merged.update(part)
        merged_ids.update(ids)
    return list(by_member.values())


def _reader_of(
    partition: TopicPartition, offset: int, readers: Sequence[GroupView]
) -> GroupView | None:
    """Return the consumer of `readers` that may commit `offset`, because it has returned the
    records before this offset. Otherwise return a consumer that has lost the partition, else the
    owner of the partition, else None.

    A rebalance may move a partition between two consumers of this event loop while a transaction
    is open:

    1. Reader A returns the records 0 to 9. The application processes them.
    2. The group revokes the partition from A and assigns it to B. B has read nothing yet.
    3. The application commits offset 10. A must refuse the offset, because B begins at 0. The
       coordinator would accept the offset from B, and the records 0 to 9 would be processed twice.

    So B may commit only after it has returned records, or if its position equals `offset`.
    """
    for reader in readers:
        if reader.may_commit(partition, offset):
            return reader
    for reader in readers:
        if reader.has_lost(partition):
            return reader
    return next((reader for reader in readers if reader.owns(partition)), None)


# -- The requests


_LAST_CLIENT_SIDE_ADD = 3  # later versions of AddPartitionsToTxn are for brokers (KIP-890)
_LAST_PLAIN_END = 4
_FIRST_RENEWING = 3
_LAST_PLAIN_OFFSETS = 4
_LAST_WITH_NAMES = 5  # later versions of TxnOffsetCommit have topic ids (KIP-1319)
_FIRST_WITH_MEMBER = 3  # KIP-447

# With these codes the outcome of a request is unknown: the coordinator may have appended the result
# to its log, and then lost its role or its replicas before the log was replicated.
_STORED_PERHAPS = (
    CoordinatorNotAvailableError.errno,
    NotCoordinatorError.errno,
    UnknownError.errno,
)


class TransactionRequests:
    """Sends requests to the coordinator of one transactional id, and to group coordinators.

    Every call retries retriable errors until `deadline` (loop time), then raises KafkaTimeoutError.
    After a KafkaTimeoutError or a cancellation the call can be repeated. After `init` has
    succeeded, calls also retry if the credentials are rejected: they may be rotated.

    Owns: the additional retriable errors, whether the warning about old brokers was logged, and
    whether the coordinator may have allocated the next epoch (`may_have_epoch`).
    """

    def __init__(
        self, client: AIOKafkaClient, transactional_id: str, unanswered: UnansweredRequests
    ) -> None:
        self._client = client
        self._id = transactional_id
        self._unanswered = unanswered
        self._has_warned = False
        self._also_retriable: tuple[type[KafkaError], ...] = ()
        self.may_have_epoch = False
        """Whether the outcome of an InitProducerId is unknown: the coordinator may have allocated
        the next epoch to this producer."""

    def _retry(
        self, what: str, deadline: float, attempt: Callable[[], Awaitable[T]]
    ) -> Awaitable[T]:
        return retry(self._client, what, deadline, attempt, self._also_retriable)

    async def _send(
        self,
        kind: CoordinationType,
        key: str,
        request: Any,
        deadline: float,
        max_version: int | None,
        check_response: Callable[[Any], None],
        pending: PendingTxnRequest | None = None,
        adapt: Callable[[BrokerConnection], None] | None = None,
    ) -> Any:
        """Send a request to the coordinator of `key`, without a retry, and return the response.
        Raises asyncio.TimeoutError at `deadline` (loop time).

        Args:
            check_response: Raises the exception for an error code in the response.
            pending: The task that sends the request. If given, the call waits for the response even
                beyond the deadline.
            adapt: Changes the request according to the versions that the broker supports.
        """

        async def ask(node_id: int) -> Any:
            connection = await self._connect(node_id, deadline)
            if adapt is not None:
                adapt(connection)
            version = connection.pick(type(request), max_version)
            # With `pending`, apply only the connection's timeout, not `deadline`: otherwise the
            # task would end at the deadline while its request is in flight, and nothing would wait
            # for the response.
            try:
                if pending is not None:
                    with pending.in_flight():
                        response = await connection.request(request, version=version)
                elif connection.gate.is_open:
                    future = connection.send_nowait(request, version)
                    timer = future.get_loop().call_at(deadline, fail_late, future)
                    try:
                        response = await future
                    finally:
                        timer.cancel()
                else:
                    async with timeout_at(deadline):
                        response = await connection.request(request, version=version)
            except BaseException as error:
                self._note_failure(request, error)
                raise
            self._note_open_outcome(request, response)
            check_response(response)
            return response

        return await self._client.ask_coordinator(kind, key, deadline, ask)

    def _note_failure(self, request: Any, error: BaseException) -> None:
        """Record that a broker may process `request` later, if it may have been sent before the
        call failed with `error`."""
        if isinstance(request, EndTxnRequest):
            self._unanswered.note_end(request.committed)
        if not isinstance(error, UNANSWERED):
            return
        if isinstance(request, TxnOffsetCommitRequest):
            self._unanswered.add_group(request.group_id)
        elif isinstance(request, InitProducerIdRequest):
            self.may_have_epoch = True
        else:
            self._unanswered.add_coordinator()

    def _note_open_outcome(self, request: Any, response: Any) -> None:
        if isinstance(request, EndTxnRequest) and response.error_code in _STORED_PERHAPS:
            self._unanswered.note_end(request.committed)
        elif isinstance(request, InitProducerIdRequest) and response.error_code in _STORED_PERHAPS:
            self.may_have_epoch = True

    async def _connect(self, node_id: int, deadline: float) -> BrokerConnection:
        connection = self._client.usable_connection(node_id)
        if connection is not None:
            return connection  # without `timeout_at`, which costs time in every transaction
        # Only the connect runs under this timer. The coordinator lookup raises its own timeout
        # error, whose text has the reason.
        async with timeout_at(deadline):
            return await self._client.connection(node_id)

    async def _connection(self, deadline: float) -> BrokerConnection:
        """Return a connection to the coordinator of the transactional id."""
        kind = CoordinationType.TRANSACTION
        node_id = self._client.known_coordinator(kind, self._id)
        if node_id is not None and self._client.cluster.broker_metadata(node_id) is not None:
            connection = self._client.usable_connection(node_id)
            if connection is not None:
                return connection
        return await self._retry(
            f"the coordinator of {self._id!r}",
            deadline,
            lambda: self._client.ask_coordinator(
                kind, self._id, deadline, lambda node_id: self._connect(node_id, deadline)
            ),
        )

    async def _ask(
        self,
        what: str,
        request: Any,
        deadline: float,
        max_version: int | None = None,
        pending: PendingTxnRequest | None = None,
        convert: Callable[[Any, str], T] = lambda response, _: response,
    ) -> T:
        """Send a request to the coordinator of the transactional id, and return
        `convert(response, text for errors)`. The response must have the field `error_code`.

        Retries retriable errors, also those of `convert`.
        """
        kind = CoordinationType.TRANSACTION
        what = f"{what} of {self._id!r}"

        def check_response(response: Any) -> None:
            check(response.error_code, what)

        async def attempt() -> T:
            response = await self._send(
                kind, self._id, request, deadline, max_version, check_response, pending
            )
            return convert(response, what)

        return await self._retry(what, deadline, attempt)

    async def init(
        self, timeout: float, current: ProducerIdentity | None, deadline: float
    ) -> ProducerIdentity:
        """Get the next epoch of the transactional id. This fences its previous owners, and aborts
        their open transaction.

        `timeout` (seconds) is the transaction timeout. With `current`, the epoch of this identity
        is incremented (KIP-360), which fails if another producer owns the transactional id now.
        """
        connection = await self._connection(deadline)
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=int(timeout * 1000)
        )
        if current is not None and connection.pick(InitProducerIdRequest) >= _FIRST_RENEWING:
            request.producer_id, request.producer_epoch = current
        # Version 6 is for two-phase commit (KIP-939), which no broker supports yet.
        try:
            identity = await self._ask(
                "InitProducerId", request, deadline, max_version=5, convert=identity_in
            )
        except InvalidTransactionTimeout as error:
            raise InvalidTransactionTimeout(
                f"transaction_timeout_ms={timeout * 1000:.0f} is more than the brokers allow: "
                "their transaction.max.timeout.ms is lower (by default 900000)"
            ) from error
        self._also_retriable = REFUSALS
        self.may_have_epoch = False
        return identity

    async def can_renew(self, deadline: float) -> bool:
        """Return whether the coordinator supports `init` with a current identity (KIP-360)."""
        connection = await self._connection(deadline)
        return connection.pick(InitProducerIdRequest) >= _FIRST_RENEWING

    async def is_version_2(self, deadline: float) -> bool:
        """Return whether the cluster supports transactions of version 2 (KIP-890)."""
        versions = (await self._connection(deadline)).versions
        if versions is None or versions.finalized_features.get("transaction.version", 0) < 2:
            return False
        return versions.pick(EndTxnRequest) > _LAST_PLAIN_END

    async def add_partitions(
        self,
        identity: ProducerIdentity,
        partitions: Set[TopicPartition],
        deadline: float,
        pending: PendingTxnRequest,
    ) -> None:
        """Add partitions to the transaction, before records are sent to them."""

        def check_response(response: AddPartitionsToTxnResponse) -> None:
            _check_added(response, partitions)

        await self._add(identity, partitions, deadline, check_response, pending)

    async def add_remaining(
        self, identity: ProducerIdentity, remaining: RemainingPartitions, deadline: float
    ) -> None:
        """Add partitions to the transaction, except the partitions that the coordinator refuses."""
        while remaining.partitions:
            # If the coordinator refuses one partition, it adds none: repeat the request without the
            # refused partitions.
            await self._add(identity, remaining.partitions, deadline, remaining.check_response)

    async def _add(
        self,
        identity: ProducerIdentity,
        partitions: Set[TopicPartition],
        deadline: float,
        check_response: Callable[[AddPartitionsToTxnResponse], None],
        pending: PendingTxnRequest | None = None,
    ) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=_topics_to_add(partitions),
        )
        kind = CoordinationType.TRANSACTION
        limit = _LAST_CLIENT_SIDE_ADD

        async def attempt() -> None:
            await self._send(kind, self._id, request, deadline, limit, check_response, pending)

        await self._retry(f"AddPartitionsToTxn of {self._id!r}", deadline, attempt)

    async def add_group(
        self,
        identity: ProducerIdentity,
        group_id: str,
        deadline: float,
        pending: PendingTxnRequest | None = None,
    ) -> None:
        """Add a group to the transaction, before `commit_offsets` sends its offsets."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        await self._ask("AddOffsetsToTxn", request, deadline, pending=pending)

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        member: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, bytes],
        deadline: float,
        pending: PendingTxnRequest,
        *,
        is_version_2: bool,
    ) -> None:
        """Commit offsets of a group with the transaction: they are valid after its commit. In
        version 2 the request also adds the group to the transaction.

        Since Kafka 4.4 the request has topic ids (KIP-1319), so that an offset in a deleted topic
        is not stored for a new topic with the same name. The ids in `topic_ids` take precedence
        over the ids in the metadata. If the id of a topic is unknown, the request has topic names.

        Raises UnknownTopicOrPartitionError or UnknownTopicId after `MOST_UNKNOWN` responses in a
        row with these errors.
        """
        cluster = self._client.cluster
        ids = {tp.topic: topic_ids.get(tp.topic) or cluster.topic_id(tp.topic) for tp in offsets}
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=member.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=_offset_topics(offsets, ids),
        )
        kind, group_id = CoordinationType.GROUP, member.group_id
        limit = None if all(ids.values()) else _LAST_WITH_NAMES
        if not is_version_2:
            limit = _LAST_PLAIN_OFFSETS
        commit = _OffsetsCommit(group_id, offsets.keys(), ids)

        def adapt(connection: BrokerConnection) -> None:
            if connection.pick(TxnOffsetCommitRequest, limit) >= _FIRST_WITH_MEMBER:
                request.generation_id_or_member_epoch = member.generation_id
                request.member_id = member.member_id
                request.group_instance_id = member.group_instance_id
            elif member.member_id:
                self._warn_of_frozen_members(group_id)

        async def attempt() -> None:
            await self._send(
                kind, group_id, request, deadline, limit, commit.check_response, pending, adapt
            )

        await self._retry(f"TxnOffsetCommit for {group_id!r}", deadline, attempt)
        if commit.unknown:
            # The next transaction needs the ids of recreated topics.
            self._client.request_metadata(f"offsets of group {group_id!r}: a topic is unknown")
            raise commit.unknown[-1]

    def _warn_of_frozen_members(self, group_id: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "Group %r, transactional id %r: brokers before Kafka 2.5 accept offsets from "
                "members that the group has removed, so records may be processed twice if a "
                "process is suspended for longer than session_timeout_ms. To prevent this, upgrade "
                "the brokers, or assign partitions manually, with one transactional_id for each "
                "set of partitions.",
                group_id,
                self._id,
            )

    async def end(
        self, identity: ProducerIdentity, is_commit: bool, is_version_2: bool, deadline: float
    ) -> ProducerIdentity | None:
        """Commit or abort the transaction (EndTxn). Return the identity for the next transaction;
        None if the identity has changed, but the response does not have it.

        If the outcome is unknown, the call can be repeated, with the same effect.
        """
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )
        limit = None if is_version_2 else _LAST_PLAIN_END
        response: EndTxnResponse = await self._ask("EndTxn", request, deadline, limit)
        identity_after = ProducerIdentity(response.producer_id, response.producer_epoch)
        if min(identity_after) >= 0:
            return identity_after
        return None if is_version_2 else identity


class _OffsetsCommit:
    """Checks the responses to all attempts of one TxnOffsetCommit.

    Owns `unknown`: the UnknownTopicOrPartitionErrors and UnknownTopicIds of the last responses in a
    row.
    """

    def __init__(
        self, group_id: str, wanted: Set[TopicPartition], ids: Mapping[str, bytes | None]
    ) -> None:
        self.unknown: list[KafkaError] = []
        self._group_id = group_id
        self._wanted = wanted
        self._names = {topic_id: name for name, topic_id in ids.items()}

    def check_response(self, response: TxnOffsetCommitResponse) -> None:
        """Raise the first error of the response; without an error, raise KafkaProtocolError if the
        response lacks a partition. After `MOST_UNKNOWN` responses in a row with
        UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, return instead, and the caller raises the
        last error of `unknown`. If this method raised that error, which is retriable, the request
        would be repeated."""
        named = set()
        for topic in response.topics:
            name = topic.name or self._names.get(topic.topic_id, "")
            for result in topic.partitions:
                named.add(TopicPartition(name, result.partition_index))
                where = f"{name}-{result.partition_index} of group {self._group_id!r}"
                try:
                    check(result.error_code, where)
                except (UnknownTopicOrPartitionError, UnknownTopicId) as error:
                    self.unknown.append(error)
                    if len(self.unknown) == MOST_UNKNOWN:
                        return
                    raise
        self.unknown.clear()
        _check_named(self._wanted, named, f"TxnOffsetCommit for {self._group_id!r}")


def _offset_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: Mapping[str, bytes | None]
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
        TxnOffsetCommitRequestTopic(name=name, topic_id=ids[name] or ZERO_UUID, partitions=parts)
        for name, parts in topics.items()
    ]
