"""Messages for the configuration of topics, brokers and other resources."""

from aiokafka.protocol.schema import I8, I16, I32, Bool, NStr, Request, Response, Str, Struct, field


class DescribeConfigsSynonym(Struct):
    name: Str
    value: NStr
    source: I8


class DescribeConfigsResourceResult(Struct):
    name: Str
    value: NStr
    read_only: Bool
    is_default: Bool = field("0", default=False)
    config_source: I8 = field("1+", default=-1, ignorable=True)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym] = field("1+", default=[], ignorable=True)  # KIP-226
    config_type: I8 = field("3+", default=0, ignorable=True)
    documentation: NStr = field("3+", default="", ignorable=True)  # KIP-569


class DescribeConfigsResult(Struct):
    error_code: I16 = 0
    error_message: NStr
    resource_type: I8
    resource_name: Str
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Response):
    throttle_time_ms: I32 = 0
    results: list[DescribeConfigsResult]


class DescribeConfigsResource(Struct):
    resource_type: I8
    resource_name: Str
    configuration_keys: list[Str] | None


class DescribeConfigsRequest(
    Request[DescribeConfigsResponse], api_key=32, versions="0-4", flexible="4+"
):
    """Describe the configuration of resources (KIP-133)."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


class AlterConfigsResourceResponse(Struct):
    error_code: I16 = 0
    error_message: NStr
    resource_type: I8
    resource_name: Str


class AlterConfigsResponse(Response):
    throttle_time_ms: I32 = 0
    responses: list[AlterConfigsResourceResponse]


class AlterableConfig(Struct):
    name: Str
    value: NStr


class AlterConfigsResource(Struct):
    resource_type: I8
    resource_name: Str
    configs: list[AlterableConfig]


class AlterConfigsRequest(Request[AlterConfigsResponse], api_key=33, versions="0-2", flexible="2+"):
    """Replace the configuration of resources: all other settings get their defaults."""

    resources: list[AlterConfigsResource]
    validate_only: Bool


class ConfigResource(Struct):
    resource_name: Str
    resource_type: I8 = field("1+", default=16, ignorable=True)  # 16: client metrics


class ListConfigResourcesResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    config_resources: list[ConfigResource]


class ListConfigResourcesRequest(
    Request[ListConfigResourcesResponse], api_key=74, versions="0-1", flexible="0+"
):
    """List resources that have a configuration; in version 0 client metrics only (KIP-1142)."""

    resource_types: list[I8] = field("1+", default=[])


class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: I32 = 0
    responses: list[AlterConfigsResourceResponse]


class IncrementalAlterableConfig(Struct):
    name: Str
    config_operation: I8  # 0 set, 1 delete, 2 append, 3 subtract
    value: NStr


class IncrementalAlterConfigsResource(Struct):
    resource_type: I8
    resource_name: Str
    configs: list[IncrementalAlterableConfig]


class IncrementalAlterConfigsRequest(
    Request[IncrementalAlterConfigsResponse], api_key=44, versions="0-1", flexible="1+"
):
    """Change single settings (KIP-339)."""

    resources: list[IncrementalAlterConfigsResource]
    validate_only: Bool
