"""aiokafka's calls of the admin client that change topics, and those about configurations.

They return error codes in results, where the newer calls raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from aiokafka.admin._routing import Call, R, Router, raise_for
from aiokafka.admin._values import items_of
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
from aiokafka.admin.topics import send_create_partitions, send_create_topics, send_delete_topics
from aiokafka.errors import (
    KafkaTimeoutError,
    ThrottlingQuotaExceeded,
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
from aiokafka.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
)

_OVER_QUOTA = ThrottlingQuotaExceeded.errno
_FIRST_PAUSE = 0.05  # seconds, where the broker names no pause


class _Answer(Protocol):
    """What a response says about one topic."""

    @property
    def name(self) -> str | None:
        """Name of the topic."""

    @property
    def error_code(self) -> int:
        """Kafka's code; 0 is success."""


A = TypeVar("A", bound=_Answer)
Names = Collection[str | None] | None


async def _within_quota(
    ask: Callable[[Names], Awaitable[tuple[int, list[A]]]], deadline: float
) -> tuple[int, list[A]]:
    """Ask about all topics, then again about those over the quota for changes (KIP-599).

    Pauses as the broker demands, and gives up at the deadline. `ask` takes names (None: of all
    topics) and returns the throttle time with one result per topic.
    """
    loop = asyncio.get_running_loop()
    throttle_time_ms, answers = await ask(None)
    found = {answer.name: answer for answer in answers}
    pause = _FIRST_PAUSE
    while late := [name for name, each in found.items() if each.error_code == _OVER_QUOTA]:
        pause = max(pause * 2, throttle_time_ms / 1000)
        if loop.time() + pause >= deadline:
            break
        await asyncio.sleep(pause)
        try:
            throttle_time_ms, answers = await ask(late)
        except KafkaTimeoutError:
            break  # what is known of the others counts all the same
        found.update((answer.name, answer) for answer in answers)
    return throttle_time_ms, list(found.values())


async def create_topics(
    router: Router, topics: Iterable[NewTopic], validate_only: bool, deadline: float
) -> CreatedTopics:
    """Create topics, or with `validate_only` only check whether they could be."""
    wanted = list(topics)

    async def ask(names: Names) -> tuple[int, list[CreatableTopicResult]]:
        chosen = [topic for topic in wanted if names is None or topic.name in names]
        response = await send_create_topics(router, chosen, validate_only, deadline)
        return response.throttle_time_ms, response.topics

    throttle_time_ms, found = await _within_quota(ask, deadline)
    results = CreatedTopics(
        throttle_time_ms, [TopicError(t.name, t.error_code, t.error_message or None) for t in found]
    )
    results.details = {t.name: _details(t) for t in found if _is_told(t)}
    return results


def _is_told(topic: CreatableTopicResult) -> bool:
    return not topic.error_code and (
        topic.num_partitions > 0 or bool(topic.topic_config_error_code)
    )


def _details(topic: CreatableTopicResult) -> CreatedTopic:
    configs = None
    if topic.configs is not None and not topic.topic_config_error_code:
        configs = {entry.name: entry.value for entry in topic.configs}
    return CreatedTopic(topic.num_partitions, topic.replication_factor, configs)


async def delete_topics(router: Router, topics: Iterable[str], deadline: float) -> DeletedTopics:
    """Delete topics by name."""
    wanted = list(topics)

    async def ask(names: Names) -> tuple[int, list[DeletableTopicResult]]:
        chosen = [name for name in wanted if names is None or name in names]
        response = await send_delete_topics(router, chosen, deadline)
        return response.throttle_time_ms, response.responses

    throttle_time_ms, found = await _within_quota(ask, deadline)
    return DeletedTopics(
        throttle_time_ms,
        [TopicError(str(t.name), t.error_code, t.error_message) for t in found],
    )


async def create_partitions(
    router: Router,
    topics: Mapping[str, NewPartitions | int],
    validate_only: bool,
    deadline: float,
) -> TopicResults:
    """Add partitions to topics. Raises the first error of a topic."""
    for name, new in items_of("topic_partitions", topics):
        if isinstance(new, bool) or not (isinstance(new, int) or hasattr(new, "total_count")):
            raise TypeError(f"topic_partitions: {name}={new!r}: must be a NewPartitions or an int")

    async def ask(names: Names) -> tuple[int, list[CreatePartitionsTopicResult]]:
        chosen = {name: new for name, new in topics.items() if names is None or name in names}
        response = await send_create_partitions(router, chosen, validate_only, deadline)
        return response.throttle_time_ms, response.results

    throttle_time_ms, found = await _within_quota(ask, deadline)
    for topic in found:
        raise_for(topic.error_code, topic.error_message, topic.name)
    return TopicResults(
        throttle_time_ms, [TopicError(t.name, t.error_code, t.error_message) for t in found]
    )


# -- DescribeConfigs, AlterConfigs


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
        if resource.resource_type in OF_ONE_BROKER and resource.name:
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
