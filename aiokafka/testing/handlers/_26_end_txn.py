"""EndTxn: commit or abort a transaction."""

from __future__ import annotations

from aiokafka.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from aiokafka.testing.handlers._transacting import in_version
from aiokafka.testing.script import RequestContext
from aiokafka.testing.transactions import TransactionRefusedError

REQUEST = EndTxnRequest
_FIRST_FENCED = 2
_FIRST_BUMPING = 5  # KIP-890


def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Write the markers; from v5 on the producer goes on under the next epoch."""
    transactions = context.services.transactions
    errno = transactions.check_coordinator(context.node_id, request.transactional_id)
    if errno:
        return refuse(context, request, errno)
    try:
        producer_id, epoch = transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
            bumps_epoch=context.api_version >= _FIRST_BUMPING
            and context.truth.profile.level("transaction.version") >= 2,
        )
    except TransactionRefusedError as exc:
        return refuse(context, request, in_version(context, exc.errno, _FIRST_FENCED))
    return EndTxnResponse(throttle_time_ms=0, producer_id=producer_id, producer_epoch=epoch)


def refuse(context: RequestContext, request: EndTxnRequest, errno: int) -> EndTxnResponse:
    """Say no."""
    return EndTxnResponse(throttle_time_ms=0, error_code=errno)
