"""Requests that describe, alter and list the settings of topics, brokers and other resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import errors
from aiokafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from aiokafka.testing.handlers import answer_items, handles, refuse
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import (
    BROKER_DEFAULTS,
    GROUP_DEFAULTS,
    GROUP_RESOURCE,
    INHERITED,
    LOG_LEVELS,
    LOGGER_DEFAULTS,
    METRICS_DEFAULTS,
    REPLICA_LISTS,
    TOPIC_DEFAULTS,
    broker_settings,
    invalid_broker_setting,
    invalid_group_setting,
    invalid_topic_setting,
    topic_settings,
)
from aiokafka.testing.state import ClusterState, TopicRefusedError

# -- Reading and changing the settings of topics and brokers


TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, GROUP_RESOURCE
_DESCRIBE = 32
_FIRST_WITH_GROUPS = (4, 3)  # first release whose fake brokers have settings of groups
_FIRST_WITH_METRICS = (3, 7)
_FIRST_WITH_LOGGERS = (2, 4)

Changes = Mapping[str, "str | None"]


def _check_allowed(context: RequestContext, kind: int, name: str) -> None:
    """Raise TopicRefusedError if the client may not read or change the settings of a resource."""
    acls = context.services.acls
    if acls.is_idle:
        return
    operation = "describe_configs" if context.api_key == _DESCRIBE else "alter_configs"
    if kind == TOPIC:
        errno = context.check_topic(name)
    elif kind == GROUP:
        errno = acls.check_named(context, "group", name, operation)
    else:
        errno = acls.check_named(context, "cluster", "", operation)
    if errno:
        raise TopicRefusedError(errno, "not allowed")


def _read_settings(state: ClusterState, kind: int, name: str) -> tuple[dict[str, str], set[str]]:
    """Return all settings of a resource, and the names of the settings that are not defaults.

    Raises:
        TopicRefusedError: there is no such resource.
    """
    if kind == TOPIC:
        topic = state.topics.get(name)
        if topic is None:
            raise TopicRefusedError(
                errors.UnknownTopicOrPartitionError, f"The topic '{name}' does not exist."
            )
        return {key: topic.setting(key) for key in TOPIC_DEFAULTS}, set(topic.config)
    if kind == BROKER:
        _check_broker(state, name)
        changed = {k for k, v in state.config.items() if v != BROKER_DEFAULTS[k]}
        if not name:  # for the cluster-wide defaults, return the changed settings only
            return {key: state.config[key] for key in sorted(changed)}, changed
        return dict(state.config), changed
    if kind == GROUP and state.profile.release >= _FIRST_WITH_GROUPS:
        if not name:
            raise TopicRefusedError(
                errors.InvalidRequestError, "Default group resources not allowed"
            )
        own = {key: state.config.get(of, value) for key, (of, value) in GROUP_DEFAULTS.items()}
        changed_here = state.other_configs.get((kind, name), {})
        return own | changed_here, set(changed_here)
    if kind == METRICS and state.profile.release >= _FIRST_WITH_METRICS:
        found = state.other_configs.get((kind, name), {})
        return ({**METRICS_DEFAULTS, **found} if found else {}), set(found)
    if kind == LOGGER and state.profile.release >= _FIRST_WITH_LOGGERS:
        _check_broker(state, name or "none")
        levels = {**LOGGER_DEFAULTS, **state.other_configs.get((kind, name), {})}
        return levels, set(levels)
    raise TopicRefusedError(errors.InvalidRequestError, f"Unsupported resource type {kind}")


def _change_settings(
    state: ClusterState,
    kind: int,
    name: str,
    change: Callable[[dict[str, str]], None],
    *,
    validate_only: bool,
) -> None:
    """Apply `change` to the settings of a resource that are not defaults. Check the result, and
    store it unless `validate_only`.

    Raises:
        TopicRefusedError: no such resource, or invalid settings.
    """
    _read_settings(state, kind, name)
    if kind not in (TOPIC, BROKER):
        _change_other(state, kind, name, change, validate_only)
        return
    if kind == BROKER:
        settings = {k: v for k, v in state.config.items() if v != BROKER_DEFAULTS[k]}
        change(settings)
        unknown = set(settings) - set(BROKER_DEFAULTS)
        if unknown:
            raise TopicRefusedError(
                errors.InvalidConfigurationError, f"Unknown broker settings {unknown}"
            )
        problem = invalid_broker_setting(settings)
        if problem is not None:
            raise TopicRefusedError(errors.InvalidRequestError, problem)
        if not validate_only:
            # Update the dict in place, because topics have a reference to it.
            state.config.update({**BROKER_DEFAULTS, **broker_settings(settings)})
        return
    topic = state.topics[name]
    settings = dict(topic.config)
    change(settings)
    problem = invalid_topic_setting(settings, state.profile.release)
    if problem is not None:
        raise TopicRefusedError(errors.InvalidConfigurationError, problem)
    if not validate_only:
        topic.config = topic_settings(settings)


def _alter_resource(
    context: RequestContext,
    resource: Any,
    change: Callable[[dict[str, str]], None],
    *,
    validate_only: bool,
) -> None:
    """Apply `change` to the settings of a resource. Raises TopicRefusedError if the client lacks
    the permission, if the resource does not exist, and for invalid settings."""
    kind, name = resource.resource_type, resource.resource_name
    _check_allowed(context, kind, name)
    _change_settings(context.cluster_state, kind, name, change, validate_only=validate_only)


def _change_other(
    state: ClusterState,
    kind: int,
    name: str,
    change: Callable[[dict[str, str]], None],
    validate_only: bool,
) -> None:
    """Apply `change` to the settings of a group, of client metrics or of a broker's loggers. Raises
    TopicRefusedError for invalid settings.
    """
    settings = dict(state.other_configs.get((kind, name), {}))
    change(settings)
    known: Mapping[str, object] = METRICS_DEFAULTS if kind == METRICS else LOGGER_DEFAULTS
    for key, value in settings.items():
        if kind == GROUP:
            problem = invalid_group_setting(key, value)
            if problem is not None:
                raise TopicRefusedError(errors.InvalidConfigurationError, problem)
            continue
        if key not in known:
            raise TopicRefusedError(
                errors.InvalidRequestError.errno
                if kind == METRICS
                else errors.InvalidConfigurationError.errno,
                f"Unknown config name: {key}",
            )
        if kind == LOGGER and value not in LOG_LEVELS:
            raise TopicRefusedError(errors.InvalidConfigurationError, f"{value} is not a log level")
    if not validate_only:
        state.other_configs[kind, name] = settings
        if not settings:
            del state.other_configs[kind, name]


def _check_broker(state: ClusterState, name: str) -> None:
    """Raise TopicRefusedError for an unknown broker. An empty name means the cluster defaults."""
    if name and (not name.isdigit() or int(name) not in state.nodes):
        raise TopicRefusedError(errors.InvalidRequestError, f"Unexpected broker id {name}")


_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
_CHANGED = {TOPIC: _DYNAMIC_TOPIC, LOGGER: 6, METRICS: 7, GROUP: 8}
_BOOLEAN, _STRING, _INT = 1, 2, 3


@handles(DescribeConfigsRequest, refusal={"error_message": "refused"})
def describe_configs(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Return the requested settings of each resource."""
    return answer_items(request, lambda resource: _describe(context, request, resource))


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    _check_allowed(context, kind, name)
    settings, changed = _read_settings(context.state, kind, name)
    # Null means all settings; so does an empty list, as in Apache Kafka.
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
    """Return Kafka's ConfigSource code of a setting that the resource itself does not set. The
    value comes from a changed broker setting, or is a default."""
    inherited = INHERITED.get(name) if kind == TOPIC else None
    if kind == GROUP:
        inherited = GROUP_DEFAULTS[name][0]
    if inherited in BROKER_DEFAULTS:
        changed = context.state.config[inherited] != BROKER_DEFAULTS[inherited]
        return _STATIC_BROKER if changed else _DEFAULT
    return _DEFAULT


def _synonyms(kind: int, name: str, value: str, source: int) -> list[DescribeConfigsSynonym]:
    """Return the synonyms of a setting, as in a DescribeConfigs response; the first one is in
    effect. The synonyms of a group setting have the name of the broker setting that is its
    default."""
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


@handles(AlterConfigsRequest, refusal={"error_message": "refused"})
def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace all settings of each resource. Settings that the request omits get their defaults."""
    return answer_items(request, lambda resource: _replace(context, request, resource))


def _replace(
    context: RequestContext, request: AlterConfigsRequest, resource: AlterConfigsResource
) -> None:
    def replace(settings: dict[str, str]) -> None:
        settings.clear()
        for config in resource.configs:
            if config.value is None:
                raise TopicRefusedError(
                    errors.InvalidRequestError, f"Null value not supported for {config.name}"
                )
            settings[config.name] = config.value

    if resource.resource_type == LOGGER:
        raise TopicRefusedError(
            errors.InvalidRequestError, "Loggers are altered incrementally only"
        )
    _alter_resource(context, resource, replace, validate_only=request.validate_only)


_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_LISTS = ("cleanup.policy", "match", "metric.reporters", "metrics", *REPLICA_LISTS)


@handles(IncrementalAlterConfigsRequest, refusal={"error_message": "refused"})
def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from the named settings of each resource (KIP-339)."""
    return answer_items(request, lambda resource: _change(context, request, resource))


def _change(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    resource: IncrementalAlterConfigsResource,
) -> None:
    def change(settings: dict[str, str]) -> None:
        if len({config.name for config in resource.configs}) < len(resource.configs):
            raise TopicRefusedError(
                errors.InvalidRequestError, "Error due to duplicate config keys"
            )
        for config in resource.configs:
            _apply(settings, config)

    _alter_resource(context, resource, change, validate_only=request.validate_only)


def _apply(settings: dict[str, str], config: IncrementalAlterableConfig) -> None:
    name, operation = config.name, config.config_operation
    if operation == _DELETE:
        settings.pop(name, None)
        return
    if config.value is None:
        raise TopicRefusedError(errors.InvalidRequestError, f"Null value not supported for {name}")
    if operation == _SET:
        settings[name] = config.value
        return
    if name not in _LISTS:
        raise TopicRefusedError(
            errors.InvalidConfigurationError,
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


@handles(ListConfigResourcesRequest)
def list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the topics, brokers and loggers, and the groups and client metrics that have settings
    (KIP-1000, KIP-1142). The response has only the requested types; in version 0, only client
    metrics.
    """
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
