"""Reading and changing the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiokafka.testing import codes
from aiokafka.testing.settings import BROKER_DEFAULTS, TOPIC_DEFAULTS, invalid_topic_setting
from aiokafka.testing.state import ClusterState, TopicRefusedError

TOPIC, BROKER = 2, 4

Changes = Mapping[str, "str | None"]


def read_settings(state: ClusterState, kind: int, name: str) -> tuple[dict[str, str], set[str]]:
    """All settings of a resource, and the names of those that are not defaults.

    Raises:
        TopicRefusedError: there is no such resource; `errno` says why.
    """
    if kind == TOPIC:
        topic = state.topics.get(name)
        if topic is None:
            raise TopicRefusedError(
                codes.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return {key: topic.setting(key) for key in TOPIC_DEFAULTS}, set(topic.config)
    if kind == BROKER:
        _check_broker(state, name)
        changed = {k for k, v in state.config.items() if v != BROKER_DEFAULTS[k]}
        if not name:  # of the whole cluster: only what was set
            return {key: state.config[key] for key in sorted(changed)}, changed
        return dict(state.config), changed
    raise TopicRefusedError(codes.INVALID_REQUEST, f"Unsupported resource type {kind}")


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
    if kind == BROKER:
        settings = {k: v for k, v in state.config.items() if v != BROKER_DEFAULTS[k]}
        change(settings)
        unknown = set(settings) - set(BROKER_DEFAULTS)
        if unknown:
            raise TopicRefusedError(codes.INVALID_CONFIG, f"Unknown broker settings {unknown}")
        if not validate_only:
            # Topics look at it.
            state.config.update({**BROKER_DEFAULTS, **settings})
        return
    topic = state.topics[name]
    settings = dict(topic.config)
    change(settings)
    problem = invalid_topic_setting(settings, state.profile.release)
    if problem is not None:
        raise TopicRefusedError(codes.INVALID_CONFIG, problem)
    if not validate_only:
        topic.config = settings


def _check_broker(state: ClusterState, name: str) -> None:
    """An empty name means the defaults of the whole cluster."""
    if name and (not name.isdigit() or int(name) not in state.nodes):
        raise TopicRefusedError(codes.INVALID_REQUEST, f"Unexpected broker id {name}")
