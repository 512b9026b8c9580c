"""Membership in share groups (KIP-932)."""

from aiokafka.protocol.schema import I16, I32, NStr, Request, Response, Str, Struct, Uuid


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[I32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ShareGroupHeartbeatResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    member_id: NStr = None
    member_epoch: I32
    heartbeat_interval_ms: I32
    assignment: Assignment | None = None


class ShareGroupHeartbeatRequest(
    Request[ShareGroupHeartbeatResponse], api_key=76, versions="1", flexible="0+"
):
    """Join, stay in, or leave a share group."""

    group_id: Str
    member_id: Str
    member_epoch: I32
    rack_id: NStr = None
    subscribed_topic_names: list[Str] | None = None
