"""Electing leaders and moving replicas between brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka.admin._items import (
    GONE,
    by_topic,
    name_of,
    numbers_by_topic,
    outcome,
    partitions_in,
    settle,
)
from aiokafka.admin._routing import Call, Router, error_of, raise_for, remaining_ms
from aiokafka.admin._values import Value
from aiokafka.admin.enums import ElectionType
from aiokafka.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import replicas as wire
from aiokafka.structs import TopicPartition


@dataclass(frozen=True)
class Reassignment(Value):
    """A move of a partition to other brokers that is under way (KIP-455)."""

    replicas: tuple[int, ...]
    """All that there are now: those to stay, to come and to go."""
    adding: tuple[int, ...]
    """Those that copy the partition."""
    removing: tuple[int, ...]
    """Those that will go when the others are in sync."""


Elected = dict[TopicPartition, bool | KafkaError]

# Which replicas run is not up to us, and may stay as it is for long.
_FINAL = (*GONE, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable)


async def elect_each(
    router: Router, partitions: Iterable[TopicPartition], kind: ElectionType, deadline: float
) -> dict[TopicPartition, bool]:
    """Hold elections; return of each partition whether there was one."""

    async def ask(left: list[TopicPartition]) -> Elected:
        return await _elect(router, left, kind, deadline)

    return await settle(router, partitions, ask, deadline, final=_FINAL)


async def elect_all(
    router: Router, kind: ElectionType, deadline: float
) -> dict[TopicPartition, bool]:
    """Hold elections for all partitions; return those that brokers name."""
    found = await router.retry(lambda: _elect(router, None, kind, deadline), deadline)
    return outcome(found)


async def _elect(
    router: Router, partitions: list[TopicPartition] | None, kind: ElectionType, deadline: float
) -> Elected:
    def build(version: int) -> wire.ElectLeadersRequest:
        request = wire.ElectLeadersRequest(
            topic_partitions=None
            if partitions is None
            else [
                wire.TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ],
            timeout_ms=remaining_ms(deadline),
        )
        if version >= 1:
            request.election_type = kind
        elif kind is not ElectionType.PREFERRED:
            raise UnsupportedVersionError("ElectLeaders: this type needs Kafka 2.4 (KIP-460)")
        return request

    call = Call(wire.ElectLeadersRequest, build, _election_codes)
    response = await router.to_controller(call, deadline)
    raise_for(response.error_code, None, "ElectLeaders")
    found: Elected = {}
    for result in response.replica_election_results:
        for each in result.partition_result:
            tp = TopicPartition(result.topic, each.partition_id)
            error = error_of(each.error_code, each.error_message, name_of(tp))
            found[tp] = False if isinstance(error, ElectionNotNeeded) else error or True
    return found


def _election_codes(response: wire.ElectLeadersResponse) -> list[int]:
    results = response.replica_election_results
    return [response.error_code, *(p.error_code for r in results for p in r.partition_result)]


async def reassign_each(
    router: Router,
    moves: Mapping[TopicPartition, Sequence[int] | None],
    may_change_factor: bool,
    deadline: float,
) -> None:
    """Begin to move partitions to these replicas; None ends a move."""

    async def ask(left: list[TopicPartition]) -> dict[TopicPartition, bool | KafkaError]:
        def build(version: int) -> wire.AlterPartitionReassignmentsRequest:
            request = wire.AlterPartitionReassignmentsRequest(
                timeout_ms=remaining_ms(deadline), topics=_moves(moves, left)
            )
            if version >= 1:
                request.allow_replication_factor_change = may_change_factor
            elif not may_change_factor:
                raise UnsupportedVersionError(
                    "AlterPartitionReassignments: keeping the replication factor needs Kafka 4.1"
                )
            return request

        call = Call(wire.AlterPartitionReassignmentsRequest, build, lambda r: [r.error_code])
        response = await router.to_controller(call, deadline)
        raise_for(response.error_code, response.error_message, "AlterPartitionReassignments")
        return {
            tp: error_of(each.error_code, each.error_message, name_of(tp)) or True
            for tp, each in partitions_in(response.responses)
        }

    await settle(router, moves, ask, deadline, final=_FINAL)


def _moves(
    moves: Mapping[TopicPartition, Sequence[int] | None], left: list[TopicPartition]
) -> list[wire.ReassignableTopic]:
    def entry(tp: TopicPartition) -> wire.ReassignablePartition:
        replicas = moves[tp]
        return wire.ReassignablePartition(
            partition_index=tp.partition, replicas=None if replicas is None else list(replicas)
        )

    return [
        wire.ReassignableTopic(name=topic, partitions=partitions)
        for topic, partitions in by_topic(left, entry).items()
    ]


async def list_reassignments(
    router: Router, partitions: Iterable[TopicPartition] | None, deadline: float
) -> dict[TopicPartition, Reassignment]:
    """Return the moves under way of these partitions, or of all with None."""
    wanted = None if partitions is None else numbers_by_topic(partitions)

    def build(version: int) -> wire.ListPartitionReassignmentsRequest:
        topics = None
        if wanted is not None:
            topics = [
                wire.ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                for topic, numbers in wanted.items()
            ]
        return wire.ListPartitionReassignmentsRequest(
            timeout_ms=remaining_ms(deadline), topics=topics
        )

    async def attempt() -> wire.ListPartitionReassignmentsResponse:
        call = Call(wire.ListPartitionReassignmentsRequest, build, lambda r: [r.error_code])
        response = await router.to_controller(call, deadline)
        raise_for(response.error_code, response.error_message, "ListPartitionReassignments")
        return response

    if wanted is not None and not wanted:
        return {}
    response = await router.retry(attempt, deadline)
    return {
        tp: Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for tp, each in partitions_in(response.topics)
    }
