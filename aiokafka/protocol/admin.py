"""Old import path and constructors; the homes are in `aiokafka.protocol.messages`."""

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.protocol.messages import topics as home
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from aiokafka.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from aiokafka.protocol.messages.records import DeleteRecordsRequest, DeleteRecordsResponse
from aiokafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
]

_TopicRequest = tuple[str, int, int, Any, Any]


class CreateTopicsResponse(home.CreateTopicsResponse):
    """The answer, with the errors as tuples."""

    @property
    def topic_errors(self) -> list[tuple[str, int, str | None]]:
        """Topic, error code and message, for every topic asked for."""
        return [(t.name, t.error_code, t.error_message) for t in self.topics]


class CreateTopicsRequest(home.CreateTopicsRequest):
    """A request to create topics, from tuples.

    create_topic_requests: tuples of topic, number of partitions, replication factor, brokers by
        partition (a mapping or pairs), and settings (a mapping or pairs).
    timeout: milliseconds the broker may take.
    validate_only: only check whether the topics could be created.
    """

    RESPONSE = CreateTopicsResponse

    def __init__(
        self,
        create_topic_requests: Iterable[_TopicRequest],
        timeout: int,
        validate_only: bool = False,
    ) -> None:
        super().__init__(
            topics=[_creatable(*topic) for topic in create_topic_requests],
            timeout_ms=timeout,
            validate_only=validate_only,
        )


def _creatable(
    name: str, partitions: int, replication: int, assignments: Any, configs: Any
) -> home.CreatableTopic:
    return home.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            home.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in _pairs(assignments)
        ],
        configs=[home.CreatableTopicConfig(name=k, value=v) for k, v in _pairs(configs)],
    )


def _pairs(given: Any) -> Iterable[tuple[Any, Any]]:
    return given.items() if isinstance(given, Mapping) else given or ()
