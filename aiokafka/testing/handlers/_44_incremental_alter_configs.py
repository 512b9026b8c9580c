"""IncrementalAlterConfigs: change single settings (KIP-339)."""

from __future__ import annotations

from aiokafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.configuring import alter_resource, say_of
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import (
    BROKER_DEFAULTS,
    METRICS_DEFAULTS,
    REPLICA_LISTS,
    TOPIC_DEFAULTS,
)
from aiokafka.testing.state import TopicRefusedError

REQUEST = IncrementalAlterConfigsRequest
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_LISTS = ("cleanup.policy", "match", "metric.reporters", "metrics", *REPLICA_LISTS)


def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from each."""
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0, responses=[_alter(context, request, r) for r in request.resources]
    )


def refuse(
    context: RequestContext, request: IncrementalAlterConfigsRequest, errno: int
) -> IncrementalAlterConfigsResponse:
    """Say no to every resource."""
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            say_of(AlterConfigsResourceResponse, r, errno, "refused") for r in request.resources
        ],
    )


def _alter(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    resource: AlterConfigsResource,
) -> AlterConfigsResourceResponse:
    def change(settings: dict[str, str]) -> None:
        if len({config.name for config in resource.configs}) < len(resource.configs):
            raise TopicRefusedError(codes.INVALID_REQUEST, "Error due to duplicate config keys")
        for config in resource.configs:
            _apply(settings, config)

    return alter_resource(
        AlterConfigsResourceResponse,
        context,
        resource,
        change,
        validate_only=request.validate_only,
    )


def _apply(settings: dict[str, str], config: AlterableConfig) -> None:
    name, operation = config.name, config.config_operation
    if operation == _DELETE:
        settings.pop(name, None)
        return
    if config.value is None:
        raise TopicRefusedError(codes.INVALID_REQUEST, f"Null value not supported for {name}")
    if operation == _SET:
        settings[name] = config.value
        return
    if name not in _LISTS:
        raise TopicRefusedError(
            codes.INVALID_CONFIG, f"Config value append is not allowed for config key: {name}"
        )
    default = {**METRICS_DEFAULTS, **TOPIC_DEFAULTS, **BROKER_DEFAULTS}[name]
    present = [part for part in settings.get(name, default).split(",") if part]
    named = config.value.split(",")
    if operation == _APPEND:
        result = present + [part for part in named if part not in present]
    else:
        result = [part for part in present if part not in named]
    settings[name] = ",".join(result)
