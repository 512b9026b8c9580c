"""Messages for the API versions of a broker, and for finding brokers, leaders and coordinators."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    I64,
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


class ApiVersion(Struct):
    api_key: I16
    min_version: I16
    max_version: I16


class SupportedFeatureKey(Struct):
    name: Str
    min_version: I16
    max_version: I16


class FinalizedFeatureKey(Struct):
    name: Str
    max_version_level: I16
    min_version_level: I16


class ApiVersionsResponse(Response):
    error_code: I16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    # KIP-584
    supported_features: list[SupportedFeatureKey] = field("3+", default=[], tag=0, ignorable=True)
    finalized_features_epoch: I64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", default=[], tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", default=False, tag=3, ignorable=True)  # KIP-866


class ApiVersionsRequest(Request[ApiVersionsResponse], api_key=18, versions="0-5", flexible="3+"):
    """Request the versions that the broker supports, and send the client's name and version
    (KIP-511). Since version 5, the broker checks the cluster id and node id (KIP-1242)."""

    client_software_name: Str = field("3+", default="", ignorable=True)
    client_software_version: Str = field("3+", default="", ignorable=True)
    cluster_id: NStr = field("5+", default=None, ignorable=True)
    node_id: I32 = field("5+", default=-1, ignorable=True)


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


class Coordinator(Struct):
    key: Str
    node_id: I32
    host: Str
    port: I32
    error_code: I16 = 0
    error_message: NStr


class FindCoordinatorResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = field("0-3", default=0)
    error_message: NStr = field("1-3", default="", ignorable=True)
    node_id: I32 = field("0-3", default=0)
    host: Str = field("0-3", default="")
    port: I32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=[])


class FindCoordinatorRequest(
    Request[FindCoordinatorResponse], api_key=10, versions="0-6", flexible="3+"
):
    """Find the coordinator of one key, or from version 4 on of several keys (KIP-699)."""

    key: Str = field("0-3", default="")
    key_type: I8 = field("1+", default=0)  # 0 group, 1 transaction, 2 share group
    coordinator_keys: list[Str] = field("4+", default=[])
