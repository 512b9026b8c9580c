"""Every request that a client depends on, answered with every retriable code for ever: what the
caller, `health()` and the log show, and after how long.

Run with ``-s`` to see the table.
"""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.protocol.messages.fetch import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.testing import FakeCluster
from tests.waits.error_table import (
    T0,
    Fault,
    Scene,
    fetch_partition,
    offset_fetch_partition,
    rows_of,
)

GROUP: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
BY_HAND: dict[str, Any] = {**GROUP, "enable_auto_commit": False}
TRANSACTIONS: dict[str, Any] = {"transactional_id": "x"}
# The last release in which clients add partitions and offsets to transactions themselves.
OLDER: dict[str, Any] = {"as_version": "3.9"}


def subscribed(**options: Any) -> AIOKafkaConsumer[Any, Any]:
    return AIOKafkaConsumer("t", **options)


def assigned(**options: Any) -> AIOKafkaConsumer[Any, Any]:
    consumer = AIOKafkaConsumer(**options)
    consumer.assign([T0])
    return consumer


async def read(consumer: Any, cluster: FakeCluster, begin: Fault) -> None:
    begin()
    await consumer.start()
    await consumer.getone()


async def read_after_start(consumer: Any, cluster: FakeCluster, begin: Fault) -> None:
    await consumer.start()
    await consumer.getone()
    begin()
    cluster.groups.rebalance("g")
    await consumer.getone()


async def lose_heartbeats(consumer: Any, cluster: FakeCluster, begin: Fault) -> None:
    await consumer.start()
    await consumer.getone()
    begin()
    await consumer.getone()


async def commit(consumer: Any, cluster: FakeCluster, begin: Fault) -> None:
    await consumer.start()
    await consumer.getone()
    begin()
    await consumer.commit()


async def ask_committed(consumer: Any, cluster: FakeCluster, begin: Fault) -> None:
    await consumer.start()
    await consumer.getone()
    begin()
    await consumer.committed(T0)


async def follow_leader(consumer: Any, cluster: FakeCluster, begin: Fault) -> None:
    begin()
    await consumer.start()
    await consumer.getone()
    cluster.move_leader(T0, 1 - cluster.partition("t").leader)
    await consumer.getone()


async def send(producer: Any, cluster: FakeCluster, begin: Fault) -> None:
    begin()
    await producer.start()
    await producer.send_and_wait("t", b"1", partition=0)


async def send_after_start(producer: Any, cluster: FakeCluster, begin: Fault) -> None:
    await producer.start()
    begin()
    await producer.send_and_wait("t", b"1", partition=0)


async def send_in_transaction(producer: Any, cluster: FakeCluster, begin: Fault) -> None:
    begin()
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait("t", b"1", partition=0)


async def commit_in_transaction(producer: Any, cluster: FakeCluster, begin: Fault) -> None:
    begin()
    await producer.start()
    async with producer.transaction():
        await producer.send_offsets_to_transaction({T0: 1}, "g")


# Seconds for which the group may wait for its members.
REBALANCE = 35.0
OFTEN: dict[str, Any] = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000}
QUICK_BEATS: dict[str, Any] = {"config": {"group.consumer.heartbeat.interval.ms": 50}}

SCENES = [
    Scene("Metadata, consumer", MetadataRequest, subscribed, read, GROUP),
    Scene("FindCoordinator, group", FindCoordinatorRequest, subscribed, read, GROUP),
    Scene("JoinGroup", JoinGroupRequest, subscribed, read, GROUP, silent_for=REBALANCE),
    Scene(
        "JoinGroup, again",
        JoinGroupRequest,
        subscribed,
        read_after_start,
        {**GROUP, **OFTEN},
        silent_for=REBALANCE,
    ),
    Scene("SyncGroup", SyncGroupRequest, subscribed, read, GROUP, silent_for=REBALANCE),
    Scene(
        "Heartbeat",
        HeartbeatRequest,
        subscribed,
        lose_heartbeats,
        {**GROUP, **OFTEN},
    ),
    Scene(
        "ConsumerGroupHeartbeat",
        ConsumerGroupHeartbeatRequest,
        subscribed,
        read,
        {**GROUP, "group_protocol": "consumer"},
        QUICK_BEATS,
    ),
    Scene(
        "ConsumerGroupHeartbeat, member",
        ConsumerGroupHeartbeatRequest,
        subscribed,
        lose_heartbeats,
        {**GROUP, "group_protocol": "consumer"},
        QUICK_BEATS,
    ),
    Scene("OffsetFetch", OffsetFetchRequest, subscribed, read, GROUP),
    Scene(
        "OffsetFetch, partition",
        OffsetFetchRequest,
        subscribed,
        read,
        GROUP,
        fault=offset_fetch_partition,
    ),
    Scene("OffsetFetch, committed()", OffsetFetchRequest, subscribed, ask_committed, BY_HAND),
    Scene("OffsetCommit", OffsetCommitRequest, subscribed, commit, BY_HAND),
    Scene("OffsetCommit, assigned", OffsetCommitRequest, assigned, commit, BY_HAND),
    Scene("ListOffsets", ListOffsetsRequest, assigned, read, {"auto_offset_reset": "earliest"}),
    Scene("Fetch", FetchRequest, subscribed, read, GROUP),
    Scene("Fetch, partition", FetchRequest, subscribed, read, GROUP, fault=fetch_partition),
    Scene(
        "OffsetForLeaderEpoch",
        OffsetForLeaderEpochRequest,
        assigned,
        follow_leader,
        {"auto_offset_reset": "earliest", "metadata_max_age_ms": 100},
        {"brokers": 2},
    ),
    Scene("Metadata, producer", MetadataRequest, AIOKafkaProducer, send_after_start),
    Scene("Produce", ProduceRequest, AIOKafkaProducer, send),
    Scene(
        "InitProducerId",
        InitProducerIdRequest,
        AIOKafkaProducer,
        send,
        {"enable_idempotence": True},
    ),
    Scene(
        "FindCoordinator, transaction",
        FindCoordinatorRequest,
        AIOKafkaProducer,
        send_in_transaction,
        TRANSACTIONS,
    ),
    Scene(
        "InitProducerId, transaction",
        InitProducerIdRequest,
        AIOKafkaProducer,
        send_in_transaction,
        TRANSACTIONS,
    ),
    Scene(
        "Produce, transaction",
        ProduceRequest,
        AIOKafkaProducer,
        send_in_transaction,
        TRANSACTIONS,
    ),
    Scene(
        "AddPartitionsToTxn",
        AddPartitionsToTxnRequest,
        AIOKafkaProducer,
        send_in_transaction,
        TRANSACTIONS,
        OLDER,
    ),
    Scene(
        "AddOffsetsToTxn",
        AddOffsetsToTxnRequest,
        AIOKafkaProducer,
        commit_in_transaction,
        TRANSACTIONS,
        OLDER,
    ),
    Scene(
        "TxnOffsetCommit",
        TxnOffsetCommitRequest,
        AIOKafkaProducer,
        commit_in_transaction,
        TRANSACTIONS,
    ),
    Scene("EndTxn", EndTxnRequest, AIOKafkaProducer, send_in_transaction, TRANSACTIONS),
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.request)
async def test_no_code_is_met_with_silence(scene: Scene) -> None:
    rows = await rows_of(scene)
    print("", *rows, sep="\n")
    silent = [str(row) for row in rows if row.is_silent]
    assert silent == []
