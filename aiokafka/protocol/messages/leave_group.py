"""Leaving a group of the classic protocol."""

from aiokafka.protocol.schema import I16, I32, NStr, Request, Response, Str, Struct, field


class MemberResponse(Struct):
    member_id: Str
    group_instance_id: NStr
    error_code: I16 = 0


class LeaveGroupResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0
    members: list[MemberResponse] = field("3+", default=[])


class MemberIdentity(Struct):
    member_id: Str
    group_instance_id: NStr = None
    reason: NStr = field("5+", default=None, ignorable=True)  # KIP-800


class LeaveGroupRequest(Request[LeaveGroupResponse], api_key=13, versions="0-5", flexible="4+"):
    """Remove one member from a group, or from version 3 on several members (KIP-345)."""

    group_id: Str
    member_id: Str = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=[])
