"""Share groups and streams groups. A fake cluster has none: each request gets an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from aiokafka import errors
from aiokafka.protocol.messages.share_group_describe import DescribedGroup as DescribedShareGroup
from aiokafka.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from aiokafka.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from aiokafka.protocol.messages.streams_group_describe import (
    DescribedGroup as DescribedStreamsGroup,
)
from aiokafka.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from aiokafka.testing.handlers import handles, refuse, refuses, require
from aiokafka.testing.handlers._common import refused_group
from aiokafka.testing.script import RequestContext

G = TypeVar("G")


def _absent_groups(
    kind: Callable[..., G], context: RequestContext, group_ids: Iterable[str], **others: Any
) -> list[G]:
    """Return described groups with GROUP_ID_NOT_FOUND, or with NOT_COORDINATOR where another broker
    coordinates the group. The arguments are those of `refused_group`.
    """
    check = context.services.groups.check_coordinator
    return [
        refused_group(
            kind, each, check(context.node_id, each) or errors.GroupIdNotFound.errno, **others
        )
        for each in group_ids
    ]


@handles(ShareGroupDescribeRequest)
def share_group_describe(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Return GROUP_ID_NOT_FOUND for each group, or the error of the coordinator check."""
    return ShareGroupDescribeResponse(
        groups=_absent_groups(DescribedShareGroup, context, request.group_ids, assignor_name="")
    )


@handles(DescribeShareGroupOffsetsRequest)
def describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Return GROUP_ID_NOT_FOUND for each group, or the error of the coordinator check."""
    check = context.services.groups.check_coordinator
    return DescribeShareGroupOffsetsResponse(
        groups=[
            _refused_offsets(
                group.group_id,
                check(context.node_id, group.group_id) or errors.GroupIdNotFound.errno,
            )
            for group in request.groups
        ]
    )


@refuses(DescribeShareGroupOffsetsRequest)
def refuse_describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest, errno: int
) -> DescribeShareGroupOffsetsResponse:
    """Return a response with `errno` for every group."""
    return DescribeShareGroupOffsetsResponse(
        groups=[_refused_offsets(group.group_id, errno) for group in request.groups]
    )


def _refused_offsets(group_id: str, errno: int) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(error_code=errno, group_id=group_id, topics=[])


@handles(AlterShareGroupOffsetsRequest)
def alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Return GROUP_ID_NOT_FOUND, or the error of the coordinator check."""
    require(context.services.groups.check_coordinator(context.node_id, request.group_id))
    return refuse(context, request, errors.GroupIdNotFound.errno)


@handles(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Return GROUP_ID_NOT_FOUND, or the error of the coordinator check."""
    require(context.services.groups.check_coordinator(context.node_id, request.group_id))
    return refuse(context, request, errors.GroupIdNotFound.errno)


@handles(StreamsGroupDescribeRequest)
def streams_group_describe(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Return GROUP_ID_NOT_FOUND for each group, or the error of the coordinator check."""
    return StreamsGroupDescribeResponse(
        groups=_absent_groups(DescribedStreamsGroup, context, request.group_ids)
    )
