"""Membership in groups of the consumer protocol, in which the broker assigns (KIP-848)."""

from aiokafka.protocol.schema import I16, I32, NStr, Request, Response, Str, Struct, Uuid, field


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[I32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupHeartbeatResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    member_id: NStr = None
    member_epoch: I32
    heartbeat_interval_ms: I32
    assignment: Assignment | None = None


class ConsumerGroupHeartbeatRequest(
    Request[ConsumerGroupHeartbeatResponse], api_key=68, versions="0-1", flexible="0+"
):
    """Join, stay in, or leave a group. Most fields are set only if their value has changed."""

    group_id: Str
    member_id: Str  # chosen by the client (KIP-1082)
    member_epoch: I32  # 0: join, -1: leave, -2: a static member leaves temporarily
    instance_id: NStr = None
    rack_id: NStr = None
    rebalance_timeout_ms: I32 = -1
    subscribed_topic_names: list[Str] | None = None
    subscribed_topic_regex: NStr = field("1+", default=None)
    server_assignor: NStr = None
    topic_partitions: list[TopicPartitions] | None = None
