"""Elect leaders, and move replicas between brokers."""

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
from aiokafka.admin._routing import Call, Outcomes, Router, error_of, raise_for, remaining_ms
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
    """An unfinished move of a partition's replicas to other brokers (KIP-455). Replicas are broker
    ids."""

    replicas: tuple[int, ...]
    """All current replicas, including those in `adding` and `removing`."""
    adding: tuple[int, ...]
    """New replicas that have not copied the whole partition yet."""
    removing: tuple[int, ...]
    """Replicas that are removed when the new replicas are in sync."""


# Errors that are not retried: a partition that the controller does not know does not exist, and the
# broker with the needed replica may stay down for a long time.
_FINAL = (*GONE, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable)


async def elect_each(
    router: Router, partitions: Iterable[TopicPartition], kind: ElectionType, deadline: float
) -> dict[TopicPartition, bool]:
    """Elect leaders. Return for each partition whether a new leader was elected; False if the
    election was not needed."""

    async def ask(left: list[TopicPartition]) -> Outcomes[TopicPartition, bool]:
        return await _elect(router, left, kind, deadline)

    return await settle(router, partitions, ask, deadline, final=_FINAL)


async def elect_all(
    router: Router, kind: ElectionType, deadline: float
) -> dict[TopicPartition, bool]:
    """Elect leaders for all partitions. Return for each partition in the response whether a new
    leader was elected."""
    found = await router.retry(lambda: _elect(router, None, kind, deadline), deadline)
    return outcome(found)


async def _elect(
    router: Router, partitions: list[TopicPartition] | None, kind: ElectionType, deadline: float
) -> Outcomes[TopicPartition, bool]:
    def topic(name: str, numbers: list[int]) -> wire.TopicPartitions:
        return wire.TopicPartitions(topic=name, partitions=numbers)

    def build(version: int) -> wire.ElectLeadersRequest:
        topics = None if partitions is None else numbers_by_topic(partitions, topic)
        request = wire.ElectLeadersRequest(
            topic_partitions=topics, timeout_ms=remaining_ms(deadline)
        )
        if version >= 1:
            request.election_type = kind
        elif kind is not ElectionType.PREFERRED:
            raise UnsupportedVersionError("ElectLeaders: this type needs Kafka 2.4 (KIP-460)")
        return request

    response = await router.to_controller(Call(wire.ElectLeadersRequest, build), deadline)
    raise_for(response.error_code, None, "ElectLeaders")
    found: dict[TopicPartition, bool | KafkaError] = {}
    for result in response.replica_election_results:
        for each in result.partition_result:
            tp = TopicPartition(result.topic, each.partition_id)
            error = error_of(each.error_code, each.error_message, name_of(tp))
            found[tp] = False if isinstance(error, ElectionNotNeeded) else error or True
    return found


async def reassign_each(
    router: Router,
    moves: Mapping[TopicPartition, Sequence[int] | None],
    may_change_factor: bool,
    deadline: float,
) -> None:
    """Start to move each partition to these replicas; None cancels the move of the partition.

    Raises the same errors as `settle`.
    """

    def entry(tp: TopicPartition) -> wire.ReassignablePartition:
        replicas = moves[tp]
        return wire.ReassignablePartition(
            partition_index=tp.partition, replicas=None if replicas is None else list(replicas)
        )

    def topic(name: str, entries: list[wire.ReassignablePartition]) -> wire.ReassignableTopic:
        return wire.ReassignableTopic(name=name, partitions=entries)

    async def ask(left: list[TopicPartition]) -> Outcomes[TopicPartition, bool]:
        def build(version: int) -> wire.AlterPartitionReassignmentsRequest:
            request = wire.AlterPartitionReassignmentsRequest(
                timeout_ms=remaining_ms(deadline), topics=by_topic(left, topic, entry)
            )
            if version >= 1:
                request.allow_replication_factor_change = may_change_factor
            elif not may_change_factor:
                raise UnsupportedVersionError(
                    "AlterPartitionReassignments: keeping the replication factor needs Kafka 4.1"
                )
            return request

        call = Call(wire.AlterPartitionReassignmentsRequest, build)
        response = await router.to_controller(call, deadline)
        raise_for(response.error_code, response.error_message, "AlterPartitionReassignments")
        return {
            tp: error_of(each.error_code, each.error_message, name_of(tp)) or True
            for tp, each in partitions_in(response.responses)
        }

    await settle(router, moves, ask, deadline, final=_FINAL)


async def list_reassignments(
    router: Router, partitions: Iterable[TopicPartition] | None, deadline: float
) -> dict[TopicPartition, Reassignment]:
    """Return the unfinished moves of these partitions, or of all partitions with None."""

    def topic(name: str, numbers: list[int]) -> wire.ListPartitionReassignmentsTopics:
        return wire.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)

    topics = None if partitions is None else numbers_by_topic(partitions, topic)
    if topics == []:
        return {}
    call = Call(
        wire.ListPartitionReassignmentsRequest,
        lambda version: wire.ListPartitionReassignmentsRequest(
            timeout_ms=remaining_ms(deadline), topics=topics
        ),
        lambda r: raise_for(r.error_code, r.error_message, "ListPartitionReassignments"),
    )
    response = await router.to_controller(call, deadline)
    return {
        tp: Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for tp, each in partitions_in(response.topics)
    }
