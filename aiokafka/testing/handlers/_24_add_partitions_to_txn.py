"""AddPartitionsToTxn: enter partitions into a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._transacting import in_version
from aiokafka.testing.script import RequestContext
from aiokafka.testing.transactions import Place, TransactionRefusedError

REQUEST = AddPartitionsToTxnRequest
_FIRST_SEVERAL = 4
_FIRST_FENCED = 2
_OPERATION_NOT_ATTEMPTED = 55


def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add all partitions of each transaction, or none."""
    return _response(
        context, request, [_add(context, wanted) for wanted in _wanted(context, request)]
    )


def refuse(
    context: RequestContext, request: AddPartitionsToTxnRequest, errno: int
) -> AddPartitionsToTxnResponse:
    """Say no to every partition."""
    results = [_results(wanted.topics, errno) for wanted in _wanted(context, request)]
    return _response(context, request, results)


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


def _response(
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
    return context.check_topic(place[0]) or (missing and codes.UNKNOWN_TOPIC_OR_PARTITION)


def _add(
    context: RequestContext, wanted: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    transactions = context.services.transactions
    errno = transactions.check_coordinator(context.node_id, wanted.transactional_id)
    if errno:
        return _results(wanted.topics, errno)
    places = [(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    wrong = {place: _error_of(context, place) for place in places}
    if any(wrong.values()):
        return _results(wanted.topics, _OPERATION_NOT_ATTEMPTED, wrong)
    try:
        transactions.add_partitions(
            wanted.transactional_id, wanted.producer_id, wanted.producer_epoch, places
        )
    except TransactionRefusedError as exc:
        return _results(wanted.topics, in_version(context, exc.errno, _FIRST_FENCED))
    return _results(wanted.topics, codes.NONE)
