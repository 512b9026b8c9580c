"""What admin calls return: Kafka's answers as named tuples, whatever the version spoken."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "AlterConfigsResult",
    "AlteredConfigs",
    "ConfigEntry",
    "ConfigSynonym",
    "DescribeConfigsResult",
    "DescribeGroupsResult",
    "DescribedConfigs",
    "DescribedGroup",
    "DescribedMember",
    "TopicError",
    "TopicErrorCode",
    "TopicResults",
]


class TopicError(NamedTuple):
    """What became of one topic; code 0 is success."""

    topic: str
    error_code: int
    error_message: str | None


class TopicErrorCode(NamedTuple):
    """What became of one topic, without the message."""

    topic: str
    error_code: int


class TopicResults(NamedTuple):
    """What became of the topics of a request. Errors of single topics are not raised."""

    throttle_time_ms: int
    topic_errors: list[TopicError]

    @property
    def topic_error_codes(self) -> list[TopicErrorCode]:
        """(topic, code) of each topic."""
        return [TopicErrorCode(found.topic, found.error_code) for found in self.topic_errors]


class ConfigSynonym(NamedTuple):
    """One place a setting's value can come from; the first one found is in effect."""

    config_name: str
    config_value: str | None
    config_source: int


class ConfigEntry(NamedTuple):
    """One setting. The value of a sensitive one is None."""

    config_name: str
    config_value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    config_synonyms: list[ConfigSynonym]


class DescribedConfigs(NamedTuple):
    """The settings of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    config_entries: list[ConfigEntry]


class DescribeConfigsResult(NamedTuple):
    """One broker's answer about configurations."""

    throttle_time_ms: int
    resources: list[DescribedConfigs]


class AlteredConfigs(NamedTuple):
    """What became of the changes to one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResult(NamedTuple):
    """One broker's answer to changes. Errors of single resources are not raised."""

    throttle_time_ms: int
    resources: list[AlteredConfigs]


class DescribedMember(NamedTuple):
    """One member of a group; `aiokafka.coordinator.protocol` decodes metadata and assignment."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes
    group_instance_id: str | None


class DescribedGroup(NamedTuple):
    """The state of one group."""

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[DescribedMember]
    authorized_operations: int


class DescribeGroupsResult(NamedTuple):
    """One coordinator's answer about groups."""

    throttle_time_ms: int
    groups: list[DescribedGroup]
