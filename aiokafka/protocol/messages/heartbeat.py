"""Staying in a group, classic protocol."""

from aiokafka.protocol.schema import I16, I32, NStr, Request, Response, Str, field


class HeartbeatResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0


class HeartbeatRequest(Request[HeartbeatResponse], api_key=12, versions="0-4", flexible="4+"):
    """Tell the coordinator that the member lives; learn of a rebalance."""

    group_id: Str
    generation_id: I32
    member_id: Str
    group_instance_id: NStr = field("3+", default=None)  # KIP-345
