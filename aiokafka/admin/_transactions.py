"""What is said to coordinators and leaders about transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from aiokafka.admin._coordinators import by_coordinator
from aiokafka.admin._every_broker import of_every_broker
from aiokafka.admin._routing import Call, Router, raise_for, remaining_ms
from aiokafka.admin._transaction_values import (
    FencedProducer,
    TransactionDescription,
    TransactionListing,
)
from aiokafka.admin.enums import TransactionState
from aiokafka.client import CoordinationType
from aiokafka.errors import AdminItemsError, KafkaError, UnsupportedVersionError, for_code
from aiokafka.protocol.messages import list_transactions as listing
from aiokafka.protocol.messages import transaction_admin as wire
from aiokafka.protocol.messages.init_producer_id import InitProducerIdRequest
from aiokafka.structs import TopicPartition

_FIRST_WITH_DURATION = 1
_FIRST_WITH_PATTERN = 2

# Brokers refuse more than transaction.max.timeout.ms; the new session opens no transaction.
_FENCING_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class TransactionFilter:
    """Which transactions to list; what is empty lets all pass."""

    states: Collection[TransactionState] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int | None = None
    pattern: str | None = None


async def list_all(
    router: Router, wanted: TransactionFilter, deadline: float
) -> list[TransactionListing]:
    """Return the transactions of all brokers that pass."""

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
    call = Call(listing.ListTransactionsRequest, lambda version: _request(version, wanted))
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


def _request(version: int, wanted: TransactionFilter) -> listing.ListTransactionsRequest:
    request = listing.ListTransactionsRequest(
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


async def describe(
    router: Router, transactional_ids: Iterable[str], deadline: float
) -> dict[str, TransactionDescription]:
    """Return what coordinators know of transactional ids; raise what failed."""

    async def send(node_id: int, ids: list[str]) -> dict[str, TransactionDescription | KafkaError]:
        def build(version: int) -> wire.DescribeTransactionsRequest:
            return wire.DescribeTransactionsRequest(transactional_ids=ids)

        call = Call(wire.DescribeTransactionsRequest, build)
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
    start = each.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=each.transactional_id,
        coordinator=node_id,
        state=TransactionState.of(each.transaction_state),
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        timeout_ms=each.transaction_timeout_ms,
        start_ms=start if start >= 0 else None,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in each.topics
            for index in topic.partitions
        ),
    )


async def fence(
    router: Router, transactional_ids: Iterable[str], deadline: float
) -> dict[str, FencedProducer]:
    """Begin a session of each transactional id, and return it; raise what failed."""

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

    async def send(node_id: int, ids: list[str]) -> dict[str, FencedProducer | KafkaError]:
        return {name: await one(node_id, name) for name in ids}

    kind = CoordinationType.TRANSACTION
    return await by_coordinator(router, transactional_ids, send, deadline, kind=kind)


async def check_known(router: Router, transactional_id: str, deadline: float) -> None:
    """Raise TransactionalIdNotFound for an unknown id, unless brokers are too old to tell."""
    try:
        await describe(router, [transactional_id], deadline)
    except UnsupportedVersionError:
        return
