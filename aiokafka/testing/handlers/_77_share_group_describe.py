"""ShareGroupDescribe: there are no share groups in a fake cluster, and it says so."""

from __future__ import annotations

from aiokafka.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.group_refusals import refused_group
from aiokafka.testing.script import RequestContext

REQUEST = ShareGroupDescribeRequest


def handle(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Find none of them."""
    check = context.services.groups.check_coordinator
    return ShareGroupDescribeResponse(
        groups=[
            _refused(group_id, check(context.node_id, group_id) or codes.GROUP_ID_NOT_FOUND)
            for group_id in request.group_ids
        ]
    )


def refuse(
    context: RequestContext, request: ShareGroupDescribeRequest, errno: int
) -> ShareGroupDescribeResponse:
    """Say no to every group."""
    return ShareGroupDescribeResponse(
        groups=[_refused(group_id, errno) for group_id in request.group_ids]
    )


def _refused(group_id: str, errno: int) -> DescribedGroup:
    return refused_group(DescribedGroup, group_id, errno, assignor_name="")
