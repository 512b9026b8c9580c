"""Messages for changing single settings of topics, brokers and other resources."""

from aiokafka.protocol.schema import I8, I16, I32, Bool, NStr, Request, Response, Str, Struct


class AlterConfigsResourceResponse(Struct):
    error_code: I16 = 0
    error_message: NStr
    resource_type: I8
    resource_name: Str


class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: I32 = 0
    responses: list[AlterConfigsResourceResponse]


class AlterableConfig(Struct):
    name: Str
    config_operation: I8  # 0 set, 1 delete, 2 append, 3 subtract
    value: NStr


class AlterConfigsResource(Struct):
    resource_type: I8
    resource_name: Str
    configs: list[AlterableConfig]


class IncrementalAlterConfigsRequest(
    Request[IncrementalAlterConfigsResponse], api_key=44, versions="0-1", flexible="1+"
):
    """Change single settings (KIP-339)."""

    resources: list[AlterConfigsResource]
    validate_only: Bool
