"""ListTransactions (KIP-664)."""

from __future__ import annotations

import re

from aiokafka import _seams
from aiokafka.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from aiokafka.testing import transactions as coordinator
from aiokafka.testing.script import RequestContext

REQUEST = ListTransactionsRequest
_STATES = {state.value for state in coordinator.TransactionState}


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactions of this coordinator that the client may know of and that pass the
    filters.
    """
    transactions = context.services.transactions
    check_named = context.services.acls.check_named
    return ListTransactionsResponse(
        throttle_time_ms=0,
        unknown_state_filters=[s for s in request.state_filters if s not in _STATES],
        transaction_states=[
            TransactionState(
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


def refuse(
    context: RequestContext, request: ListTransactionsRequest, errno: int
) -> ListTransactionsResponse:
    """Say no."""
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=errno, unknown_state_filters=[], transaction_states=[]
    )


def _passes(request: ListTransactionsRequest, known: coordinator.Transaction) -> bool:
    if request.state_filters and known.state.value not in request.state_filters:
        return False
    if request.producer_id_filters and known.producer_id not in request.producer_id_filters:
        return False
    age = _seams.wall_time() * 1000 - known.started_at_ms
    if request.duration_filter >= 0 and (known.started_at_ms < 0 or age < request.duration_filter):
        return False
    pattern = request.transactional_id_pattern
    return not pattern or re.fullmatch(pattern, known.transactional_id) is not None
