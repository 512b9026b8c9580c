"""StreamsGroupDescribe: there are no streams groups in a fake cluster, and it says so."""

from __future__ import annotations

from aiokafka.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.group_refusals import refused_group
from aiokafka.testing.script import RequestContext

REQUEST = StreamsGroupDescribeRequest


def handle(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Find none of them."""
    check = context.services.groups.check_coordinator
    return StreamsGroupDescribeResponse(
        groups=[
            _refused(group_id, check(context.node_id, group_id) or codes.GROUP_ID_NOT_FOUND)
            for group_id in request.group_ids
        ]
    )


def refuse(
    context: RequestContext, request: StreamsGroupDescribeRequest, errno: int
) -> StreamsGroupDescribeResponse:
    """Say no to every group."""
    return StreamsGroupDescribeResponse(
        groups=[_refused(group_id, errno) for group_id in request.group_ids]
    )


def _refused(group_id: str, errno: int) -> DescribedGroup:
    return refused_group(DescribedGroup, group_id, errno)
