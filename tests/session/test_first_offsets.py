"""The first records of a group without committed offsets, with auto_offset_reset="latest"."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import TransactionalSession
from aiokafka._compat import timeout
from aiokafka.errors import GroupAuthorizationFailedError, TransactionAbortable
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from tests.support.consumers import T0
from tests.support.sessions import copy, session_of
from tests.support.transactions import committed_values, stored, until

POLICIES = ["latest", "by_duration:PT1H"]


def of_policy(cluster: FakeCluster, policy: str = "latest", **options: Any) -> TransactionalSession:
    return session_of(cluster, reading={"auto_offset_reset": policy}, **options)


def append(cluster: FakeCluster, *values: bytes, partition: int = 0) -> None:
    for value in values:
        cluster.log("t", partition).append(value)


async def fail_once(session: TransactionalSession) -> list[bytes]:
    """Read one transaction, and raise in its block."""
    seen: list[bytes] = []
    with pytest.raises(ZeroDivisionError):
        async with timeout(10):
            async for transaction in session:
                async with transaction as records:
                    seen += [record.value for record in records]
                    raise ZeroDivisionError
    return seen


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("assign", [False, True])
async def test_a_restart_reads_aborted_records_again(
    cluster: FakeCluster, policy: str, assign: bool
) -> None:
    cluster.log("t").append(b"old", timestamp_ms=1)
    given = {"assign": [T0]} if assign else {}
    async with of_policy(cluster, policy, **given) as session:
        append(cluster, b"1", b"2")
        assert await fail_once(session) in ([b"1"], [b"1", b"2"])
    assert stored(cluster, [0]) == [1]
    append(cluster, b"3")
    async with of_policy(cluster, policy, **given) as session:
        await copy(session, 3)
    assert committed_values(cluster) == [b"1", b"2", b"3"]


async def test_a_partition_without_records_has_its_position(cluster: FakeCluster) -> None:
    append(cluster, b"old", partition=1)
    async with of_policy(cluster) as session:
        append(cluster, b"1")
        await copy(session, 1)
        await asyncio.sleep(0.2)
        append(cluster, b"2")
        await copy(session, 1)
    assert stored(cluster) == [2, 1]
    append(cluster, b"while stopped", partition=1)
    async with of_policy(cluster) as session:
        await copy(session, 1)
    assert committed_values(cluster) == [b"1", b"2", b"while stopped"]


async def test_the_next_owner_reads_aborted_records(cluster: FakeCluster) -> None:
    async with of_policy(cluster, name="a", linger_ms=300) as first:
        for partition in (0, 1):
            append(cluster, b"%d" % partition, partition=partition)
        entered = asyncio.Event()

        async def wait_for_the_rebalance(transaction: Any) -> None:
            if not entered.is_set():
                entered.set()
                await until(lambda: transaction.is_void)

        copying = asyncio.ensure_future(copy(first, 1, wait_for_the_rebalance))
        await entered.wait()
        async with of_policy(cluster, name="b") as second:
            await copy(second, 1)
        tries = await copying
    assert sorted(tries[0]) == [b"0", b"1"]
    assert sorted(committed_values(cluster)) == [b"0", b"1"]


@pytest.mark.parametrize(
    "request_type, error",
    [
        (TxnOffsetCommitRequest, TransactionAbortable),
        (EndTxnRequest, TransactionAbortable),
        (OffsetFetchRequest, 14),
    ],
)
async def test_an_error_of_the_first_commit(
    cluster: FakeCluster, request_type: Any, error: Any
) -> None:
    async with of_policy(cluster) as session:
        append(cluster, b"1", b"2")
        cluster.intercept(request_type, Fail(error), times=1)
        await fail_once(session)
    async with of_policy(cluster) as session:
        await copy(session, 2)
    assert committed_values(cluster) == [b"1", b"2"]


async def test_a_permanent_error_of_the_first_commit_is_raised(cluster: FakeCluster) -> None:
    async with of_policy(cluster) as session:
        append(cluster, b"1")
        with cluster.intercept(TxnOffsetCommitRequest, Fail(GroupAuthorizationFailedError)):
            with pytest.raises(GroupAuthorizationFailedError):
                await copy(session, 1)
        await copy(session, 1)
    assert committed_values(cluster) == [b"1"]


@pytest.mark.parametrize("request_type", [TxnOffsetCommitRequest, EndTxnRequest])
async def test_a_cancelled_first_commit(cluster: FakeCluster, request_type: Any) -> None:
    async with of_policy(cluster) as session:
        append(cluster, b"1")
        free = asyncio.Event()
        with cluster.intercept(request_type, Hold(free), times=1) as held:
            copying = asyncio.ensure_future(copy(session, 1))
            await held.wait()
            copying.cancel()
            await asyncio.wait([copying])
            free.set()
        await copy(session, 1)
    assert committed_values(cluster) == [b"1"]
    assert stored(cluster, [0]) == [1]


async def test_committed_offsets_are_not_committed_again(cluster: FakeCluster) -> None:
    async with of_policy(cluster) as session:
        append(cluster, b"1")
        append(cluster, b"1", partition=1)
        await copy(session, 2)
    before = len(list(cluster.requests(EndTxnRequest)))
    async with of_policy(cluster) as session:
        append(cluster, b"2")
        await copy(session, 1)
    assert len(list(cluster.requests(EndTxnRequest))) == before + 1
