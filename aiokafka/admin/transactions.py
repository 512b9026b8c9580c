"""List, describe and abort transactions, and fence producers (`admin.transactions`, KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import _clock
from aiokafka._arguments import (
    as_int,
    as_ints,
    as_list,
    as_milliseconds,
    as_names,
    as_partitions,
    as_text,
    as_tp,
)
from aiokafka.admin._items import (
    attempt,
    by_coordinator,
    by_leader,
    name_of,
    numbers_by_topic,
    of_every_broker,
    outcome,
    partitions_in,
)
from aiokafka.admin._routing import (
    AdminApi,
    Call,
    Outcomes,
    Router,
    call_of,
    error_of,
    fetch_metadata,
    raise_for,
    remaining_ms,
)
from aiokafka.admin._values import Value, or_none
from aiokafka.admin.enums import TransactionState
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    AdminItemsError,
    KafkaError,
    LeaderNotAvailableError,
    TransactionalIdNotFound,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages import transaction_admin as wire
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.structs import TopicPartition

__all__ = [
    "ActiveProducer",
    "FencedProducer",
    "HangingTransaction",
    "TransactionDescription",
    "TransactionListing",
    "Transactions",
]


# -- Values


@dataclass(frozen=True)
class TransactionListing(Value):
    """A transactional id, and the state of its transaction, in a response to ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: int
    """Id of the broker that is the transaction coordinator."""


@dataclass(frozen=True)
class TransactionDescription(Value):
    """A transactional id, and the state of its transaction, in a response to
    DescribeTransactions."""

    transactional_id: str
    coordinator: int
    """Id of the broker that is the transaction coordinator."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    """Milliseconds after which the coordinator aborts a transaction."""

    start_ms: int | None
    """Start of the open transaction, in milliseconds since 1970; None without an open
    transaction."""

    partitions: frozenset[TopicPartition]
    """The partitions of the open transaction; empty without an open transaction."""


@dataclass(frozen=True)
class ActiveProducer(Value):
    """The state of an idempotent or transactional producer at the leader of a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    """Timestamp of the newest batch, in milliseconds since 1970; -1 without a batch."""

    coordinator_epoch: int | None
    """The epoch of the coordinator that ended the producer's last transaction in the partition;
    None if no transaction has ended there."""

    transaction_start_offset: int | None
    """The first offset of the open transaction; None without an open transaction."""


@dataclass(frozen=True)
class FencedProducer(Value):
    """The new producer id and epoch of a transactional id; its former producer is fenced."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class HangingTransaction(Value):
    """A transaction that is open in a partition, but not at any coordinator, so that no coordinator
    will end it."""

    partition: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None
    """The transactional id of this producer; None if no coordinator knows the producer."""


# Default of `older_than_ms`: a transaction counts as hanging only if it had no write for this many
# milliseconds. The value is the default of transaction.max.timeout.ms (15 minutes) plus five
# minutes, as in Kafka's tool.
_LONGEST_MS = 900_000 + 300_000


class Transactions(AdminApi):
    """The sub-client `admin.transactions`, for transactions and their producers."""

    async def describe(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return the states of transactional ids (Java: describeTransactions, KIP-664, Kafka 3.0).

        Args:
            transactional_ids: the ids.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises TransactionalIdNotFound for an id that was never used, or that has expired;
        AdminItemsError if one of several ids fails.
        """
        ids = _ids("transactional_ids", transactional_ids)
        return await describe_transactions(self._router, ids, self._deadline(timeout_ms))

    async def producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the active producers of partitions (Java: describeProducers, KIP-664, Kafka 2.8).

        Args:
            partitions: the partitions.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a single partition; AdminItemsError if one of several partitions fails.
        """
        wanted = as_partitions("partitions", partitions)
        return await describe_producers(self._router, wanted, self._deadline(timeout_ms))

    async def abort(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Abort a transaction in one partition, without its coordinator (Java: abortTransaction,
        KIP-664).

        This is for hanging transactions: see `find_hanging`. To abort a transaction that a
        coordinator knows, use `force_terminate`.

        Args:
            partition: the partition where the transaction is open.
            producer_id: the id of the producer of the transaction, as `producers` returns it.
            producer_epoch: the epoch of the producer in this partition.
            coordinator_epoch: the epoch of the coordinator, as `producers` returns it; None stands
                for 0.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        In other partitions the transaction stays open. Raises InvalidProducerEpoch or
        TransactionCoordinatorFenced if the partition has a newer epoch of the producer or
        coordinator.
        """
        producer_id = as_int("producer_id", producer_id, 0)
        producer_epoch = as_int("producer_epoch", producer_epoch, 0)
        partition = as_tp("partition", partition)
        if coordinator_epoch is not None:
            coordinator_epoch = max(as_int("coordinator_epoch", coordinator_epoch), 0)
        deadline = self._deadline(timeout_ms)

        topic = wire.WritableTxnMarkerTopic(
            name=partition.topic, partition_indexes=[partition.partition]
        )
        marker = wire.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=coordinator_epoch or 0,
        )
        call = call_of(wire.WriteTxnMarkersRequest(markers=[marker]))

        async def send(node_id: int, part: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            response = await self._router.send(node_id, call, deadline)
            return {
                tp: error_of(each.error_code, None, name_of(tp))
                for marker in response.markers
                for tp, each in partitions_in(marker.topics)
            }

        await by_leader(self._router, [partition], send, deadline)

    async def fence(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, FencedProducer]:
        """Fence the producers of transactional ids (Java: fenceProducers, KIP-588, Kafka 0.11).

        A producer that still runs fails with ProducerFenced, and its open transaction is aborted.

        Args:
            transactional_ids: the ids. An id that was never used is registered with its
                coordinator.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns the new producer id and epoch of each transactional id. Raises the error of a single
        id; AdminItemsError if one of several ids fails.
        """
        ids = _ids("transactional_ids", transactional_ids)
        return await fence_producers(self._router, ids, self._deadline(timeout_ms))

    async def force_terminate(
        self, transactional_id: str, *, timeout_ms: float | None = None
    ) -> None:
        """Abort the open transaction of a transactional id (Java: forceTerminateTransaction,
        KIP-939).

        This fences the producer that uses the id. `read_committed` consumers never get the records
        of the transaction. Needs Kafka 0.11.

        Args:
            transactional_id: the id.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises TransactionalIdNotFound for an id that no coordinator knows (from Kafka 3.0 on).
        """
        name = as_text("transactional_id", transactional_id, empty=False)
        deadline = self._deadline(timeout_ms)
        with suppress(UnsupportedVersionError):  # brokers before Kafka 3.0 cannot check the id
            await describe_transactions(self._router, [name], deadline)
        await fence_producers(self._router, [name], deadline)

    async def find_hanging(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        older_than_ms: float = _LONGEST_MS,
        timeout_ms: float | None = None,
    ) -> list[HangingTransaction]:
        """Return hanging transactions: open in a partition, but not at any coordinator.

        `read_committed` consumers cannot read beyond a hanging transaction until `abort` ends it.

        Args:
            partitions: the partitions to check; by default all partitions.
            older_than_ms: return only transactions whose last write is at least this many
                milliseconds ago. The default is 20 minutes, as in Kafka's tool: the default of
                `transaction.max.timeout.ms` plus five minutes.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        First the leaders of the partitions return their open transactions (KIP-664, Kafka 3.0).
        Then the coordinators are queried for these transactions. Finally the leaders are queried
        again, to omit transactions that have ended meanwhile. A partition without a leader is not
        retried. If some partitions cannot be checked, raises AdminItemsError, with their errors by
        partition, and the hanging transactions of the other partitions as results.
        """
        age_ms = as_milliseconds("older_than_ms", older_than_ms)
        wanted = None if partitions is None else as_partitions("partitions", partitions)
        deadline = self._deadline(timeout_ms)
        asked = await _all_partitions(self._router, deadline) if wanted is None else wanted
        first = await _describe_each(self._router, asked, wanted is None, deadline)
        latest = _clock.wall_time() * 1000 - age_ms
        found = await _unknown_to_coordinators(self._router, _open_in(first, latest), deadline)
        now = await _describe_each(self._router, {one.partition for one in found}, True, deadline)
        hanging: dict[TopicPartition, list[HangingTransaction] | KafkaError] = {
            tp: each if isinstance(each, KafkaError) else [] for tp, each in (first | now).items()
        }
        for one in found:
            kept, producers = hanging[one.partition], now.get(one.partition, ())
            if isinstance(kept, list) and _is_still_open(one, producers):
                kept.append(one)
        return [one for part in outcome(hanging).values() for one in part]

    async def list(
        self,
        *,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers (Java: listTransactions, KIP-664, Kafka 3.0).

        Args:
            states: return only ids whose transaction is in one of these states.
            producer_ids: return only ids that have one of these producer ids.
            duration_ms: return only transactions that have been open for longer than this many
                milliseconds (KIP-994, Kafka 3.8).
            transactional_id_pattern: return only ids that match this RE2 regular expression
                (KIP-1152, Kafka 4.1).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises InvalidRegularExpression for a malformed pattern. If some brokers do not respond
        before the timeout, raises AdminItemsError, with their errors by broker id, and as results
        the transactions of the other brokers by transactional id.
        """
        ids, pattern = as_ints("producer_ids", producer_ids), transactional_id_pattern
        wanted = TransactionFilter(
            _states(states),
            ids,
            None if duration_ms is None else as_int("duration_ms", duration_ms, 0),
            None if pattern is None else as_text("transactional_id_pattern", pattern),
        )
        return await list_transactions(self._router, wanted, self._deadline(timeout_ms))


def _ids(argument: str, values: Iterable[str]) -> list[str]:
    return [as_text(argument, name, empty=False) for name in as_names(argument, values)]


def _states(states: Iterable[Any]) -> tuple[TransactionState, ...]:
    found = as_list("states", states, one=TransactionState)
    for state in found:
        if not isinstance(state, TransactionState) or state is TransactionState.UNKNOWN:
            raise ValueError(f"states: {state!r}: must be a TransactionState other than UNKNOWN")
    return tuple(found)


# -- Requests to coordinators: list, describe and fence

_FIRST_WITH_DURATION = 1
_FIRST_WITH_PATTERN = 2

# The transaction timeout in the InitProducerId request that fences a producer. The value is not
# used, because no transaction begins, but brokers reject one above transaction.max.timeout.ms.
_FENCING_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class TransactionFilter:
    """Which transactions to list: a transaction must match all fields. An empty field (None or ())
    matches all transactions."""

    states: Collection[TransactionState] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int | None = None
    pattern: str | None = None


async def list_transactions(
    router: Router, wanted: TransactionFilter, deadline: float
) -> list[TransactionListing]:
    """Return the transactions of all brokers that match the filter."""

    async def ask(node_id: int) -> list[TransactionListing]:
        return await _list_one(router, node_id, wanted, deadline)

    found = await of_every_broker(router, ask, deadline)
    transactions = {one.transactional_id: one for one in found.values}
    if found.errors:
        raise AdminItemsError(found.errors, transactions)
    return list(transactions.values())


async def _list_one(
    router: Router, node_id: int, wanted: TransactionFilter, deadline: float
) -> list[TransactionListing]:
    call = Call(wire.ListTransactionsRequest, lambda version: _request(version, wanted))
    response = await router.send(node_id, call, deadline)
    raise_for(response.error_code, None, f"transactions of node {node_id}")
    return [
        TransactionListing(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            state=TransactionState.of(each.transaction_state),
            coordinator=node_id,
        )
        for each in response.transaction_states
    ]


def _request(version: int, wanted: TransactionFilter) -> wire.ListTransactionsRequest:
    request = wire.ListTransactionsRequest(
        state_filters=[state.value for state in wanted.states],
        producer_id_filters=list(wanted.producer_ids),
    )
    if wanted.duration_ms is not None:
        if version < _FIRST_WITH_DURATION:
            raise UnsupportedVersionError("ListTransactions: duration_ms needs Kafka 3.8 (KIP-994)")
        request.duration_filter = wanted.duration_ms
    if wanted.pattern is not None:
        if version < _FIRST_WITH_PATTERN:
            raise UnsupportedVersionError(
                "ListTransactions: transactional_id_pattern needs Kafka 4.1 (KIP-1152)"
            )
        request.transactional_id_pattern = wanted.pattern
    return request


async def describe_transactions(
    router: Router, transactional_ids: Iterable[str], deadline: float
) -> dict[str, TransactionDescription]:
    """Return the states of transactional ids at their coordinators."""

    async def send(node_id: int, ids: list[str]) -> Outcomes[str, TransactionDescription]:
        call = call_of(wire.DescribeTransactionsRequest(transactional_ids=ids))
        response = await router.send(node_id, call, deadline)
        return {
            each.transactional_id: _description(each, node_id)
            for each in response.transaction_states
        }

    kind, in_half = CoordinationType.TRANSACTION, router.in_half(send, deadline)
    return await by_coordinator(router, transactional_ids, in_half, deadline, kind=kind)


def _description(each: wire.TransactionState, node_id: int) -> TransactionDescription | KafkaError:
    if each.error_code:
        return for_code(each.error_code)(f"transactional id {each.transactional_id!r}")
    return TransactionDescription(
        transactional_id=each.transactional_id,
        coordinator=node_id,
        state=TransactionState.of(each.transaction_state),
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        timeout_ms=each.transaction_timeout_ms,
        start_ms=or_none(each.transaction_start_time_ms),
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in each.topics
            for index in topic.partitions
        ),
    )


async def fence_producers(
    router: Router, transactional_ids: Iterable[str], deadline: float
) -> dict[str, FencedProducer]:
    """Fence the producer of each transactional id, by an InitProducerId request, which increases
    the producer epoch. Return the new producer ids and epochs."""

    async def one(node_id: int, name: str) -> FencedProducer | KafkaError:
        def build(version: int) -> InitProducerIdRequest:
            timeout = min(remaining_ms(deadline), _FENCING_TIMEOUT_MS)
            return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout)

        try:
            response = await router.send(node_id, Call(InitProducerIdRequest, build), deadline)
        except KafkaError as error:
            return error
        if response.error_code:
            return for_code(response.error_code)(f"transactional id {name!r}")
        return FencedProducer(response.producer_id, response.producer_epoch)

    async def send(node_id: int, ids: list[str]) -> Outcomes[str, FencedProducer]:
        return {name: await one(node_id, name) for name in ids}

    kind = CoordinationType.TRANSACTION
    return await by_coordinator(router, transactional_ids, send, deadline, kind=kind)


# -- Requests to leaders: describe producers (KIP-664)

Producers = tuple[ActiveProducer, ...]


async def describe_producers(
    router: Router,
    partitions: Iterable[TopicPartition],
    deadline: float,
    *,
    final: tuple[type[KafkaError], ...] = (),
) -> dict[TopicPartition, Producers]:
    """Return the active producers of partitions. Errors of the types `final` are not retried."""

    def topic(name: str, numbers: list[int]) -> wire.TopicRequest:
        return wire.TopicRequest(name=name, partition_indexes=numbers)

    async def send(node_id: int, part: list[TopicPartition]) -> Outcomes[TopicPartition, Producers]:
        call = call_of(wire.DescribeProducersRequest(topics=numbers_by_topic(part, topic)))
        response = await router.send(node_id, call, deadline)
        return {tp: _producers(tp, each) for tp, each in partitions_in(response.topics)}

    in_half = router.in_half(send, deadline)
    return await by_leader(router, partitions, in_half, deadline, final=final)


def _producers(tp: TopicPartition, each: wire.PartitionResponse) -> Producers | KafkaError:
    error = error_of(each.error_code, each.error_message, name_of(tp))
    if error is not None:
        return error
    return tuple(
        ActiveProducer(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            last_timestamp=one.last_timestamp,
            coordinator_epoch=or_none(one.coordinator_epoch),
            transaction_start_offset=or_none(one.current_txn_start_offset),
        )
        for one in each.active_producers
    )


# -- Hanging transactions: open in partitions, unknown to coordinators


def _open_in(
    found: Outcomes[TopicPartition, Producers], latest: float
) -> list[tuple[TopicPartition, ActiveProducer]]:
    """Return the open transactions without a write after `latest` (milliseconds since 1970)."""
    return [
        (tp, each)
        for tp, producers in found.items()
        if not isinstance(producers, KafkaError)
        for each in producers
        if each.transaction_start_offset is not None and each.last_timestamp <= latest
    ]


async def _all_partitions(router: Router, deadline: float) -> list[TopicPartition]:
    metadata = await fetch_metadata(router, None, deadline)
    return [
        TopicPartition(str(topic.name), each.partition_index)
        for topic in metadata.topics
        for each in topic.partitions
    ]


async def _describe_each(
    router: Router, partitions: Iterable[TopicPartition], may_be_gone: bool, deadline: float
) -> dict[TopicPartition, Producers | KafkaError]:
    """Return the active producers of each partition, or its error.

    With `may_be_gone`, omit partitions that do not exist. A partition without a leader is not
    retried, so that it does not delay the other partitions.
    """
    final = (UnknownTopicOrPartitionError, LeaderNotAvailableError)
    wanted = list(dict.fromkeys(partitions))
    found = await attempt(
        partial(describe_producers, router, wanted, deadline, final=final), wanted
    )
    if not may_be_gone:
        return found
    return {
        tp: each for tp, each in found.items() if not isinstance(each, UnknownTopicOrPartitionError)
    }


async def _unknown_to_coordinators(
    router: Router, opened: Collection[tuple[TopicPartition, ActiveProducer]], deadline: float
) -> list[HangingTransaction]:
    """Return the hanging transactions among `opened`: those that no coordinator will end."""
    if not opened:
        return []
    ids = {each.producer_id for _, each in opened}
    listed = await list_transactions(router, TransactionFilter(producer_ids=ids), deadline)
    names = {one.producer_id: one.transactional_id for one in listed}
    known = await _known(router, names.values(), deadline)
    return [
        HangingTransaction(tp, each, names.get(each.producer_id))
        for tp, each in opened
        if not _is_coordinated(tp, each, known.get(names.get(each.producer_id, "")))
    ]


async def _known(
    router: Router, names: Collection[str], deadline: float
) -> Mapping[str, TransactionDescription]:
    """Describe transactional ids; omit ids that have expired since they were listed.

    If an id has another error than TransactionalIdNotFound, raises the first of these errors.
    """
    found = await attempt(partial(describe_transactions, router, names, deadline), names)
    known: dict[str, TransactionDescription] = {}
    for name, one in found.items():
        if isinstance(one, TransactionDescription):
            known[name] = one
        elif not isinstance(one, TransactionalIdNotFound):
            raise one
    return known


def _is_coordinated(
    tp: TopicPartition, producer: ActiveProducer, known: TransactionDescription | None
) -> bool:
    """Return whether the coordinator will end this transaction in this partition: `known`, the
    state of the transactional id at the coordinator, has this producer id and this partition."""
    same = known is not None and known.producer_id == producer.producer_id
    return known is not None and same and tp in known.partitions


def _is_still_open(one: HangingTransaction, now: Producers | KafkaError) -> bool:
    """Return whether a transaction is still open in the second response of its leader.

    A transaction may end between the query to the leader and the query to the coordinator. Then it
    looks like a hanging transaction: open in the partition, unknown to the coordinator. But in the
    second response of the leader it has ended.
    """
    start = one.producer.transaction_start_offset
    return not isinstance(now, KafkaError) and any(
        each.producer_id == one.producer.producer_id and each.transaction_start_offset == start
        for each in now
    )
