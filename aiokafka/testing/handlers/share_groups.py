"""Share groups and streams groups, which a fake cluster does not have: every request finds none."""

from __future__ import annotations

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
from aiokafka.testing import codes
from aiokafka.testing.group_refusals import absent_groups, refused_group
from aiokafka.testing.handlers import handles, refuses
from aiokafka.testing.script import RequestContext

# -- ShareGroupDescribe: there are no share groups in a fake cluster, and it says so


@handles(ShareGroupDescribeRequest)
def share_group_describe(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Find none of them."""
    return ShareGroupDescribeResponse(
        groups=absent_groups(DescribedShareGroup, context, request.group_ids, assignor_name="")
    )


@refuses(ShareGroupDescribeRequest)
def refuse_share_group_describe(
    context: RequestContext, request: ShareGroupDescribeRequest, errno: int
) -> ShareGroupDescribeResponse:
    """Say no to every group."""
    return ShareGroupDescribeResponse(
        groups=[
            refused_group(DescribedShareGroup, group_id, errno, assignor_name="")
            for group_id in request.group_ids
        ]
    )


# -- DescribeShareGroupOffsets: there are no share groups in a fake cluster, and it says so


@handles(DescribeShareGroupOffsetsRequest)
def describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Find none of them."""
    check = context.services.groups.check_coordinator
    return DescribeShareGroupOffsetsResponse(
        groups=[
            _refused_offsets(
                group.group_id, check(context.node_id, group.group_id) or codes.GROUP_ID_NOT_FOUND
            )
            for group in request.groups
        ]
    )


@refuses(DescribeShareGroupOffsetsRequest)
def refuse_describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest, errno: int
) -> DescribeShareGroupOffsetsResponse:
    """Say no to every group."""
    return DescribeShareGroupOffsetsResponse(
        groups=[_refused_offsets(group.group_id, errno) for group in request.groups]
    )


def _refused_offsets(group_id: str, errno: int) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        error_code=errno,
        group_id=group_id,
        topics=[],
    )


# -- AlterShareGroupOffsets: there are no share groups in a fake cluster, and it says so


@handles(AlterShareGroupOffsetsRequest)
def alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Find no such group."""
    errno = context.services.groups.check_coordinator(context.node_id, request.group_id)
    return refuse_alter_share_group_offsets(context, request, errno or codes.GROUP_ID_NOT_FOUND)


@refuses(AlterShareGroupOffsetsRequest)
def refuse_alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest, errno: int
) -> AlterShareGroupOffsetsResponse:
    """Say no to the whole."""
    return AlterShareGroupOffsetsResponse(error_code=errno, responses=[])


# -- DeleteShareGroupOffsets: there are no share groups in a fake cluster, and it says so


@handles(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Find no such group."""
    errno = context.services.groups.check_coordinator(context.node_id, request.group_id)
    return refuse_delete_share_group_offsets(context, request, errno or codes.GROUP_ID_NOT_FOUND)


@refuses(DeleteShareGroupOffsetsRequest)
def refuse_delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest, errno: int
) -> DeleteShareGroupOffsetsResponse:
    """Say no to the whole."""
    return DeleteShareGroupOffsetsResponse(error_code=errno, responses=[])


# -- StreamsGroupDescribe: there are no streams groups in a fake cluster, and it says so


@handles(StreamsGroupDescribeRequest)
def streams_group_describe(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Find none of them."""
    return StreamsGroupDescribeResponse(
        groups=absent_groups(DescribedStreamsGroup, context, request.group_ids)
    )


@refuses(StreamsGroupDescribeRequest)
def refuse_streams_group_describe(
    context: RequestContext, request: StreamsGroupDescribeRequest, errno: int
) -> StreamsGroupDescribeResponse:
    """Say no to every group."""
    return StreamsGroupDescribeResponse(
        groups=[
            refused_group(DescribedStreamsGroup, group_id, errno) for group_id in request.group_ids
        ]
    )
