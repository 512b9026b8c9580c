"""ShareGroupDescribe: there are no share groups in a fake cluster, and it says so."""

from __future__ import annotations

from aiokafka.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from aiokafka.testing.group_refusals import absent_groups, refused_group
from aiokafka.testing.script import RequestContext

REQUEST = ShareGroupDescribeRequest


def handle(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Find none of them."""
    return ShareGroupDescribeResponse(
        groups=absent_groups(DescribedGroup, context, request.group_ids, assignor_name="")
    )


def refuse(
    context: RequestContext, request: ShareGroupDescribeRequest, errno: int
) -> ShareGroupDescribeResponse:
    """Say no to every group."""
    return ShareGroupDescribeResponse(
        groups=[
            refused_group(DescribedGroup, group_id, errno, assignor_name="")
            for group_id in request.group_ids
        ]
    )
