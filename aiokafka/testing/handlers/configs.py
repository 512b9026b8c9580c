"""Settings of topics, brokers, groups and client metrics: describe, alter, list."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from aiokafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from aiokafka.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from aiokafka.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResponse,
)
from aiokafka.testing.configuring import (
    BROKER,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
    alter_resource,
    check_allowed,
    read_settings,
    say_of,
)
from aiokafka.testing.handlers import handles, refuse
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import (
    BROKER_DEFAULTS,
    GROUP_DEFAULTS,
    INHERITED,
    METRICS_DEFAULTS,
    REPLICA_LISTS,
    TOPIC_DEFAULTS,
)
from aiokafka.testing.state import TopicRefusedError

# -- DescribeConfigs: settings of topics and brokers

_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
_CHANGED = {TOPIC: _DYNAMIC_TOPIC, LOGGER: 6, METRICS: 7, GROUP: 8}
_BOOLEAN, _STRING, _INT = 1, 2, 3


@handles(DescribeConfigsRequest, refusal={"error_message": "refused"})
def describe_configs(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Read all resources."""
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[_describe(context, request, resource) for resource in request.resources],
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


# -- AlterConfigs: replace all settings of a resource


@handles(AlterConfigsRequest, refusal={"error_message": "refused"})
def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Set all settings of each resource: one that is not named falls back to its default."""
    return AlterConfigsResponse(
        throttle_time_ms=0, responses=[_replace(context, request, r) for r in request.resources]
    )


def _replace(
    context: RequestContext, request: AlterConfigsRequest, resource: AlterConfigsResource
) -> AlterConfigsResourceResponse:
    def replace(settings: dict[str, str]) -> None:
        settings.clear()
        for config in resource.configs:
            if config.value is None:
                raise TopicRefusedError(
                    errors.InvalidRequestError.errno, f"Null value not supported for {config.name}"
                )
            settings[config.name] = config.value

    kind = AlterConfigsResourceResponse
    if resource.resource_type == LOGGER:
        return say_of(
            kind,
            resource,
            errors.InvalidRequestError.errno,
            "Loggers are altered incrementally only",
        )
    return alter_resource(kind, context, resource, replace, validate_only=request.validate_only)


# -- IncrementalAlterConfigs: change single settings (KIP-339)

_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_LISTS = ("cleanup.policy", "match", "metric.reporters", "metrics", *REPLICA_LISTS)


@handles(IncrementalAlterConfigsRequest, refusal={"error_message": "refused"})
def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from each."""
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0, responses=[_change(context, request, r) for r in request.resources]
    )


def _change(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    resource: IncrementalResource,
) -> IncrementalResponse:
    def change(settings: dict[str, str]) -> None:
        if len({config.name for config in resource.configs}) < len(resource.configs):
            raise TopicRefusedError(
                errors.InvalidRequestError.errno, "Error due to duplicate config keys"
            )
        for config in resource.configs:
            _apply(settings, config)

    return alter_resource(
        IncrementalResponse,
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
        raise TopicRefusedError(
            errors.InvalidRequestError.errno, f"Null value not supported for {name}"
        )
    if operation == _SET:
        settings[name] = config.value
        return
    if name not in _LISTS:
        raise TopicRefusedError(
            errors.InvalidConfigurationError.errno,
            f"Config value append is not allowed for config key: {name}",
        )
    default = {**METRICS_DEFAULTS, **TOPIC_DEFAULTS, **BROKER_DEFAULTS}[name]
    present = [part for part in settings.get(name, default).split(",") if part]
    named = config.value.split(",")
    if operation == _APPEND:
        result = present + [part for part in named if part not in present]
    else:
        result = [part for part in present if part not in named]
    settings[name] = ",".join(result)


# -- ListConfigResources: what may have settings of its own (KIP-1000, KIP-1142)


@handles(ListConfigResourcesRequest)
def list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Name topics and brokers, and the groups and client metrics that have settings."""
    state = context.state
    brokers = [str(node) for node in state.live_nodes()]
    names: dict[int, list[str]] = {
        TOPIC: [name for name in state.topics if not context.check_topic(name)],
        BROKER: brokers,
        LOGGER: brokers,
        METRICS: [name for kind, name in state.other_configs if kind == METRICS],
        GROUP: [name for kind, name in state.other_configs if kind == GROUP],
    }
    wanted = request.resource_types or list(names)
    if context.api_version == 0:
        wanted = [METRICS]
    if not names.keys() >= set(wanted):
        return refuse(context, request, errors.UnsupportedVersionError.errno)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted
            for name in names[kind]
        ]
    )
