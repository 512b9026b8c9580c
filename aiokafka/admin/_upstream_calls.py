"""The admin client's methods of aiokafka 0.14 about topics and configurations.

Most of these methods return error codes in their results. The methods of sub-clients, such as
`admin.topics.create`, raise errors instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiokafka._arguments import as_flag, as_list, as_names, items_of
from aiokafka.admin._routing import Call, Router, call_of, raise_for
from aiokafka.admin.config_resource import ConfigResource
from aiokafka.admin.configs import OF_ONE_BROKER, text_of
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.admin.results import (
    AlterConfigsResult,
    AlteredConfigs,
    ConfigEntry,
    ConfigSynonym,
    CreatedTopic,
    CreatedTopics,
    DeletedTopics,
    DescribeConfigsResult,
    DescribedConfigs,
    TopicError,
    TopicResults,
)
from aiokafka.admin.topics import (
    as_new_partitions,
    as_new_topics,
    create_request,
    delete_request,
    partitions_request,
)
from aiokafka.errors import (
    KafkaTimeoutError,
    ThrottlingQuotaExceeded,
)
from aiokafka.protocol.messages import configs, topics

# -- CreateTopics, DeleteTopics, CreatePartitions


async def _within_quota(
    router: Router,
    request: type[Any],
    build: Callable[[int, Callable[[str], bool]], Any],
    results_in: Callable[[Any], list[Any]],
    deadline: float,
) -> tuple[int, list[Any]]:
    """Send a request about topics, and send it again for topics beyond the quota (KIP-599).

    `build` builds the request for a version; its second argument is a function that returns whether
    a topic still has to be in the request. Returns the throttle time of the last response and the
    last result of each topic. Topics that are still beyond the quota at the deadline have the error
    code of the quota in their results.
    """
    throttle_time_ms = 0
    found: dict[str, Any] = {}

    def is_left(name: str) -> bool:
        return name not in found or found[name].error_code == ThrottlingQuotaExceeded.errno

    def check(response: Any) -> None:
        nonlocal throttle_time_ms
        throttle_time_ms = response.throttle_time_ms
        found.update((each.name, each) for each in results_in(response))
        if any(map(is_left, found)):
            raise ThrottlingQuotaExceeded("the quota for changes of topics was exceeded")

    call = Call(request, lambda version: build(version, is_left), check)
    try:
        await router.to_controller(call, deadline)
    except KafkaTimeoutError:
        if not found:
            raise
    return throttle_time_ms, list(found.values())


async def create_topics(
    router: Router, new_topics: Iterable[NewTopic], validate_only: bool, deadline: float
) -> CreatedTopics:
    """Create topics; with `validate_only`, only check whether they could be created."""
    wanted = as_new_topics("new_topics", new_topics)
    validate_only = as_flag("validate_only", validate_only)

    def build(version: int, is_left: Callable[[str], bool]) -> topics.CreateTopicsRequest:
        chosen = [topic for topic in wanted if is_left(topic.name)]
        return create_request(version, chosen, validate_only, deadline)

    throttle_time_ms, found = await _within_quota(
        router, topics.CreateTopicsRequest, build, lambda response: response.topics, deadline
    )
    results = CreatedTopics(
        throttle_time_ms, [TopicError(t.name, t.error_code, t.error_message or None) for t in found]
    )
    results.details = {t.name: _details(t) for t in found if _has_details(t)}
    return results


def _has_details(topic: topics.CreatableTopicResult) -> bool:
    return not topic.error_code and (
        topic.num_partitions > 0 or bool(topic.topic_config_error_code)
    )


def _details(topic: topics.CreatableTopicResult) -> CreatedTopic:
    configs = None
    if topic.configs is not None and not topic.topic_config_error_code:
        configs = {entry.name: entry.value for entry in topic.configs}
    return CreatedTopic(topic.num_partitions, topic.replication_factor, configs)


async def delete_topics(router: Router, names: Iterable[str], deadline: float) -> DeletedTopics:
    wanted = as_names("topics", names, repeats=True)

    def build(version: int, is_left: Callable[[str], bool]) -> topics.DeleteTopicsRequest:
        return delete_request(version, [name for name in wanted if is_left(name)], deadline)

    throttle_time_ms, found = await _within_quota(
        router, topics.DeleteTopicsRequest, build, lambda response: response.responses, deadline
    )
    return DeletedTopics(
        throttle_time_ms, [TopicError(str(t.name), t.error_code, t.error_message) for t in found]
    )


async def create_partitions(
    router: Router,
    topic_partitions: Mapping[str, NewPartitions | int],
    validate_only: bool,
    deadline: float,
) -> TopicResults:
    """Add partitions to topics. Raises the first error of a topic."""
    wanted = as_new_partitions("topic_partitions", topic_partitions)
    validate_only = as_flag("validate_only", validate_only)

    def build(version: int, is_left: Callable[[str], bool]) -> topics.CreatePartitionsRequest:
        chosen = {name: new for name, new in wanted.items() if is_left(name)}
        return partitions_request(chosen, validate_only, deadline)

    throttle_time_ms, found = await _within_quota(
        router, topics.CreatePartitionsRequest, build, lambda response: response.results, deadline
    )
    for topic in found:
        raise_for(topic.error_code, topic.error_message, topic.name)
    return TopicResults(
        throttle_time_ms, [TopicError(t.name, t.error_code, t.error_message) for t in found]
    )


# -- DescribeConfigs, AlterConfigs


async def describe_configs(
    router: Router, resources: Iterable[ConfigResource], include_synonyms: bool, deadline: float
) -> list[DescribeConfigsResult]:
    """Return the settings of resources: one result for each broker among the resources, and one
    result for all other resources.

    The settings of a broker are requested from that broker.
    """
    results = []
    include_synonyms = as_flag("include_synonyms", include_synonyms)
    for node_id, group in _by_node(resources):
        wanted = [_described(resource) for resource in group]
        call = call_of(
            configs.DescribeConfigsRequest(resources=wanted, include_synonyms=include_synonyms)
        )
        if node_id is None:
            response = await router.to_two(call, deadline)
        else:
            response = await router.to_node(node_id, call, deadline)
        results.append(_configs(response))
    return results


def _described(resource: ConfigResource) -> configs.DescribeConfigsResource:
    names = resource.configs
    if names is not None:
        names = as_names(f"config_resources: configs of {resource.name}", names)
    return configs.DescribeConfigsResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configuration_keys=names,
    )


def _configs(response: configs.DescribeConfigsResponse) -> DescribeConfigsResult:
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


def _entry(config: configs.DescribeConfigsResourceResult) -> ConfigEntry:
    source = config.config_source
    if source == -1 and config.is_default:
        source = 5  # DEFAULT_CONFIG: responses of version 0 have only `is_default`
    synonyms = [ConfigSynonym(s.name, s.value, s.source) for s in config.synonyms]
    return ConfigEntry(
        config.name, config.value, config.read_only, source, config.is_sensitive, synonyms
    )


async def alter_configs(
    router: Router, resources: Iterable[ConfigResource], deadline: float
) -> list[AlterConfigsResult]:
    """Replace all settings of each resource. Return one result for each broker among the resources,
    and one result for all other resources."""
    results = []
    for node_id, group in _by_node(resources):
        wanted = [_altered(resource) for resource in group]
        call = call_of(configs.AlterConfigsRequest(resources=wanted, validate_only=False))
        if node_id is None:
            response = await router.to_any(call, deadline)
        else:
            response = await router.to_node(node_id, call, deadline)
        altered = [
            AlteredConfigs(r.error_code, r.error_message, r.resource_type, r.resource_name)
            for r in response.responses
        ]
        results.append(AlterConfigsResult(response.throttle_time_ms, altered))
    return results


def _altered(resource: ConfigResource) -> configs.AlterConfigsResource:
    what = f"config_resources: configs of {resource.name}"
    settings: Any = resource.configs or {}
    return configs.AlterConfigsResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configs=[
            configs.AlterableConfig(name=n, value=None if v is None else text_of(f"{what}: {n}", v))
            for n, v in items_of(what, settings)
        ],
    )


def _by_node(
    resources: Iterable[ConfigResource],
) -> list[tuple[int | None, list[ConfigResource]]]:
    """Group resources by the node id of the broker that their request goes to; None stands for any
    broker."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in as_list("config_resources", resources, "resources", ConfigResource):
        if not hasattr(resource, "resource_type"):
            raise TypeError(f"config_resources: must be ConfigResource objects, not {resource!r}")
        node_id = None
        # The empty name stands for the settings that all brokers share.
        if resource.resource_type in OF_ONE_BROKER and resource.name:
            try:
                node_id = int(resource.name)
            except ValueError:
                raise ValueError(
                    f"config_resources: {resource!r}: the name must be the id of a broker"
                ) from None
        groups.setdefault(node_id, []).append(resource)
    return list(groups.items())
