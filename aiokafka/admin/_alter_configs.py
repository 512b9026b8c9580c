"""Reading and changing configurations, each resource with an outcome of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from aiokafka.admin._config_values import ConfigChange, ConfigKey, ConfigSetting, ConfigSynonym
from aiokafka.admin._items import V, by_node, settle
from aiokafka.admin._routing import Call, R, Router, error_of, raise_for
from aiokafka.admin._topic_changes import GONE
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.admin.enums import ConfigSource, ConfigType
from aiokafka.errors import KafkaError, KafkaProtocolError, UnsupportedVersionError
from aiokafka.protocol.messages import configs as wire
from aiokafka.protocol.messages import incremental_alter_configs as incremental

_ANY = -1  # where a resource has no broker of its own
_OF_ONE_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
_KNOWN = frozenset(kind.value for kind in ConfigResourceType)

Settings = dict[str, ConfigSetting]
Found = dict[ConfigKey, V | KafkaError]


async def describe_each(
    router: Router,
    wanted: Mapping[ConfigKey, list[str] | None],
    include_synonyms: bool,
    include_documentation: bool,
    deadline: float,
) -> dict[ConfigKey, Settings]:
    """Return the settings of resources: those of these names, or all with None."""

    async def send(node: int, keys: list[ConfigKey]) -> Found[Settings]:
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
            response = await router.to_any_sure(call, deadline)
        else:
            response = await router.send_to_named(node, call, deadline)
        found: Found[Settings] = {}
        for each in response.results:
            key = _key(each.resource_type, each.resource_name)
            error = error_of(each.error_code, each.error_message, key)
            found[key] = error or {entry.name: _setting(entry) for entry in each.configs}
        return found

    return await _settle(router, wanted, send, deadline)


def _setting(entry: wire.DescribeConfigsResourceResult) -> ConfigSetting:
    source = entry.config_source
    if source == -1:  # version 0 has no more detail
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


async def alter_each(
    router: Router,
    changes: Mapping[ConfigKey, Mapping[str, ConfigChange]],
    validate_only: bool,
    deadline: float,
) -> None:
    """Change single settings of resources."""

    async def send(node: int, keys: list[ConfigKey]) -> Found[bool]:
        def build(version: int) -> incremental.IncrementalAlterConfigsRequest:
            resources = [
                incremental.AlterConfigsResource(
                    resource_type=key.type,
                    resource_name=key.name,
                    configs=[
                        incremental.AlterableConfig(
                            name=name,
                            config_operation=change.operation,
                            value=None if change.value is None else str(change.value),
                        )
                        for name, change in changes[key].items()
                    ],
                )
                for key in keys
            ]
            return incremental.IncrementalAlterConfigsRequest(
                resources=resources, validate_only=validate_only
            )

        call = Call(incremental.IncrementalAlterConfigsRequest, build)
        response = await _ask(router, node, call, deadline)
        return _outcomes(response.responses)

    await _settle(router, changes, send, deadline, is_change=True)


async def replace_each(
    router: Router,
    configs: Mapping[ConfigKey, Mapping[str, str]],
    validate_only: bool,
    deadline: float,
) -> None:
    """Replace all settings of resources."""

    async def send(node: int, keys: list[ConfigKey]) -> Found[bool]:
        def build(version: int) -> wire.AlterConfigsRequest:
            resources = [
                wire.AlterConfigsResource(
                    resource_type=key.type,
                    resource_name=key.name,
                    configs=[
                        wire.AlterableConfig(name=name, value=value)
                        for name, value in configs[key].items()
                    ],
                )
                for key in keys
            ]
            return wire.AlterConfigsRequest(resources=resources, validate_only=validate_only)

        response = await _ask(router, node, Call(wire.AlterConfigsRequest, build), deadline)
        return _outcomes(response.responses)

    await _settle(router, configs, send, deadline, is_change=True)


async def list_resources(
    router: Router, types: list[ConfigResourceType] | None, deadline: float
) -> list[ConfigKey]:
    """Return the resources of these types, or all with None, that have settings of their own."""
    only_metrics = types == [ConfigResourceType.CLIENT_METRICS]

    def build(version: int) -> wire.ListConfigResourcesRequest:
        if version >= 1:
            return wire.ListConfigResourcesRequest(resource_types=list(types or ()))
        if not only_metrics:
            raise UnsupportedVersionError(
                "ListConfigResources: others than client metrics need Kafka 4.1 (KIP-1142)"
            )
        return wire.ListConfigResourcesRequest()

    async def attempt() -> wire.ListConfigResourcesResponse:
        response = await router.to_any(Call(wire.ListConfigResourcesRequest, build), deadline)
        raise_for(response.error_code, None, "ListConfigResources")
        return response

    response = await router.retry(attempt, deadline)
    return sorted(
        _key(each.resource_type, each.resource_name)
        for each in response.config_resources
        if each.resource_type in _KNOWN  # a newer broker may have more
    )


def _outcomes(
    responses: Iterable[
        wire.AlterConfigsResourceResponse | incremental.AlterConfigsResourceResponse
    ],
) -> Found[bool]:
    found: Found[bool] = {}
    for each in responses:
        key = _key(each.resource_type, each.resource_name)
        found[key] = error_of(each.error_code, each.error_message, key) or True
    return found


def _key(kind: int, name: str) -> ConfigKey:
    if kind not in _KNOWN:
        raise KafkaProtocolError(f"a resource of an unknown type, {kind}: {name!r}")
    return ConfigKey(ConfigResourceType(kind), name)


async def _settle(
    router: Router,
    keys: Iterable[ConfigKey],
    send: Callable[[int, list[ConfigKey]], Awaitable[Mapping[ConfigKey, V | KafkaError]]],
    deadline: float,
    *,
    is_change: bool = False,
) -> dict[ConfigKey, V]:
    """Ask the brokers that the resources belong to, all at once."""
    # A controller describes itself; the active one stores settings. Levels of logs are not stored.
    at_active = router.is_for_controllers and is_change
    own = _OF_ONE_BROKER[1:] if at_active else _OF_ONE_BROKER

    async def ask(left: list[ConfigKey]) -> Mapping[ConfigKey, V | KafkaError]:
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
