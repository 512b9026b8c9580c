"""Messages for the cluster as a whole: brokers and features."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    Bool,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    field,
)


class DescribeClusterBroker(Struct):
    broker_id: I32
    host: Str
    port: I32
    rack: NStr = None
    is_fenced: Bool = field("2+", default=False)


class DescribeClusterResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    endpoint_type: I8 = field("1+", default=1)
    cluster_id: Str
    controller_id: I32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: I32 = -2147483648


class DescribeClusterRequest(
    Request[DescribeClusterResponse], api_key=60, versions="0-2", flexible="0+"
):
    """Describe the cluster: its id, controller and brokers (KIP-700)."""

    include_cluster_authorized_operations: Bool
    endpoint_type: I8 = field("1+", default=1)  # 1 brokers, 2 controllers (KIP-919)
    include_fenced_brokers: Bool = field("2+", default=False)  # KIP-1073


class UnregisterBrokerResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr


class UnregisterBrokerRequest(
    Request[UnregisterBrokerResponse], api_key=64, versions="0", flexible="0+"
):
    """Remove the registration of a stopped broker from the cluster (KIP-631)."""

    broker_id: I32


class UnregisterControllerResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr


class UnregisterControllerRequest(
    Request[UnregisterControllerResponse], api_key=94, versions="0", flexible="0+"
):
    """Remove the registration of a stopped controller from the cluster (Kafka 4.4)."""

    controller_id: I32


class UpdatableFeatureResult(Struct):
    feature: Str
    error_code: I16 = 0
    error_message: NStr


class UpdateFeaturesResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr
    results: list[UpdatableFeatureResult] = field("0-1", default=[], ignorable=True)


class FeatureUpdateKey(Struct):
    feature: Str
    max_version_level: I16
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: I8 = field("1+", default=1)  # 1 upgrade, 2 safe, 3 unsafe downgrade


class UpdateFeaturesRequest(
    Request[UpdateFeaturesResponse], api_key=57, versions="0-2", flexible="0+"
):
    """Raise or lower the level of features (KIP-584)."""

    timeout_ms: I32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field("1+", default=False)
