"""Bringing topics to a declared state: what has to be done, and doing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin._alter_configs import alter_each, describe_each
from aiokafka.admin._config_values import ConfigChange, ConfigKey, ConfigSetting, Plain, text_of
from aiokafka.admin._describe_topics import describe_all
from aiokafka.admin._routing import Router
from aiokafka.admin._topic_changes import create_each, delete_each, grow_each
from aiokafka.admin._topic_values import TopicDescription
from aiokafka.admin._values import Value
from aiokafka.admin.enums import ConfigSource, TopicAction
from aiokafka.admin.new_topic import NewTopic
from aiokafka.errors import IllegalArgumentError

__all__ = ["DeclaredTopic", "TopicStep", "carry_out", "declared_of", "plan"]


@dataclass(frozen=True)
class DeclaredTopic(Value):
    """What a topic is to be like. None leaves a thing as it is, or to the broker's defaults."""

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, Plain] | None = None
    """All settings that the topic is to have of its own; others go back to their defaults."""


@dataclass(frozen=True)
class TopicStep(Value):
    """One thing to do for a declared state."""

    topic: str
    action: TopicAction
    partitions: int | None = None
    """To create or to grow to; None for the broker's default."""
    replication_factor: int | None = None
    """To create; None for the broker's default."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    """What to set, by name; None goes back to the default."""


def declared_of(
    topics: Mapping[str, DeclaredTopic | Mapping[str, Any] | None],
) -> dict[str, DeclaredTopic | None]:
    """Return declarations, which may be given as plain dicts. Raises TypeError or ValueError."""
    if not isinstance(topics, Mapping):
        raise TypeError(f"declared: must be a dict by topic, not {type(topics).__name__}")
    found: dict[str, DeclaredTopic | None] = {}
    for name, given in topics.items():
        wanted = _declared(name, given)
        if wanted is not None:
            for key in ("partitions", "replication_factor"):
                number = getattr(wanted, key)
                if number is None:
                    continue
                if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                    raise ValueError(f"{name}: {key}={number!r}: must be 1 or more")
            for key, value in (wanted.configs or {}).items():
                text_of(f"{name}: {key}", value)
        found[name] = wanted
    return found


def _declared(name: str, given: DeclaredTopic | Mapping[str, Any] | None) -> DeclaredTopic | None:
    if isinstance(given, Mapping):
        known = DeclaredTopic.__dataclass_fields__
        if unknown := sorted(map(str, given.keys() - known.keys())):
            raise TypeError(f"{name}: {', '.join(unknown)}: it may have {', '.join(known)}")
        return DeclaredTopic(**given)
    if given is not None and not isinstance(given, DeclaredTopic):
        raise TypeError(f"{name}={given!r}: must be a DeclaredTopic, a dict, or None")
    return given


async def plan(
    router: Router, declared: Mapping[str, DeclaredTopic | None], deadline: float
) -> list[TopicStep]:
    """Return what has to be done, in the order in which to do it.

    Raises IllegalArgumentError if something cannot be done to a topic that exists.
    """
    present = await describe_all(router, False, deadline)
    keys = {
        ConfigKey.topic(name): None
        for name, wanted in declared.items()
        if wanted is not None and wanted.configs is not None and name in present
    }
    settings = await describe_each(router, keys, False, False, deadline)
    steps: list[TopicStep] = []
    for name, wanted in declared.items():
        topic = present.get(name)
        if wanted is None:
            steps += [TopicStep(name, TopicAction.DELETE)] if topic else []
        elif topic is None:
            configs = {key: text_of(key, value) for key, value in (wanted.configs or {}).items()}
            steps.append(
                TopicStep(
                    name, TopicAction.CREATE, wanted.partitions, wanted.replication_factor, configs
                )
            )
        else:
            steps += _changes(topic, wanted, settings.get(ConfigKey.topic(name), {}))
    return sorted(steps, key=lambda step: step.action)


def _changes(
    topic: TopicDescription, wanted: DeclaredTopic, settings: Mapping[str, ConfigSetting]
) -> list[TopicStep]:
    """Return what has to be done to a topic that exists."""
    name, count = topic.name, len(topic.partitions)
    factor = max((len(each.replicas) for each in topic.partitions), default=0)
    if wanted.replication_factor not in (None, factor):
        raise IllegalArgumentError(
            f"{name}: it has {factor} replicas, not {wanted.replication_factor}: use reassign"
        )
    if wanted.partitions is not None and wanted.partitions < count:
        raise IllegalArgumentError(
            f"{name}: it has {count} partitions, and cannot have {wanted.partitions}"
        )
    steps = []
    if wanted.partitions is not None and wanted.partitions > count:
        steps.append(TopicStep(name, TopicAction.GROW, wanted.partitions))
    if wanted.configs is not None:
        changes: dict[str, str | None] = {}
        for key, value in wanted.configs.items():
            setting = settings.get(key)
            if setting is None or setting.value != text_of(key, value) or not _is_own(setting):
                changes[key] = text_of(key, value)
        for key, setting in settings.items():
            if _is_own(setting) and key not in wanted.configs:
                changes[key] = None
        if changes:
            steps.append(TopicStep(name, TopicAction.CONFIGURE, configs=changes))
    return steps


def _is_own(setting: ConfigSetting) -> bool:
    return setting.source is ConfigSource.DYNAMIC_TOPIC_CONFIG


async def carry_out(router: Router, steps: Sequence[TopicStep], deadline: float) -> None:
    """Do all steps, those of one action at once."""
    by_action: dict[TopicAction, list[TopicStep]] = {action: [] for action in TopicAction}
    for step in steps:
        by_action[step.action].append(step)
    new = [
        NewTopic(step.topic, step.partitions, step.replication_factor, None, step.configs)
        for step in by_action[TopicAction.CREATE]
    ]
    await create_each(router, new, False, deadline)
    counts = {step.topic: step.partitions or 0 for step in by_action[TopicAction.GROW]}
    await grow_each(router, counts, False, deadline)
    changes = {
        ConfigKey.topic(step.topic): {
            key: ConfigChange.delete() if value is None else ConfigChange.set(value)
            for key, value in step.configs.items()
        }
        for step in by_action[TopicAction.CONFIGURE]
    }
    await alter_each(router, changes, False, deadline)
    await delete_each(router, [step.topic for step in by_action[TopicAction.DELETE]], deadline)
