"""AddOffsetsToTxn: enter the offsets of a group into a transaction."""

from __future__ import annotations

from aiokafka.protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokafka.testing import codes
from aiokafka.testing.handlers._transacting import in_version
from aiokafka.testing.script import RequestContext
from aiokafka.testing.transactions import TransactionRefusedError

REQUEST = AddOffsetsToTxnRequest
_FIRST_FENCED = 2


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add a group, whose positions count when the transaction commits."""
    transactions = context.services.transactions
    errno = transactions.check_coordinator(context.node_id, request.transactional_id)
    if errno:
        return refuse(context, request, errno)
    try:
        transactions.add_group(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
        )
    except TransactionRefusedError as exc:
        return refuse(context, request, in_version(context, exc.errno, _FIRST_FENCED))
    return refuse(context, request, codes.NONE)


def refuse(
    context: RequestContext, request: AddOffsetsToTxnRequest, errno: int
) -> AddOffsetsToTxnResponse:
    """Say no, or with 0 say yes."""
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=errno)
