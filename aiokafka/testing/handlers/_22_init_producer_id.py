"""InitProducerId: an id for idempotence, or a new session of a transactional id."""

from __future__ import annotations

from aiokafka.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._transacting import in_version
from aiokafka.testing.script import RequestContext
from aiokafka.testing.transactions import TransactionRefusedError

REQUEST = InitProducerIdRequest
_FIRST_FENCED = 4


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a producer id: always a new one without a transactional id, else that of its
    session.
    """
    transactional_id = request.transactional_id
    if transactional_id is None:
        return InitProducerIdResponse(
            throttle_time_ms=0, producer_id=next(context.state.next_producer_id), producer_epoch=0
        )
    if transactional_id == "":
        return refuse(context, request, codes.INVALID_REQUEST)
    transactions = context.services.transactions
    errno = transactions.check_coordinator(context.node_id, transactional_id)
    if errno:
        return refuse(context, request, errno)
    timeout = request.transaction_timeout_ms / 1000
    try:
        producer_id, epoch = transactions.init(
            transactional_id, timeout, request.producer_id, request.producer_epoch
        )
    except TransactionRefusedError as exc:
        return refuse(context, request, in_version(context, exc.errno, _FIRST_FENCED))
    return InitProducerIdResponse(throttle_time_ms=0, producer_id=producer_id, producer_epoch=epoch)


def refuse(
    context: RequestContext, request: InitProducerIdRequest, errno: int
) -> InitProducerIdResponse:
    """Say no."""
    return InitProducerIdResponse(throttle_time_ms=0, error_code=errno, producer_epoch=-1)
