"""DescribeTransactions (KIP-664)."""

from __future__ import annotations

from aiokafka.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = DescribeTransactionsRequest


def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each."""
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[_describe(context, name) for name in request.transactional_ids],
    )


def refuse(
    context: RequestContext, request: DescribeTransactionsRequest, errno: int
) -> DescribeTransactionsResponse:
    """Say no to every id."""
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[_refused(name, errno) for name in request.transactional_ids],
    )


def _refused(transactional_id: str, errno: int) -> TransactionState:
    return TransactionState(
        error_code=errno,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    transactions = context.services.transactions
    check_named = context.services.acls.check_named
    errno = check_named(context, "transactional_id", transactional_id, "describe")
    errno = errno or transactions.check_coordinator(context.node_id, transactional_id)
    known = transactions.by_id.get(transactional_id)
    if errno or known is None:
        return _refused(transactional_id, errno or codes.TRANSACTIONAL_ID_NOT_FOUND)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(known.partitions):
        by_topic.setdefault(topic, []).append(index)
    if known.groups:
        by_topic["__consumer_offsets"] = [0]  # where their positions are
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.value,
        transaction_timeout_ms=int(known.timeout * 1000),
        transaction_start_time_ms=known.started_at_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[TopicData(topic=topic, partitions=p) for topic, p in by_topic.items()],
    )
