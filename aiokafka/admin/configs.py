"""Describe and change the settings of topics, brokers and other resources (`admin.configs`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka._arguments import as_enum, as_flag, as_list, as_names, as_text, items_of
from aiokafka.admin._items import GONE, by_node, settle
from aiokafka.admin._routing import (
    AdminApi,
    Call,
    Outcomes,
    R,
    Router,
    Send,
    V,
    call_of,
    error_of,
    raise_for,
)
from aiokafka.admin._values import Value
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType, as_resource_type
from aiokafka.admin.enums import ConfigOperation, ConfigSource, ConfigType
from aiokafka.errors import KafkaError, KafkaProtocolError, UnsupportedVersionError
from aiokafka.protocol.messages import configs as wire

__all__ = [
    "Change",
    "ConfigChange",
    "ConfigKey",
    "ConfigSetting",
    "ConfigSynonym",
    "Configs",
    "Plain",
    "ResourceLike",
]


# -- Resources, settings and changes


class ConfigKey(NamedTuple):
    """The key of a resource with a configuration: its type and its name. It is hashable."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigKey:
        """Return the key of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigKey:
        """Return the key of a broker; without an id, of the settings that all brokers share."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> ConfigKey:
        """Return the key of the log levels of a broker's loggers."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigKey:
        """Return the key of a group."""
        return cls(ConfigResourceType.GROUP, name)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigKey:
        """Return the key of a subscription to client metrics (KIP-714)."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        kind = self.type.name.lower()
        return f"{kind} {self.name}" if self.name else f"every {kind}"


ResourceLike = ConfigKey | ConfigResource | tuple[ConfigResourceType | str, str]
Plain = str | int | float | bool


class ConfigSynonym(NamedTuple):
    """A value of a setting from one source. In a list of synonyms, the first one takes effect."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True)
class ConfigSetting(Value):
    """A setting of a resource, with its value and the source of the value."""

    name: str
    value: str | None
    """None if the setting is sensitive or has no value."""
    source: ConfigSource
    type: ConfigType
    """UNKNOWN before Kafka 2.6."""
    is_sensitive: bool
    is_read_only: bool
    """Whether no request can change the setting. A change needs a restart of the broker."""
    synonyms: tuple[ConfigSynonym, ...] = ()
    """The values from all sources. The first value takes effect. Empty unless requested."""
    documentation: str | None = None
    """Kafka's description of the setting; None unless requested, and before Kafka 2.6
    (KIP-569)."""

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True)
class ConfigChange(Value):
    """A change of a setting. For DELETE, `value` is None, otherwise a str, number or bool."""

    operation: ConfigOperation
    value: Plain | None = None

    @classmethod
    def set(cls, value: Plain) -> ConfigChange:
        """Return a change that sets the value."""
        return cls(ConfigOperation.SET, value)

    @classmethod
    def delete(cls) -> ConfigChange:
        """Return a change that deletes the value, so that the default takes effect."""
        return cls(ConfigOperation.DELETE)

    @classmethod
    def append(cls, value: Plain) -> ConfigChange:
        """Return a change that adds a value to a list, unless the list already has it."""
        return cls(ConfigOperation.APPEND, value)

    @classmethod
    def subtract(cls, value: Plain) -> ConfigChange:
        """Return a change that removes a value from a list."""
        return cls(ConfigOperation.SUBTRACT, value)


Change = ConfigChange | Plain | None


def key_of(argument: str, resource: Any) -> ConfigKey:
    """Return the key of a resource: a ConfigKey, a ConfigResource or a tuple (type, name).

    Raises TypeError for other objects, ValueError for an unknown type or a wrong broker id.
    """
    if isinstance(resource, ConfigResource):
        key = ConfigKey(resource.resource_type, resource.name)
    elif isinstance(resource, tuple) and len(resource) == 2 and isinstance(resource[1], str):
        key = ConfigKey(as_resource_type(argument, resource[0]), resource[1])
    else:
        raise TypeError(
            f"{argument}: {resource!r}: must be a ConfigKey, a ConfigResource, or (type, name)"
        )
    of_broker = key.type is ConfigResourceType.BROKER and key.name
    if (of_broker or key.type is ConfigResourceType.BROKER_LOGGER) and not (
        key.name.isascii() and key.name.isdigit()
    ):
        raise ValueError(f"{argument}: {key}: the name must be the id of a broker")
    return key


def text_of(name: str, value: object) -> str:
    """Return the value of a setting as Kafka's text. Raises TypeError for other types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError(f"{name}={value!r}: must be a str, a number or a bool")
    return str(value)


def changes_of(argument: str, changes: Mapping[str, Change]) -> dict[str, ConfigChange]:
    """Return each change as a `ConfigChange` whose value is a str. A str, number or bool becomes
    SET, None becomes DELETE."""
    found = {}
    for name, change in items_of(argument, changes):
        what = f"{argument}: {as_text(f'{argument}: name', name)}"
        if change is None:
            change = ConfigChange.delete()
        if not isinstance(change, ConfigChange):
            change = ConfigChange.set(change)
        operation = as_enum(what, change.operation, ConfigOperation)
        value = None if operation is ConfigOperation.DELETE else text_of(what, change.value)
        found[name] = ConfigChange(operation, value)
    return found


class Configs(AdminApi):
    """The sub-client `admin.configs`, for configurations.

    Resources can be written as a `ConfigKey`, such as `ConfigKey.topic("orders")`, as a tuple of
    type and name, such as `("topic", "orders")`, or as a `ConfigResource`. The keys of results are
    ConfigKeys. The name "" of a broker stands for the settings that all brokers share.
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
            resources: the resources; a `ConfigResource` with `configs` selects settings by name.
            include_synonyms: also return the values from all sources (Kafka 1.1).
            include_documentation: also return Kafka's description of each setting (Kafka 2.6).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a single resource, such as UnknownTopicOrPartitionError; AdminItemsError
        if one of several resources fails.
        """
        wanted: dict[ConfigKey, list[str] | None] = {}
        for resource in as_list("resources", resources, one=(ConfigKey, ConfigResource)):
            names = resource.configs if isinstance(resource, ConfigResource) else None
            key = key_of("resources", resource)
            wanted[key] = None if names is None else as_names(f"resources: {key}", names)
        return await describe_configs(
            self._router,
            wanted,
            as_flag("include_synonyms", include_synonyms),
            as_flag("include_documentation", include_documentation),
            self._deadline(timeout_ms),
        )

    async def alter(
        self,
        changes: Mapping[ResourceLike, Mapping[str, Change]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Change single settings and keep all others (Java: incrementalAlterConfigs, KIP-339).

        Args:
            changes: by resource and by name, the new value as a str, number or bool; None to reset
                to the default; or a `ConfigChange`, for example to add to a list.
            validate_only: only check whether the settings could be changed.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        All changes of a resource are made, or none of them. Brokers apply the changes shortly after
        the response. Needs Kafka 2.3. Raises the error of a single resource, such as
        InvalidConfigurationError; AdminItemsError if one of several resources fails.
        """
        wanted = {
            key_of("changes", resource): changes_of("changes", each)
            for resource, each in items_of("changes", changes)
        }
        is_check = as_flag("validate_only", validate_only)
        await alter_configs(self._router, wanted, is_check, self._deadline(timeout_ms))

    async def set_exactly(
        self,
        resource: ResourceLike,
        configs: Mapping[str, Plain],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Replace all settings of a resource; settings that are not given are reset to their
        defaults.

        Args:
            resource: the resource; the log levels of brokers cannot be replaced.
            configs: all settings of the resource, by name.
            validate_only: only check whether the settings could be replaced.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        All settings are replaced, or none of them (Java: alterConfigs, Kafka 0.11). A change that
        another client makes at the same time may be lost. Raises the error of the resource, such as
        InvalidConfigurationError.
        """
        key, is_check = key_of("resource", resource), as_flag("validate_only", validate_only)
        altered = wire.AlterConfigsResource(
            resource_type=key.type,
            resource_name=key.name,
            configs=[
                wire.AlterableConfig(
                    name=as_text("configs: name", name), value=text_of(f"configs: {name}", value)
                )
                for name, value in items_of("configs", configs)
            ],
        )
        deadline = self._deadline(timeout_ms)
        call = call_of(wire.AlterConfigsRequest(resources=[altered], validate_only=is_check))

        async def send(node: int, keys: list[ConfigKey]) -> Outcomes[ConfigKey, bool]:
            return _outcomes((await _ask(self._router, node, call, deadline)).responses)

        await _settle(self._router, [key], send, deadline, is_change=True)

    async def list_resources(
        self,
        types: Iterable[ConfigResourceType | str] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> list[ConfigKey]:
        """Return the resources that can have settings (Java: listConfigResources).

        Args:
            types: the types of resources; by default all types. Kafka 3.7 to 4.0 can list only
                CLIENT_METRICS (KIP-1000), Kafka 4.1 can list all types (KIP-1142).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises UnsupportedVersionError if the broker cannot list these types.
        """
        wanted = None
        if types is not None:
            wanted = [as_resource_type("types", each) for each in as_list("types", types)]
        deadline = self._deadline(timeout_ms)
        only_metrics = wanted == [ConfigResourceType.CLIENT_METRICS]

        def build(version: int) -> wire.ListConfigResourcesRequest:
            if version >= 1:
                return wire.ListConfigResourcesRequest(resource_types=list(wanted or ()))
            if not only_metrics:
                raise UnsupportedVersionError(
                    "ListConfigResources: others than client metrics need Kafka 4.1 (KIP-1142)"
                )
            return wire.ListConfigResourcesRequest()

        call = Call(
            wire.ListConfigResourcesRequest,
            build,
            lambda response: raise_for(response.error_code, None, "ListConfigResources"),
        )
        response = await self._router.to_any(call, deadline)
        return sorted(
            _key(each.resource_type, each.resource_name)
            for each in response.config_resources
            if each.resource_type in _KNOWN  # newer brokers may have further types
        )


# -- Requests

_ANY = -1  # in place of a node id, for resources that any broker can serve
OF_ONE_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
_KNOWN = frozenset(kind.value for kind in ConfigResourceType)

Settings = dict[str, ConfigSetting]


async def describe_configs(
    router: Router,
    wanted: Mapping[ConfigKey, list[str] | None],
    include_synonyms: bool,
    include_documentation: bool,
    deadline: float,
) -> dict[ConfigKey, Settings]:
    """Return the settings of each resource by name. `wanted` has the names of the settings to
    return for each resource; None for all settings."""

    async def send(node: int, keys: list[ConfigKey]) -> Outcomes[ConfigKey, Settings]:
        def build(version: int) -> wire.DescribeConfigsRequest:
            request = wire.DescribeConfigsRequest(
                resources=[
                    wire.DescribeConfigsResource(
                        resource_type=key.type,
                        resource_name=key.name,
                        configuration_keys=wanted[key],
                    )
                    for key in keys
                ],
            )
            if version >= 1:
                request.include_synonyms = include_synonyms
            if version >= 3:
                request.include_documentation = include_documentation
            return request

        call = Call(wire.DescribeConfigsRequest, build)
        if node == _ANY:
            response = await router.to_two(call, deadline)
        else:
            response = await router.send_to_named(node, call, deadline)
        found: dict[ConfigKey, Settings | KafkaError] = {}
        for each in response.results:
            key = _key(each.resource_type, each.resource_name)
            error = error_of(each.error_code, each.error_message, key)
            found[key] = error or {entry.name: _setting(entry) for entry in each.configs}
        return found

    return await _settle(router, wanted, send, deadline)


def _setting(entry: wire.DescribeConfigsResourceResult) -> ConfigSetting:
    source = entry.config_source
    if source == -1:  # version 0 has no field for the source
        source = ConfigSource.DEFAULT_CONFIG if entry.is_default else ConfigSource.UNKNOWN
    return ConfigSetting(
        name=entry.name,
        value=entry.value,
        source=ConfigSource(source),
        type=ConfigType(entry.config_type),
        is_sensitive=entry.is_sensitive,
        is_read_only=entry.read_only,
        synonyms=tuple(
            ConfigSynonym(each.name, each.value, ConfigSource(each.source))
            for each in entry.synonyms
        ),
        documentation=entry.documentation or None,
    )


async def alter_configs(
    router: Router,
    changes: Mapping[ConfigKey, Mapping[str, ConfigChange]],
    validate_only: bool,
    deadline: float,
) -> None:
    async def send(node: int, keys: list[ConfigKey]) -> Outcomes[ConfigKey, bool]:
        resources = [
            wire.IncrementalAlterConfigsResource(
                resource_type=key.type,
                resource_name=key.name,
                configs=[
                    wire.IncrementalAlterableConfig(
                        name=name,
                        config_operation=change.operation,
                        value=None if change.value is None else str(change.value),
                    )
                    for name, change in changes[key].items()
                ],
            )
            for key in keys
        ]
        request = wire.IncrementalAlterConfigsRequest(
            resources=resources, validate_only=validate_only
        )
        return _outcomes((await _ask(router, node, call_of(request), deadline)).responses)

    await _settle(router, changes, send, deadline, is_change=True)


def _outcomes(
    responses: Iterable[wire.AlterConfigsResourceResponse],
) -> Outcomes[ConfigKey, bool]:
    found: dict[ConfigKey, bool | KafkaError] = {}
    for each in responses:
        key = _key(each.resource_type, each.resource_name)
        found[key] = error_of(each.error_code, each.error_message, key) or True
    return found


def _key(kind: int, name: str) -> ConfigKey:
    if kind not in _KNOWN:
        raise KafkaProtocolError(
            f"the response has a resource of the unknown type {kind}: {name!r}"
        )
    return ConfigKey(ConfigResourceType(kind), name)


async def _settle(
    router: Router,
    keys: Iterable[ConfigKey],
    send: Send[ConfigKey, V],
    deadline: float,
    *,
    is_change: bool = False,
) -> dict[ConfigKey, V]:
    """Call `send` for these resources, and retry failed resources.

    Requests about the settings of a single broker go to that broker, other requests to any broker.
    """
    # With `bootstrap_controllers`: each controller describes its own settings, but only the active
    # controller changes settings. Log levels are not stored in the cluster, so each controller
    # changes its own log levels.
    at_active = router.is_for_controllers and is_change
    own = OF_ONE_BROKER[1:] if at_active else OF_ONE_BROKER

    async def ask(left: list[ConfigKey]) -> Outcomes[ConfigKey, V]:
        nodes: dict[int, list[ConfigKey]] = {}
        for key in left:
            node = int(key.name) if key.type in own and key.name else _ANY
            nodes.setdefault(node, []).append(key)
        return await by_node(nodes, send)

    return await settle(router, keys, ask, deadline, final=GONE)


async def _ask(router: Router, node: int, call: Call[R], deadline: float) -> R:
    if node == _ANY:
        return await router.to_any(call, deadline)
    return await router.send_to_named(node, call, deadline)
