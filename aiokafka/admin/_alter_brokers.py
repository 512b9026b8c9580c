"""Changing the quorum, the set of brokers, and where brokers keep replicas."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from aiokafka.admin._broker_values import LogDir, LogDirReplica
from aiokafka.admin._by_topic import name_of, numbers_by_topic
from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._items import by_node, settle
from aiokafka.admin._routing import Call, Router, error_of, raise_for, remaining_ms
from aiokafka.admin._topic_changes import GONE
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    KafkaStorageError,
    ReplicaNotAvailableError,
)
from aiokafka.protocol.messages import cluster as wire
from aiokafka.protocol.messages import log_dirs as logs
from aiokafka.protocol.messages import quorum as raft
from aiokafka.structs import TopicPartition

LogDirs = dict[str, LogDir]
# A directory that has failed comes back with a restart of its broker alone.
_FINAL = (*GONE, ReplicaNotAvailableError, KafkaStorageError)
Changed = TypeVar(
    "Changed",
    raft.AddRaftVoterResponse,
    raft.RemoveRaftVoterResponse,
    wire.UnregisterBrokerResponse,
)


async def add_voter(
    router: Router,
    voter: tuple[int, uuid.UUID],
    listeners: Sequence[tuple[str, str, int]],
    deadline: float,
) -> None:
    """Add a voter to the quorum."""

    def build(version: int) -> raft.AddRaftVoterRequest:
        return raft.AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=remaining_ms(deadline),
            voter_id=voter[0],
            voter_directory_id=voter[1].bytes,
            listeners=[
                raft.Listener(name=name, host=host, port=port) for name, host, port in listeners
            ],
        )

    call = Call(raft.AddRaftVoterRequest, build, lambda r: [r.error_code])
    await _change(router, call, f"voter {voter[0]}", deadline)


async def remove_voter(router: Router, voter: tuple[int, uuid.UUID], deadline: float) -> None:
    """Take a voter out of the quorum."""

    def build(version: int) -> raft.RemoveRaftVoterRequest:
        return raft.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter[0], voter_directory_id=voter[1].bytes
        )

    call = Call(raft.RemoveRaftVoterRequest, build, lambda r: [r.error_code])
    await _change(router, call, f"voter {voter[0]}", deadline)


async def unregister(router: Router, broker_id: int, deadline: float) -> None:
    """Forget a broker."""

    def build(version: int) -> wire.UnregisterBrokerRequest:
        return wire.UnregisterBrokerRequest(broker_id=broker_id)

    call = Call(wire.UnregisterBrokerRequest, build, lambda r: [r.error_code])
    await _change(router, call, f"broker {broker_id}", deadline)


async def _change(router: Router, call: Call[Changed], what: str, deadline: float) -> None:
    """Have the controller make a change, and raise what it responds about it."""

    async def attempt() -> None:
        response = await router.to_controller(call, deadline)
        raise_for(response.error_code, response.error_message, what)

    await router.retry(attempt, deadline)


async def describe_log_dirs(
    router: Router,
    broker_ids: Iterable[int] | None,
    partitions: Iterable[TopicPartition] | None,
    deadline: float,
) -> dict[int, LogDirs]:
    """Return what is in the log directories of brokers."""
    wanted = None if partitions is None else numbers_by_topic(partitions)
    if broker_ids is None:
        metadata = await fetch_metadata(router, [], deadline)
        broker_ids = sorted(broker.node_id for broker in metadata.brokers)

    def build(version: int) -> logs.DescribeLogDirsRequest:
        topics = None
        if wanted is not None:
            topics = [
                logs.DescribableLogDirTopic(topic=topic, partitions=numbers)
                for topic, numbers in wanted.items()
            ]
        return logs.DescribeLogDirsRequest(topics=topics)

    async def send(node: int, items: list[int]) -> dict[int, LogDirs | KafkaError]:
        call = Call(logs.DescribeLogDirsRequest, build)
        response = await router.send_to_named(node, call, deadline)
        error = error_of(response.error_code, None, f"node {node}")
        if error is None and not response.results:
            # A broker has a directory. Before Kafka 3.2 this is how it refuses to name them.
            error = ClusterAuthorizationFailedError(f"node {node}")
        return {node: error or {each.log_dir: _log_dir(each) for each in response.results}}

    async def ask(left: list[int]) -> dict[int, LogDirs | KafkaError]:
        return await by_node({node: [node] for node in left}, send)

    return await settle(router, broker_ids, ask, deadline)


def _log_dir(found: logs.DescribeLogDirsResult) -> LogDir:
    return LogDir(
        error=error_of(found.error_code, None, found.log_dir),
        replicas={
            TopicPartition(topic.name, each.partition_index): LogDirReplica(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in found.topics
            for each in topic.partitions
        },
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        usable_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
        is_cordoned=found.is_cordoned,
    )


async def move_replicas(
    router: Router, broker_id: int, moves: Mapping[TopicPartition, str], deadline: float
) -> None:
    """Begin to move replicas of a broker to other directories."""

    async def ask(left: list[TopicPartition]) -> dict[TopicPartition, bool | KafkaError]:
        def build(version: int) -> logs.AlterReplicaLogDirsRequest:
            paths: dict[str, list[TopicPartition]] = {}
            for tp in left:
                paths.setdefault(moves[tp], []).append(tp)
            return logs.AlterReplicaLogDirsRequest(
                dirs=[
                    logs.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            logs.AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                            for topic, numbers in numbers_by_topic(tps).items()
                        ],
                    )
                    for path, tps in paths.items()
                ]
            )

        call = Call(logs.AlterReplicaLogDirsRequest, build)
        response = await router.send_to_named(broker_id, call, deadline)
        found: dict[TopicPartition, bool | KafkaError] = {}
        for topic in response.results:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic_name, each.partition_index)
                what = f"{name_of(tp)} on node {broker_id}, to {moves.get(tp)}"
                found[tp] = error_of(each.error_code, None, what) or True
        return found

    await settle(router, moves, ask, deadline, final=_FINAL)
