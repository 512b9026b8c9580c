"""AlterConfigs: replace all settings of a resource."""

from __future__ import annotations

from aiokafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.configuring import LOGGER, change_settings, check_allowed
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
        throttle_time_ms=0, responses=[_answer(r, errno, "refused") for r in request.resources]
    )


def _answer(
    resource: AlterConfigsResource, errno: int = 0, message: str | None = None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=errno,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
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

    try:
        if resource.resource_type == LOGGER:
            raise TopicRefusedError(codes.INVALID_REQUEST, "Loggers are altered incrementally only")
        check_allowed(context, resource.resource_type, resource.resource_name)
        change_settings(
            context.truth,
            resource.resource_type,
            resource.resource_name,
            replace,
            validate_only=request.validate_only,
        )
    except TopicRefusedError as exc:
        return _answer(resource, exc.errno, exc.message)
    return _answer(resource)
