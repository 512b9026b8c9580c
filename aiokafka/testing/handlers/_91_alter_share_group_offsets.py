"""AlterShareGroupOffsets: there are no share groups in a fake cluster, and it says so."""

from __future__ import annotations

from aiokafka.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = AlterShareGroupOffsetsRequest


def handle(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Find no such group."""
    errno = context.services.groups.check_coordinator(context.node_id, request.group_id)
    return refuse(context, request, errno or codes.GROUP_ID_NOT_FOUND)


def refuse(
    context: RequestContext, request: AlterShareGroupOffsetsRequest, errno: int
) -> AlterShareGroupOffsetsResponse:
    """Say no to the whole."""
    return AlterShareGroupOffsetsResponse(error_code=errno, responses=[])
