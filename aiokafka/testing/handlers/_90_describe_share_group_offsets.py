"""DescribeShareGroupOffsets: there are no share groups in a fake cluster, and it says so."""

from __future__ import annotations

from aiokafka.protocol.messages.share_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = DescribeShareGroupOffsetsRequest


def handle(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Find none of them."""
    check = context.services.groups.check_coordinator
    return DescribeShareGroupOffsetsResponse(
        groups=[
            _refused(
                group.group_id, check(context.node_id, group.group_id) or codes.GROUP_ID_NOT_FOUND
            )
            for group in request.groups
        ]
    )


def refuse(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest, errno: int
) -> DescribeShareGroupOffsetsResponse:
    """Say no to every group."""
    return DescribeShareGroupOffsetsResponse(
        groups=[_refused(group.group_id, errno) for group in request.groups]
    )


def _refused(group_id: str, errno: int) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        error_code=errno,
        group_id=group_id,
        topics=[],
    )
