"""Settings of topics, brokers, groups and other resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from aiokafka.admin import _alter_configs
from aiokafka.admin._arguments import items_of
from aiokafka.admin._config_values import (
    Change,
    ConfigKey,
    ConfigSetting,
    Plain,
    ResourceLike,
    changes_of,
    key_of,
    text_of,
)
from aiokafka.admin._room import Room
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

__all__ = ["Configs"]

T = TypeVar("T")


class Configs(Room):
    """Calls about configurations: `admin.configs`.

    A resource is given as a `ConfigKey`, such as `ConfigKey.topic("orders")`, as a tuple of type
    and name, such as `("topic", "orders")`, or as a `ConfigResource`. Results have ConfigKey as
    keys. A broker's own settings are asked of it; those of the broker "" are the defaults that all
    brokers share.
    """

    async def describe(
        self,
        resources: Iterable[ResourceLike],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigKey, dict[str, ConfigSetting]]:
        """Return the settings of each resource by name (Java: describeConfigs, KIP-133, 226, 569).

        Args:
            resources: which; a `ConfigResource` with `configs` asks for settings of these names.
            include_synonyms: also what else could have given a value (Kafka 1.1).
            include_documentation: also what Kafka says about each setting (Kafka 2.6).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises UnknownTopicOrPartitionError and so on: AdminItemsError if several were asked for.
        """
        wanted: dict[ConfigKey, list[str] | None] = {}
        for resource in _several("resources", resources):
            names = resource.configs if isinstance(resource, ConfigResource) else None
            wanted[key_of(resource)] = None if names is None else list(names)
        return await _alter_configs.describe_each(
            self._router,
            wanted,
            include_synonyms,
            include_documentation,
            self._deadline(timeout_ms),
        )

    async def alter(
        self,
        changes: Mapping[ResourceLike, Mapping[str, Change]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Change single settings; all others stay (Java: incrementalAlterConfigs, KIP-339).

        Args:
            changes: by resource and by name what to do: a str, number or bool is the new value,
                None goes back to the default, and a `ConfigChange` may add to a list or take off.
            validate_only: only check whether it could be done.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        All changes of one resource are made, or none. Brokers learn of them a moment after the
        response. Needs Kafka 2.3. Raises InvalidConfigurationError and so on: AdminItemsError if
        several resources were given.
        """
        wanted = {
            key_of(resource): changes_of(each) for resource, each in items_of("changes", changes)
        }
        await _alter_configs.alter_each(
            self._router, wanted, validate_only, self._deadline(timeout_ms)
        )

    async def set_exactly(
        self,
        resource: ResourceLike,
        configs: Mapping[str, Plain],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Give a resource these settings and no others: what is not given goes back to its default.

        Args:
            resource: which; the log levels of brokers cannot be replaced.
            configs: all settings that it is to have, by name.
            validate_only: only check whether it could be done.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        It is one change (Java: alterConfigs, Kafka 0.11): no other client sees a part of it. What
        another client sets at the same time may be lost.
        """
        key = key_of(resource)
        wanted = {name: text_of(name, value) for name, value in configs.items()}
        await _alter_configs.replace_each(
            self._router, {key: wanted}, validate_only, self._deadline(timeout_ms)
        )

    async def list_resources(
        self,
        types: Iterable[ConfigResourceType | str] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> list[ConfigKey]:
        """Return the resources that may have settings of their own (Java: listConfigResources).

        Args:
            types: which; default all. Before Kafka 4.1 (KIP-1142) only client metrics can be
                listed, from Kafka 3.7 on (KIP-1000).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        wanted = None
        if types is not None:
            named = _several("types", types)
            wanted = [ConfigResource(each, "").resource_type for each in named]
        return await _alter_configs.list_resources(self._router, wanted, self._deadline(timeout_ms))


def _several(argument: str, items: Iterable[T]) -> list[T]:
    if isinstance(items, str | ConfigKey | ConfigResource):
        raise TypeError(f"{argument}: must be several, not one {type(items).__name__}")
    return list(items)
