"""Each retriable error code, and the others that brokers send, once in each place of a response to
a share consumer: which of them the application sees. Consumption continues after all of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from aiokafka import AcknowledgeType, AIOKafkaShareConsumer, errors
from aiokafka._compat import timeout
from aiokafka.errors import BrokerResponseError, KafkaError, for_code
from aiokafka.protocol.messages.share_groups import (
    AcknowledgePartitionData,
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.support.share import T0, Start, fill

ErrorType = type[BrokerResponseError]

NOT_RETRIABLE: list[ErrorType] = [
    errors.FencedMemberEpoch,
    errors.GroupAuthorizationFailedError,
    errors.GroupIdNotFound,
    errors.GroupMaxSizeReached,
    errors.InvalidRecordState,
    errors.InvalidRequestError,
    errors.OffsetOutOfRangeError,
    errors.TopicAuthorizationFailedError,
    errors.UnknownError,
    errors.UnknownMemberIdError,
    errors.UnsupportedVersionError,
]
RETRIABLE = {
    each.errno
    for each in vars(errors).values()
    if inspect.isclass(each) and issubclass(each, BrokerResponseError) and each.retriable
}
CODES = [*map(for_code, sorted(RETRIABLE)), *NOT_RETRIABLE]

LEADER = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


class Place(NamedTuple):
    """A place of an error code."""

    request_type: Any
    act: Callable[[ErrorType, FakeCluster], Any]
    """Returns the action for requests of this type."""
    is_seen: Callable[[ErrorType], bool]
    """Whether the application sees the error."""


def fetched_partition(error: ErrorType, cluster: FakeCluster) -> Edit:
    failed = PartitionData(
        partition_index=0,
        error_code=error.errno,
        acknowledge_error_code=0,
        current_leader=LEADER,
        records=b"",
        acquired_records=[],
    )
    topic = ShareFetchableTopicResponse(
        topic_id=cluster.state.topics["t"].topic_id, partitions=[failed]
    )

    def change(response: Any) -> None:
        acquired = [each for one in response.responses for each in one.partitions]
        if not any(each.acquired_records for each in acquired):
            response.responses = [topic]

    return Edit(change)


def acknowledged_partition(error: ErrorType, cluster: FakeCluster) -> Edit:
    failed = AcknowledgePartitionData(
        partition_index=0, error_code=error.errno, current_leader=LEADER
    )
    topic_id = cluster.state.topics["t"].topic_id

    def change(response: Any) -> None:
        response.responses = [ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[failed])]

    return Edit(change)


def is_final(error: ErrorType) -> bool:
    return not (error.retriable or error is errors.UnknownError)


def ends_membership(error: ErrorType) -> bool:
    return is_final(error) and error not in (errors.FencedMemberEpoch, errors.UnknownMemberIdError)


PLACES = {
    "fetch": Place(ShareFetchRequest, lambda error, _: Fail(error), is_final),
    "fetched partition": Place(ShareFetchRequest, fetched_partition, is_final),
    # The session is opened again, and the acknowledgements are lost with the one before.
    "acknowledgement": Place(ShareAcknowledgeRequest, lambda error, _: Fail(error), lambda _: True),
    "acknowledged partition": Place(
        ShareAcknowledgeRequest,
        acknowledged_partition,
        lambda error: is_final(error) or error.invalid_metadata,
    ),
    "heartbeat": Place(ShareGroupHeartbeatRequest, lambda error, _: Fail(error), ends_membership),
}


Consumer = AIOKafkaShareConsumer[Any, Any]


async def accept(consumer: Consumer, offset: int, seen: list[KafkaError]) -> bool:
    """Read a record, renew its lock, and accept it. Add the errors to `seen`. Return whether it was
    the record with this offset, and was accepted."""
    record = await consumer.getone()
    for type_ in (AcknowledgeType.RENEW, AcknowledgeType.ACCEPT):
        consumer.acknowledge(record, type_)
        failure = (await consumer.commit())[T0]
        if failure is not None:
            seen.append(failure)
    return failure is None and record.offset == offset


async def accept_all(consumer: Consumer, offset: int) -> set[type[KafkaError]]:
    """Read until the record with this offset is accepted; join again after an error of the
    membership. Return the classes of the errors."""
    seen: list[KafkaError] = []
    is_accepted = False
    async with timeout(60):
        while not is_accepted:
            try:
                is_accepted = await accept(consumer, offset, seen)
            except KafkaError as error:
                seen.append(error)
                if consumer.health().state == "failed":
                    consumer.subscribe(["t"])
    return {type(error) for error in seen}


@pytest.mark.parametrize("name", PLACES)
async def test_each_error_code(cluster: FakeCluster, start: Start, name: str) -> None:
    place = PLACES[name]
    consumer = await start(fetch_max_wait_ms=50)
    for number, error in enumerate(CODES):
        with cluster.intercept(place.request_type, place.act(error, cluster), times=1):
            accepting = asyncio.ensure_future(accept_all(consumer, number))
            before = cluster.count(place.request_type)
            if place.request_type is not ShareAcknowledgeRequest:
                await cluster.wait_for(
                    lambda: cluster.count(place.request_type) > before + 1  # noqa: B023
                )
            fill(cluster, 1, first=number)
            seen = await accepting
        assert seen == ({error} if place.is_seen(error) else set()), error
