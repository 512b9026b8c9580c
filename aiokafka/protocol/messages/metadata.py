"""Messages for metadata: brokers, topics, partitions and leaders."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    ZERO_UUID,
    Bool,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class MetadataResponseBroker(Struct):
    node_id: I32
    host: Str
    port: I32
    rack: NStr = field("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: I16 = 0
    partition_index: I32
    leader_id: I32
    leader_epoch: I32 = field("7+", default=-1, ignorable=True)  # KIP-320
    replica_nodes: list[I32]
    isr_nodes: list[I32]
    offline_replicas: list[I32] = field("5+", default=[], ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: I16 = 0
    name: NStr = field(nullable="12+")
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)  # KIP-516
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: I32 = field("8+", default=-2147483648)  # KIP-430


class MetadataResponse(Response):
    throttle_time_ms: I32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: NStr = field("2+", default=None, ignorable=True)
    controller_id: I32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: I32 = field("8-10", default=-2147483648)  # KIP-430
    error_code: I16 = field("13+", default=0, ignorable=True)  # KIP-1102


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: NStr = field(nullable="10+")


class MetadataRequest(Request[MetadataResponse], api_key=3, versions="0-13", flexible="9+"):
    """Request the brokers, and the partitions and leaders of topics.

    None for `topics` requests all topics, an empty list no topics. In version 0 an empty list
    requests all topics.
    """

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)
