"""AlterConfigs: replace all settings of a resource."""

from __future__ import annotations

from aiokafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.configuring import LOGGER, alter_resource, say_of
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import TopicRefusedError

REQUEST = AlterConfigsRequest


def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Set all settings of each resource: one that is not named falls back to its default."""
    return AlterConfigsResponse(
        throttle_time_ms=0, responses=[_alter(context, request, r) for r in request.resources]
    )


def refuse(
    context: RequestContext, request: AlterConfigsRequest, errno: int
) -> AlterConfigsResponse:
    """Say no to every resource."""
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            say_of(AlterConfigsResourceResponse, r, errno, "refused") for r in request.resources
        ],
    )


def _alter(
    context: RequestContext, request: AlterConfigsRequest, resource: AlterConfigsResource
) -> AlterConfigsResourceResponse:
    def replace(settings: dict[str, str]) -> None:
        settings.clear()
        for config in resource.configs:
            if config.value is None:
                raise TopicRefusedError(
                    codes.INVALID_REQUEST, f"Null value not supported for {config.name}"
                )
            settings[config.name] = config.value

    kind = AlterConfigsResourceResponse
    if resource.resource_type == LOGGER:
        return say_of(
            kind, resource, codes.INVALID_REQUEST, "Loggers are altered incrementally only"
        )
    return alter_resource(kind, context, resource, replace, validate_only=request.validate_only)
