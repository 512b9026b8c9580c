"""DeleteShareGroupOffsets: there are no share groups in a fake cluster, and it says so."""

from __future__ import annotations

from aiokafka.protocol.messages.share_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = DeleteShareGroupOffsetsRequest


def handle(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Find no such group."""
    errno = context.services.groups.check_coordinator(context.node_id, request.group_id)
    return refuse(context, request, errno or codes.GROUP_ID_NOT_FOUND)


def refuse(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest, errno: int
) -> DeleteShareGroupOffsetsResponse:
    """Say no to the whole."""
    return DeleteShareGroupOffsetsResponse(error_code=errno, responses=[])
