"""The results of the admin methods of aiokafka 0.14: named tuples, the same for all versions of a
response.

`to_object` converts a result to the dict that programs written for aiokafka 0.14 read.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

from aiokafka._typing import Self

__all__ = [
    "AlterConfigsResult",
    "AlteredConfigs",
    "BrokerDict",
    "ClusterDict",
    "ConfigEntry",
    "ConfigSynonym",
    "CreatedTopic",
    "CreatedTopics",
    "DeletedTopics",
    "DescribeConfigsResult",
    "DescribeGroupsResult",
    "DescribedConfigs",
    "DescribedGroup",
    "DescribedMember",
    "PartitionDict",
    "TopicDict",
    "TopicError",
    "TopicErrorCode",
    "TopicResults",
]


class BrokerDict(TypedDict):
    """A broker, as `describe_cluster` returns it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterDict(TypedDict):
    """The cluster, as `describe_cluster` returns it."""

    throttle_time_ms: int
    brokers: list[BrokerDict]
    cluster_id: str | None
    controller_id: int


class PartitionDict(TypedDict):
    """A partition, as `describe_topics` returns it."""

    error_code: int
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


class TopicDict(TypedDict):
    """A topic, as `describe_topics` returns it."""

    error_code: int
    topic: str
    is_internal: bool
    partitions: list[PartitionDict]


def _as_object(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_object(item) for item in value]
    if not isinstance(value, tuple):
        return value
    found: Any = value
    names = getattr(found, "_keys", found._fields)
    return {name: _as_object(item) for name, item in zip(names, value, strict=True)}


class TopicError(NamedTuple):
    """The outcome for one topic; error code 0 means success."""

    topic: str
    error_code: int
    error_message: str | None


class TopicErrorCode(NamedTuple):
    """The outcome for one topic, without a message."""

    topic: str
    error_code: int


class TopicResults(NamedTuple):
    """The outcomes for the topics of a request. They contain errors, which are not raised."""

    throttle_time_ms: int
    topic_errors: list[TopicError]

    @property
    def topic_error_codes(self) -> list[TopicErrorCode]:
        """The error code of each topic."""
        return [TopicErrorCode(found.topic, found.error_code) for found in self.topic_errors]

    def to_object(self) -> dict[str, Any]:
        """Return a dict with `throttle_time_ms` and `topic_errors`, a list of dicts."""
        return {
            "throttle_time_ms": self.throttle_time_ms,
            "topic_errors": _as_object(self.topic_errors),
        }


class CreatedTopic(NamedTuple):
    """A topic that a broker created from a NewTopic (KIP-525)."""

    num_partitions: int
    """-1 if the user may not describe the topic's configuration."""
    replication_factor: int
    """-1 if the user may not describe the topic's configuration."""
    configs: dict[str, str | None] | None
    """All settings of the topic; None if the user may not describe them."""


class CreatedTopics(TopicResults):
    """The outcomes for new topics."""

    #: The properties of each topic without an error, by name; empty before Kafka 2.4.
    details: dict[str, CreatedTopic]


class DeletedTopics(TopicResults):
    """The outcomes for deleted topics. As in aiokafka 0.14, the dict of `to_object` has no error
    messages."""

    __slots__ = ()

    def to_object(self) -> dict[str, Any]:
        """Return a dict with `throttle_time_ms` and `topic_error_codes`, a list of dicts."""
        return {
            "throttle_time_ms": self.throttle_time_ms,
            "topic_error_codes": _as_object(self.topic_error_codes),
        }


class ConfigSynonym(NamedTuple):
    """A value of a setting from one source. The first synonym in the list takes effect."""

    config_name: str
    config_value: str | None
    config_source: int


class ConfigEntry(NamedTuple):
    """One setting of a resource. The value of a sensitive setting is None."""

    config_name: str
    config_value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    config_synonyms: list[ConfigSynonym]

    @property
    def _keys(self) -> tuple[str, ...]:
        # Programs written for aiokafka 0.14 read the key `config_names`, although its value is a
        # single name.
        return ("config_names", *self._fields[1:])


class DescribedConfigs(NamedTuple):
    """The settings of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    config_entries: list[ConfigEntry]


class DescribeConfigsResult(NamedTuple):
    """The response of one broker to DescribeConfigs."""

    throttle_time_ms: int
    resources: list[DescribedConfigs]

    def to_object(self) -> dict[str, Any]:
        """Return the result as nested dicts and lists."""
        found: dict[str, Any] = _as_object(self)
        return found


class AlteredConfigs(NamedTuple):
    """The outcome of the changes to one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResult(NamedTuple):
    """The response of one broker to AlterConfigs. It contains errors, which are not raised."""

    throttle_time_ms: int
    resources: list[AlteredConfigs]

    def to_object(self) -> dict[str, Any]:
        """Return the result as nested dicts and lists."""
        found: dict[str, Any] = _as_object(self)
        return found


class _DescribedMember(NamedTuple):
    member_id: str
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedMember(_DescribedMember):
    """A member of a group. `aiokafka.coordinator.protocol` decodes the metadata and the assignment.

    `group_instance_id` is the instance id of a static member, None for other members. It is an
    attribute, not an item of the tuple.
    """

    group_instance_id: str | None = None

    def __new__(cls, *values: Any, group_instance_id: str | None = None) -> Self:
        made = super().__new__(cls, *values)
        made.group_instance_id = group_instance_id
        return made

    def __repr__(self) -> str:
        shown = "".join(f"{name}={value!r}, " for name, value in self._asdict().items())
        return f"DescribedMember({shown}group_instance_id={self.group_instance_id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (tuple(self), self.group_instance_id)


def _restored(values: tuple[Any, ...], group_instance_id: str | None) -> DescribedMember:
    return DescribedMember(*values, group_instance_id=group_instance_id)


class _DescribedGroup(NamedTuple):
    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[DescribedMember]


class DescribedGroup(_DescribedGroup):
    """The state and the members of one group.

    `authorized_operations` is the bit field of the operations that the user may do, -2**31 if it
    was not requested. It is an attribute, not an item of the tuple.
    """

    authorized_operations: int = -(2**31)

    def __new__(cls, *values: Any, authorized_operations: int = -(2**31)) -> Self:
        made = super().__new__(cls, *values)
        made.authorized_operations = authorized_operations
        return made

    def __repr__(self) -> str:
        shown = "".join(f"{name}={value!r}, " for name, value in self._asdict().items())
        return f"DescribedGroup({shown}authorized_operations={self.authorized_operations!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored_group, (tuple(self), self.authorized_operations)


def _restored_group(values: tuple[Any, ...], authorized_operations: int) -> DescribedGroup:
    return DescribedGroup(*values, authorized_operations=authorized_operations)


class DescribeGroupsResult(NamedTuple):
    """The response of one coordinator to DescribeGroups."""

    throttle_time_ms: int
    groups: list[DescribedGroup]

    def to_object(self) -> dict[str, Any]:
        """Return the result as nested dicts and lists."""
        found: dict[str, Any] = _as_object(self)
        return found
