"""aiokafka's calls of the admin client about topics, configurations, groups and offsets.

They return Kafka's error codes in results where the calls of the sub-clients, such as
`admin.topics.create`, raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aiokafka._coordinator_lookup import coordinators_in, lookup_of
from aiokafka.admin._group_offsets import NEWEST_WITH_NAMES, offset_fetch_request
from aiokafka.admin._items import name_of, of_every_broker, partitions_in
from aiokafka.admin._routing import Call, R, Router, call_of, raise_for
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
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResult,
    TopicError,
    TopicResults,
)
from aiokafka.admin.topics import as_new_topics, create_request, delete_request, partitions_request
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    GroupIdNotFound,
    KafkaError,
    KafkaTimeoutError,
    ThrottlingQuotaExceeded,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import configs, topics
from aiokafka.protocol.messages import consumer_group_describe as consumer_wire
from aiokafka.protocol.messages import groups as wire
from aiokafka.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

# -- CreateTopics, DeleteTopics, CreatePartitions


async def _within_quota(
    router: Router,
    request: type[Any],
    build: Callable[[int, Callable[[str], bool]], Any],
    results_in: Callable[[Any], list[Any]],
    deadline: float,
) -> tuple[int, list[Any]]:
    """Send a request about topics, and repeat it for topics beyond the quota (KIP-599).

    `build` takes a version and a function that tells whether to name a topic. Returns the throttle
    time of the last response and the last result of each topic. At the deadline, topics that are
    still beyond the quota have its error code in their results.
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
            raise ThrottlingQuotaExceeded("some topics are beyond the quota of changes")

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
    """Create topics, or with `validate_only` check whether they could be created."""
    wanted = as_new_topics("new_topics", new_topics)

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
    """Delete topics by name."""
    wanted = list(names)

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
    wanted: Mapping[str, NewPartitions | int],
    validate_only: bool,
    deadline: float,
) -> TopicResults:
    """Add partitions to topics. Raises the first error of a topic."""
    for name, new in items_of("topic_partitions", wanted):
        if isinstance(new, bool) or not (isinstance(new, int) or hasattr(new, "total_count")):
            raise TypeError(f"topic_partitions: {name}={new!r}: must be a NewPartitions or an int")

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
    """Return the settings of resources: one result per named broker, one for all others.

    A named broker is asked for its own settings.
    """
    results = []
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
    return configs.DescribeConfigsResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configuration_keys=None if resource.configs is None else list(resource.configs),
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
        source = 5  # DEFAULT_CONFIG; version 0 names no other source
    synonyms = [ConfigSynonym(s.name, s.value, s.source) for s in config.synonyms]
    return ConfigEntry(
        config.name, config.value, config.read_only, source, config.is_sensitive, synonyms
    )


async def alter_configs(
    router: Router, resources: Iterable[ConfigResource], deadline: float
) -> list[AlterConfigsResult]:
    """Replace all settings of each resource."""
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
    settings = resource.configs
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f"{resource!r}: to alter a configuration, configs must be a mapping")
    return configs.AlterConfigsResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configs=[
            configs.AlterableConfig(name=n, value=None if v is None else text_of(n, v))
            for n, v in (settings or {}).items()
        ],
    )


def _by_node(
    resources: Iterable[ConfigResource],
) -> list[tuple[int | None, list[ConfigResource]]]:
    """Group resources by the broker to ask; None stands for any broker."""
    if isinstance(resources, ConfigResource):
        raise TypeError("config_resources: must be several resources, not one ConfigResource")
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        if not hasattr(resource, "resource_type"):
            raise TypeError(f"config_resources: must be ConfigResource objects, not {resource!r}")
        node_id = None
        # The empty name stands for the settings that all brokers share.
        if resource.resource_type in OF_ONE_BROKER and resource.name:
            try:
                node_id = int(resource.name)
            except ValueError:
                raise ValueError(f"{resource!r}: the name must be the id of a broker") from None
        groups.setdefault(node_id, []).append(resource)
    return list(groups.items())


# -- Groups

_FIRST_LEAVE_OF_STATIC_MEMBERS = 3
_NO_OFFSET = OffsetAndMetadata(-1, "", -1)


async def list_groups(
    router: Router, broker_ids: Iterable[int] | None, deadline: float
) -> list[tuple[str, str]]:
    """Return (group, protocol type) of the groups whose coordinators are these brokers."""
    call = call_of(wire.ListGroupsRequest())

    async def ask(node_id: int) -> list[tuple[str, str]]:
        return _groups_in(await router.send(node_id, call, deadline), node_id)

    async def ask_named(node_id: int) -> list[tuple[str, str]]:
        return _groups_in(await router.send_to_named(node_id, call, deadline), node_id)

    if broker_ids is None:
        gathered = await of_every_broker(router, ask, deadline)
        for error in gathered.errors.values():
            raise error
        found = gathered.values
    else:
        found = []
        for node_id in broker_ids:
            found += await router.retry(partial(ask_named, node_id), deadline)
    return list(dict.fromkeys(found))


def _groups_in(response: wire.ListGroupsResponse, node_id: int) -> list[tuple[str, str]]:
    # Retriable while a broker that has just started loads its groups.
    raise_for(response.error_code, None, f"node {node_id}")
    return [(group.group_id, group.protocol_type) for group in response.groups]


async def describe_groups(
    router: Router,
    group_ids: Iterable[str],
    coordinator_id: int | None,
    include_authorized_operations: bool,
    deadline: float,
) -> list[DescribeGroupsResult]:
    """Return one description per group."""
    results = []
    for group_id in group_ids:
        call = call_of(
            wire.DescribeGroupsRequest(
                groups=[group_id], include_authorized_operations=include_authorized_operations
            )
        )
        response = await _ask(router, group_id, coordinator_id, call, deadline)
        described = [_group(group) for group in response.groups]
        result = DescribeGroupsResult(response.throttle_time_ms, described)
        if any(_may_be_consumer_group(group) for group in described):
            request = consumer_wire.ConsumerGroupDescribeRequest(
                group_ids=[group_id], include_authorized_operations=include_authorized_operations
            )
            with suppress(UnsupportedVersionError):
                found = await _ask(router, group_id, coordinator_id, call_of(request), deadline)
                result = _classic_result(found) or result
        results.append(result)
    return results


def _group(group: wire.DescribedGroup) -> DescribedGroup:
    members = [
        DescribedMember(
            m.member_id,
            m.client_id,
            m.client_host,
            m.member_metadata,
            m.member_assignment,
            group_instance_id=m.group_instance_id,
        )
        for m in group.members
    ]
    return DescribedGroup(
        group.error_code,
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        members,
        authorized_operations=group.authorized_operations,
    )


async def find_coordinator(router: Router, key: str, key_type: int, deadline: float) -> int:
    """Return the id of the broker that coordinates a group (0) or a transactional id (1)."""

    def coordinator_in(response: FindCoordinatorResponse) -> int:
        broker = coordinators_in(response, {key: repr(key)})[key]
        if isinstance(broker, KafkaError):
            raise broker
        return broker.nodeId

    def build(version: int) -> FindCoordinatorRequest:
        return lookup_of(version, key_type, [key])

    call = Call(FindCoordinatorRequest, build, coordinator_in)
    return coordinator_in(await router.to_any(call, deadline))


async def list_offsets(
    router: Router,
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    require_stable: bool,
    coordinator_id: int | None,
    deadline: float,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group; -1 for a requested partition without one."""
    call = Call(
        OffsetFetchRequest,
        lambda version: offset_fetch_request(version, {group_id: partitions}, require_stable),
        max_version=NEWEST_WITH_NAMES,
    )
    response = await _ask(router, group_id, coordinator_id, call, deadline)
    groups: list[Any] = [response, *response.groups]
    for group in groups:
        raise_for(group.error_code, None, "offsets")
    # Gateways may leave out a partition without an offset, or respond that it is unknown. Apache
    # Kafka does not check whether the topic exists.
    found = dict.fromkeys(partitions or (), _NO_OFFSET)
    for tp, each in partitions_in(topic for group in groups for topic in group.topics):
        if each.error_code == UnknownTopicOrPartitionError.errno:
            found[tp] = _NO_OFFSET
            continue
        raise_for(each.error_code, None, name_of(tp))
        found[tp] = OffsetAndMetadata(
            each.committed_offset, each.metadata or "", each.committed_leader_epoch
        )
    return found


async def remove_members(
    router: Router, group_id: str, instance_ids: Iterable[str], reason: str, deadline: float
) -> None:
    """Remove static members from a group.

    Raises the error of the first member that the coordinator did not remove.
    """
    names = list(instance_ids)

    def build(version: int) -> LeaveGroupRequest:
        if version < _FIRST_LEAVE_OF_STATIC_MEMBERS:
            raise UnsupportedVersionError("LeaveGroup: removing static members needs Kafka 2.4")
        members = [
            MemberIdentity(member_id="", group_instance_id=name, reason=reason) for name in names
        ]
        return LeaveGroupRequest(group_id=group_id, members=members)

    response = await router.to_coordinator(group_id, Call(LeaveGroupRequest, build), deadline)
    raise_for(response.error_code, None, f"group {group_id!r}")
    for member in response.members:
        raise_for(member.error_code, None, f"group {group_id!r}: {member.group_instance_id!r}")


async def _ask(
    router: Router, group_id: str, coordinator_id: int | None, call: Call[R], deadline: float
) -> R:
    if coordinator_id is None:
        return await router.to_coordinator(group_id, call, deadline)
    return await router.to_node(coordinator_id, call, deadline)


# -- Consumer groups (KIP-848) in the form of classic groups

_PROTOCOL_TYPE = "consumer"
# Version of the metadata that a classic member would have sent; the first with owned partitions.
_METADATA_VERSION = 1


def _may_be_consumer_group(group: DescribedGroup) -> bool:
    """Return whether a group may use the consumer protocol, by its classic description.

    DescribeGroups reports such a group as "Dead", and from version 6 on as not found (KIP-1043).
    """
    return group.error_code == GroupIdNotFound.errno or (
        group.error_code == 0 and group.state == "Dead"
    )


def _classic_result(
    response: consumer_wire.ConsumerGroupDescribeResponse,
) -> DescribeGroupsResult | None:
    """Convert a response to the classic form; None if the group uses another protocol."""
    if any(group.error_code == GroupIdNotFound.errno for group in response.groups):
        return None
    groups = [_consumer_group(group) for group in response.groups]
    return DescribeGroupsResult(response.throttle_time_ms, groups)


def _consumer_group(group: consumer_wire.DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group.error_code,
        group.group_id,
        group.group_state,
        _PROTOCOL_TYPE,
        group.assignor_name,
        [_consumer_member(member) for member in group.members],
        authorized_operations=group.authorized_operations,
    )


def _consumer_member(member: consumer_wire.Member) -> DescribedMember:
    owned = [(t.topic_name, list(t.partitions)) for t in member.assignment.topic_partitions]
    subscription = sorted(member.subscribed_topic_names)
    metadata = ConsumerProtocolMemberMetadata(_METADATA_VERSION, subscription, b"", owned)
    assignment = ConsumerProtocolMemberAssignment(0, owned, b"")
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        metadata.encode(),
        assignment.encode(),
        group_instance_id=member.instance_id,
    )
