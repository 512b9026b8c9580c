"""Reading and replacing configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin._config_values import text_of
from aiokafka.admin._routing import Call, R, Router
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.results import (
    AlterConfigsResult,
    AlteredConfigs,
    ConfigEntry,
    ConfigSynonym,
    DescribeConfigsResult,
    DescribedConfigs,
)
from aiokafka.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

_OF_ONE_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


async def describe_configs(
    router: Router, resources: Iterable[ConfigResource], include_synonyms: bool, deadline: float
) -> list[DescribeConfigsResult]:
    """Return the settings of resources: one result per broker named, one for everything else.

    A broker that is named reports its own settings.
    """
    results = []
    for node_id, group in _by_node(resources):
        wanted = [_described(resource) for resource in group]

        def build(
            version: int, wanted: list[DescribeConfigsResource] = wanted
        ) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(resources=wanted, include_synonyms=include_synonyms)

        call = Call(DescribeConfigsRequest, build)
        if node_id is None:
            response = await router.to_any_sure(call, deadline)
        else:
            response = await router.to_node(node_id, call, deadline)
        results.append(_configs(response))
    return results


def _described(resource: ConfigResource) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configuration_keys=None if resource.configs is None else list(resource.configs),
    )


def _configs(response: DescribeConfigsResponse) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        response.throttle_time_ms,
        [
            DescribedConfigs(
                found.error_code,
                found.error_message,
                found.resource_type,
                found.resource_name,
                [_entry(config) for config in found.configs],
            )
            for found in response.results
        ],
    )


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    source = config.config_source
    if source == -1 and config.is_default:
        source = 5  # DEFAULT_CONFIG: version 0 has no more detail.
    synonyms = [ConfigSynonym(s.name, s.value, s.source) for s in config.synonyms]
    return ConfigEntry(
        config.name, config.value, config.read_only, source, config.is_sensitive, synonyms
    )


async def alter_configs(
    router: Router, resources: Iterable[ConfigResource], deadline: float
) -> list[AlterConfigsResult]:
    """Replace all settings of each resource by those given."""
    results = []
    for node_id, group in _by_node(resources):
        wanted = [_altered(resource) for resource in group]

        def build(version: int, wanted: list[AlterConfigsResource] = wanted) -> AlterConfigsRequest:
            return AlterConfigsRequest(resources=wanted, validate_only=False)

        response = await _ask(router, node_id, Call(AlterConfigsRequest, build), deadline)
        altered = [
            AlteredConfigs(r.error_code, r.error_message, r.resource_type, r.resource_name)
            for r in response.responses
        ]
        results.append(AlterConfigsResult(response.throttle_time_ms, altered))
    return results


def _altered(resource: ConfigResource) -> AlterConfigsResource:
    configs = resource.configs
    if configs is not None and not isinstance(configs, Mapping):
        raise TypeError(f"{resource!r}: to alter a configuration, configs must be a mapping")
    return AlterConfigsResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configs=[
            AlterableConfig(name=n, value=None if v is None else text_of(n, v))
            for n, v in (configs or {}).items()
        ],
    )


def _by_node(
    resources: Iterable[ConfigResource],
) -> list[tuple[int | None, list[ConfigResource]]]:
    """Group resources by the broker that has to be asked; None stands for any broker."""
    if isinstance(resources, ConfigResource):
        raise TypeError("config_resources: must be several resources, not one ConfigResource")
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        if not hasattr(resource, "resource_type"):
            raise TypeError(f"config_resources: must be ConfigResource objects, not {resource!r}")
        node_id = None
        # A broker without a name stands for the defaults of all brokers.
        if resource.resource_type in _OF_ONE_BROKER and resource.name:
            try:
                node_id = int(resource.name)
            except ValueError:
                raise ValueError(f"{resource!r}: the name must be the id of a broker") from None
        groups.setdefault(node_id, []).append(resource)
    return list(groups.items())


async def _ask(router: Router, node_id: int | None, call: Call[R], deadline: float) -> R:
    if node_id is None:
        return await router.to_any(call, deadline)
    return await router.to_node(node_id, call, deadline)
