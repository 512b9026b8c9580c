"""Subscriptions and assignments in consumer groups of the classic protocol."""

from aiokafka.protocol.schema import I32, Message, NBytes, NStr, Str, Struct, field


class TopicPartition(Struct):
    topic: Str
    partitions: list[I32]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The subscription and owned partitions of a member: the payload of its JoinGroup request."""

    topics: list[Str]
    user_data: NBytes = None
    owned_partitions: list[TopicPartition] = field("1+", default=[], ignorable=True)
    generation_id: I32 = field("2+", default=-1, ignorable=True)
    rack_id: NStr = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The assignment of a member: the payload of a SyncGroup response."""

    assigned_partitions: list[TopicPartition]
    user_data: NBytes = None
