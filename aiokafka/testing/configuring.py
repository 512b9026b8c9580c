"""Reading and changing the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiokafka import errors
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import (
    BROKER_DEFAULTS,
    GROUP_DEFAULTS,
    LOG_LEVELS,
    LOGGER_DEFAULTS,
    METRICS_DEFAULTS,
    TOPIC_DEFAULTS,
    broker_settings,
    invalid_broker_setting,
    invalid_topic_setting,
    topic_settings,
)
from aiokafka.testing.state import ClusterState, TopicRefusedError

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
_DESCRIBE = 32
_FIRST_WITH_GROUPS = (4, 3)  # releases
_FIRST_WITH_METRICS = (3, 7)
_FIRST_WITH_LOGGERS = (2, 4)

Changes = Mapping[str, "str | None"]
A = TypeVar("A")


def check_allowed(context: RequestContext, kind: int, name: str) -> None:
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


def read_settings(state: ClusterState, kind: int, name: str) -> tuple[dict[str, str], set[str]]:
    """Return all settings of a resource, and the names of those that are not defaults.

    Raises:
        TopicRefusedError: there is no such resource; `errno` says why.
    """
    if kind == TOPIC:
        topic = state.topics.get(name)
        if topic is None:
            raise TopicRefusedError(
                errors.UnknownTopicOrPartitionError.errno, f"The topic '{name}' does not exist."
            )
        return {key: topic.setting(key) for key in TOPIC_DEFAULTS}, set(topic.config)
    if kind == BROKER:
        _check_broker(state, name)
        changed = {k for k, v in state.config.items() if v != BROKER_DEFAULTS[k]}
        if not name:  # of the whole cluster: only what was set
            return {key: state.config[key] for key in sorted(changed)}, changed
        return dict(state.config), changed
    if kind == GROUP and state.profile.release >= _FIRST_WITH_GROUPS:
        if not name:
            raise TopicRefusedError(
                errors.InvalidRequestError.errno, "Default group resources not allowed"
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
    raise TopicRefusedError(errors.InvalidRequestError.errno, f"Unsupported resource type {kind}")


def change_settings(
    state: ClusterState,
    kind: int,
    name: str,
    change: Callable[[dict[str, str]], None],
    *,
    validate_only: bool,
) -> None:
    """Let `change` edit the settings that are not defaults, and keep them if they are valid.

    Raises:
        TopicRefusedError: no such resource, or not such settings.
    """
    read_settings(state, kind, name)
    if kind not in (TOPIC, BROKER):
        _change_other(state, kind, name, change, validate_only)
        return
    if kind == BROKER:
        settings = {k: v for k, v in state.config.items() if v != BROKER_DEFAULTS[k]}
        change(settings)
        unknown = set(settings) - set(BROKER_DEFAULTS)
        if unknown:
            raise TopicRefusedError(
                errors.InvalidConfigurationError.errno, f"Unknown broker settings {unknown}"
            )
        problem = invalid_broker_setting(settings)
        if problem is not None:
            raise TopicRefusedError(errors.InvalidRequestError.errno, problem)
        if not validate_only:
            # Topics look at it.
            state.config.update({**BROKER_DEFAULTS, **broker_settings(settings)})
        return
    topic = state.topics[name]
    settings = dict(topic.config)
    change(settings)
    problem = invalid_topic_setting(settings, state.profile.release)
    if problem is not None:
        raise TopicRefusedError(errors.InvalidConfigurationError.errno, problem)
    if not validate_only:
        topic.config = topic_settings(settings)


def alter_resource(
    kind: Callable[..., A],
    context: RequestContext,
    resource: Any,
    change: Callable[[dict[str, str]], None],
    *,
    validate_only: bool,
) -> A:
    """Let `change` edit the settings of a resource that a request names; return what the response
    says of it, as one of `kind`."""
    try:
        check_allowed(context, resource.resource_type, resource.resource_name)
        change_settings(
            context.truth,
            resource.resource_type,
            resource.resource_name,
            change,
            validate_only=validate_only,
        )
    except TopicRefusedError as exc:
        return say_of(kind, resource, exc.errno, exc.message)
    return say_of(kind, resource)


def say_of(kind: Callable[..., A], resource: Any, errno: int = 0, message: str | None = None) -> A:
    """Return what a response says of a resource, as one of `kind`."""
    return kind(
        error_code=errno,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _change_other(
    state: ClusterState,
    kind: int,
    name: str,
    change: Callable[[dict[str, str]], None],
    validate_only: bool,
) -> None:
    """Change the settings of a group, of client metrics or of a broker's loggers."""
    settings = dict(state.other_configs.get((kind, name), {}))
    change(settings)
    known: Mapping[str, object] = METRICS_DEFAULTS if kind == METRICS else LOGGER_DEFAULTS
    if kind == GROUP:
        known = GROUP_DEFAULTS
    for key, value in settings.items():
        if key not in known:
            raise TopicRefusedError(
                errors.InvalidRequestError.errno
                if kind == METRICS
                else errors.InvalidConfigurationError.errno,
                f"Unknown config name: {key}",
            )
        if kind == LOGGER and value not in LOG_LEVELS:
            raise TopicRefusedError(
                errors.InvalidConfigurationError.errno, f"{value} is not a log level"
            )
    if not validate_only:
        state.other_configs[kind, name] = settings
        if not settings:
            del state.other_configs[kind, name]


def _check_broker(state: ClusterState, name: str) -> None:
    """Refuse a broker that does not exist; an empty name means the defaults of the whole
    cluster.
    """
    if name and (not name.isdigit() or int(name) not in state.nodes):
        raise TopicRefusedError(errors.InvalidRequestError.errno, f"Unexpected broker id {name}")
