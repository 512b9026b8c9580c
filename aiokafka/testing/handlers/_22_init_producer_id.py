"""InitProducerId: an id for idempotence, or a new session of a transactional id."""

from __future__ import annotations

from aiokafka.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = InitProducerIdRequest


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Without a transactional id: a new producer id, always."""
    if request.transactional_id == "":
        return refuse(context, request, codes.INVALID_REQUEST)
    if request.transactional_id is not None:
        return refuse(context, request, codes.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(
        throttle_time_ms=0, producer_id=next(context.state.next_producer_id), producer_epoch=0
    )


def refuse(
    context: RequestContext, request: InitProducerIdRequest, errno: int
) -> InitProducerIdResponse:
    """Say no."""
    return InitProducerIdResponse(throttle_time_ms=0, error_code=errno, producer_epoch=-1)
