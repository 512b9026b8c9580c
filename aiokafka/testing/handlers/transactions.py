"""Transactions: requests of producers and of admin clients (KIP-98, KIP-664)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiokafka import _clock, errors
from aiokafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicData,
    TransactionState,
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
)
from aiokafka.testing import transactions as coordinator
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.handlers import answer_items, handles, refuse, refuses, require
from aiokafka.testing.handlers._common import grouped, in_version, require_leader
from aiokafka.testing.script import RequestContext
from aiokafka.testing.transactions import Place, TransactionRefusedError

_FIRST_SEVERAL = 4
_FIRST_FENCED_ADDING = 2


@handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add the requested partitions to each transaction. If one partition of a transaction is
    invalid, none of its partitions is added."""
    return _added(
        context, request, [_add_partitions(context, wanted) for wanted in _wanted(context, request)]
    )


@refuses(AddPartitionsToTxnRequest)
def refuse_add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest, errno: int
) -> AddPartitionsToTxnResponse:
    """Return a response with `errno` for every partition."""
    results = [_results(wanted.topics, errno) for wanted in _wanted(context, request)]
    return _added(context, request, results)


def _wanted(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> list[AddPartitionsToTxnTransaction]:
    if context.api_version >= _FIRST_SEVERAL:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _added(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    results: list[list[AddPartitionsToTxnTopicResult]],
) -> AddPartitionsToTxnResponse:
    if context.api_version < _FIRST_SEVERAL:
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0, results_by_topic_v3_and_below=results[0]
        )
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=w.transactional_id, topic_results=result)
            for w, result in zip(request.transactions, results, strict=True)
        ],
    )


def _results(
    topics: list[AddPartitionsToTxnTopic], errno: int, wrong: Mapping[Place, int] | None = None
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=(wrong or {}).get((topic.name, index)) or errno,
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _error_of(context: RequestContext, place: Place) -> int:
    missing = context.state.partition(*place) is None
    return context.check_topic(place[0]) or (missing and errors.UnknownTopicOrPartitionError.errno)


def _add_partitions(
    context: RequestContext, wanted: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    transactions = context.services.transactions
    errno = transactions.check_coordinator(context.node_id, wanted.transactional_id)
    if errno:
        return _results(wanted.topics, errno)
    places = [(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    wrong = {place: _error_of(context, place) for place in places}
    if any(wrong.values()):
        return _results(wanted.topics, errors.OperationNotAttempted.errno, wrong)
    try:
        transactions.add_partitions(
            wanted.transactional_id, wanted.producer_id, wanted.producer_epoch, places
        )
    except TransactionRefusedError as exc:
        return _results(wanted.topics, in_version(context, exc.errno, _FIRST_FENCED_ADDING))
    return _results(wanted.topics, 0)


@handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a group to the transaction. The group's offsets are committed with the transaction."""
    transactions = context.services.transactions
    require(transactions.check_coordinator(context.node_id, request.transactional_id))
    try:
        transactions.add_group(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
        )
    except TransactionRefusedError as exc:
        return refuse(context, request, in_version(context, exc.errno, _FIRST_FENCED_ADDING))
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)


_FIRST_FENCED_ENDING = 2
_FIRST_BUMPING = 5  # first version that bumps the producer's epoch (KIP-890)


@handles(EndTxnRequest)
def end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """End the transaction. With version 5 and `transaction.version` 2, the producer continues with
    the next epoch (KIP-890)."""
    transactions = context.services.transactions
    require(transactions.check_coordinator(context.node_id, request.transactional_id))
    try:
        producer_id, epoch = transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
            bumps_epoch=context.api_version >= _FIRST_BUMPING
            and context.cluster_state.profile.level("transaction.version") >= 2,
        )
    except TransactionRefusedError as exc:
        return refuse(context, request, in_version(context, exc.errno, _FIRST_FENCED_ENDING))
    return EndTxnResponse(throttle_time_ms=0, producer_id=producer_id, producer_epoch=epoch)


@handles(WriteTxnMarkersRequest)
def write_txn_markers(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write each marker to the partitions that this broker leads (KIP-98, KIP-664)."""
    return answer_items(
        request, lambda marker, topic, index: _write(context, marker, topic.name, index)
    )


def _write(context: RequestContext, marker: WritableTxnMarker, topic: str, index: int) -> None:
    log = require_leader(context, topic, index).log
    known = log.producers.entries.get(marker.producer_id)
    if known is not None and marker.producer_epoch < known.epoch:
        raise RefusedError(errors.InvalidProducerEpoch)
    log.add_marker(marker.producer_id, marker.producer_epoch, commit=marker.transaction_result)


@handles(DescribeProducersRequest)
def describe_producers(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """List the active producers of each partition (KIP-664)."""
    return answer_items(
        request, lambda topic, index: _describe_partition(context, topic.name, index)
    )


def _describe_partition(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    producers = require_leader(context, topic, index).log.producers
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=0 if producer_id in producers.open else -1,
                current_txn_start_offset=producers.open.get(producer_id, -1),
            )
            for producer_id, entry in producers.entries.items()
        ],
    )


@handles(DescribeTransactionsRequest)
def describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe the transaction of each transactional id (KIP-664)."""
    return answer_items(request, lambda name: _describe_transaction(context, name))


def _describe_transaction(context: RequestContext, transactional_id: str) -> TransactionState:
    transactions = context.services.transactions
    check_named = context.services.acls.check_named
    require(check_named(context, "transactional_id", transactional_id, "describe"))
    require(transactions.check_coordinator(context.node_id, transactional_id))
    known = transactions.by_id.get(transactional_id)
    if known is None:
        raise RefusedError(errors.TransactionalIdNotFound)
    by_topic = grouped(sorted(known.partitions))
    if known.groups:
        by_topic["__consumer_offsets"] = [0]  # the partition that stores the groups' offsets
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.value,
        transaction_timeout_ms=int(known.timeout * 1000),
        transaction_start_time_ms=known.started_at_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[TopicData(topic=topic, partitions=p) for topic, p in by_topic.items()],
    )


_STATES = {state.value for state in coordinator.TransactionState}


@handles(ListTransactionsRequest)
def list_transactions(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactions of this coordinator that match the filters and that the client may
    describe (KIP-664).
    """
    transactions = context.services.transactions
    check_named = context.services.acls.check_named
    return ListTransactionsResponse(
        throttle_time_ms=0,
        unknown_state_filters=[s for s in request.state_filters if s not in _STATES],
        transaction_states=[
            ListedTransaction(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.value,
            )
            for known in transactions.by_id.values()
            if not transactions.check_coordinator(context.node_id, known.transactional_id)
            and not check_named(context, "transactional_id", known.transactional_id, "describe")
            and _passes(request, known)
        ],
    )


def _passes(request: ListTransactionsRequest, known: coordinator.Transaction) -> bool:
    if request.state_filters and known.state.value not in request.state_filters:
        return False
    if request.producer_id_filters and known.producer_id not in request.producer_id_filters:
        return False
    age = _clock.wall_time() * 1000 - known.started_at_ms
    if request.duration_filter >= 0 and (known.started_at_ms < 0 or age < request.duration_filter):
        return False
    pattern = request.transactional_id_pattern
    return not pattern or re.fullmatch(pattern, known.transactional_id) is not None
