"""DescribeConfigs: settings of topics and brokers."""

from __future__ import annotations

from aiokafka.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from aiokafka.testing.configuring import GROUP, LOGGER, METRICS, TOPIC, check_allowed, read_settings
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import BROKER_DEFAULTS, GROUP_DEFAULTS, INHERITED
from aiokafka.testing.state import TopicRefusedError

REQUEST = DescribeConfigsRequest
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
_CHANGED = {TOPIC: _DYNAMIC_TOPIC, LOGGER: 6, METRICS: 7, GROUP: 8}
_BOOLEAN, _STRING, _INT = 1, 2, 3


def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Read all resources."""
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[_describe(context, request, resource) for resource in request.resources],
    )


def refuse(
    context: RequestContext, request: DescribeConfigsRequest, errno: int
) -> DescribeConfigsResponse:
    """Say no to every resource."""
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[_refused(resource, errno, "refused") for resource in request.resources],
    )


def _refused(resource: DescribeConfigsResource, errno: int, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=errno,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        check_allowed(context, kind, name)
        settings, changed = read_settings(context.state, kind, name)
    except TopicRefusedError as exc:
        return _refused(resource, exc.errno, exc.message)
    # Version 0 of the request means "all" by null as the others do; librdkafka sends an empty list.
    wanted = set(resource.configuration_keys or settings)
    changed_source = _CHANGED.get(kind, _STATIC_BROKER)
    return DescribeConfigsResult(
        error_message=None,
        resource_type=kind,
        resource_name=name,
        configs=[
            _entry(
                context,
                request,
                (kind, key),
                value,
                changed_source if key in changed else _source(context, kind, key),
            )
            for key, value in settings.items()
            if key in wanted
        ],
    )


def _source(context: RequestContext, kind: int, name: str) -> int:
    """Return the source of a setting that its resource does not have itself."""
    inherited = INHERITED.get(name) if kind == TOPIC else None
    if kind == GROUP:
        inherited = GROUP_DEFAULTS[name][0]
    if inherited in BROKER_DEFAULTS:
        changed = context.state.config[inherited] != BROKER_DEFAULTS[inherited]
        return _STATIC_BROKER if changed else _DEFAULT
    return _DEFAULT


def _synonyms(kind: int, name: str, value: str, source: int) -> list[DescribeConfigsSynonym]:
    """Return the setting under the names that it has, the one in effect first."""
    if kind != GROUP:
        return [DescribeConfigsSynonym(name=name, value=value, source=source)]
    name, default = GROUP_DEFAULTS[name]
    found = [DescribeConfigsSynonym(name=name, value=default, source=_DEFAULT)]
    if source != _DEFAULT:
        found.insert(0, DescribeConfigsSynonym(name=name, value=value, source=source))
    return found


def _entry(
    context: RequestContext,
    request: DescribeConfigsRequest,
    place: tuple[int, str],
    value: str,
    source: int,
) -> DescribeConfigsResourceResult:
    kind, name = place
    entry = DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=False,
        config_type=_type_of(value),
        documentation=f"What {name} does." if request.include_documentation else None,
    )
    if context.api_version == 0:
        entry.is_default = source == _DEFAULT
    if request.include_synonyms:
        entry.synonyms = _synonyms(kind, name, value, source)
    return entry


def _type_of(value: str) -> int:
    if value in ("true", "false"):
        return _BOOLEAN
    return _INT if value.lstrip("-").isdigit() else _STRING
