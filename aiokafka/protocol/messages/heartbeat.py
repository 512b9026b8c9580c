"""Heartbeats of the classic group protocol."""

from aiokafka.protocol.schema import I16, I32, NStr, Request, Response, Str, field


class HeartbeatResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0


class HeartbeatRequest(Request[HeartbeatResponse], api_key=12, versions="0-4", flexible="4+"):
    """Keep the member's session alive; the response reports a rebalance by an error code."""

    group_id: Str
    generation_id: I32
    member_id: Str
    group_instance_id: NStr = field("3+", default=None)  # KIP-345
