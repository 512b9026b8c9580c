"""StreamsGroupDescribe: there are no streams groups in a fake cluster, and it says so."""

from __future__ import annotations

from aiokafka.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from aiokafka.testing.group_refusals import absent_groups, refused_group
from aiokafka.testing.script import RequestContext

REQUEST = StreamsGroupDescribeRequest


def handle(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Find none of them."""
    return StreamsGroupDescribeResponse(
        groups=absent_groups(DescribedGroup, context, request.group_ids)
    )


def refuse(
    context: RequestContext, request: StreamsGroupDescribeRequest, errno: int
) -> StreamsGroupDescribeResponse:
    """Say no to every group."""
    return StreamsGroupDescribeResponse(
        groups=[refused_group(DescribedGroup, group_id, errno) for group_id in request.group_ids]
    )
