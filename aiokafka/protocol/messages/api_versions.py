"""API versions and features of a broker."""

from aiokafka.protocol.schema import I16, I32, I64, Bool, Request, Response, Str, Struct, field


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


class ApiVersionsRequest(Request[ApiVersionsResponse], api_key=18, versions="0-4", flexible="3+"):
    """Request the versions that the broker supports, and send the client's name and version
    (KIP-511)."""

    client_software_name: Str = field("3+", default="", ignorable=True)
    client_software_version: Str = field("3+", default="", ignorable=True)
