"""How blocks and sessions end: in the midst of the records, behind bad ones, and in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import TransactionalSession
from aiokafka._compat import timeout
from aiokafka.errors import (
    IllegalStateError,
    InvalidTxnState,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    RecordDeserializationError,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from aiokafka.session import SessionTransaction
from aiokafka.testing import Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill
from tests.support.producers import numbers
from tests.support.sessions import copy, session_of
from tests.support.transactions import committed_values, stored, until

# -- loops that are left


async def leave(session: TransactionalSession, how: str) -> None:
    """Copy records of one transaction, and leave in the midst of them."""
    async for transaction in session:
        async with transaction as records:
            for at, record in enumerate(records):
                if at == 2:
                    if how == "return":
                        return
                    break
                await transaction.send("out", record.value, partition=0)
            if how == "continue":
                continue
        break


@pytest.mark.parametrize("how", ["break", "return"])
async def test_a_loop_that_is_left_commits_nothing(cluster: FakeCluster, how: str) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:
        await leave(session, how)
        assert committed_values(cluster) == []
        assert stored(cluster) == [None, None]
        assert await copy(session, 3) == [numbers(3)]
    assert committed_values(cluster) == numbers(3)
    assert stored(cluster) == [3, None]


async def test_a_loop_that_is_left_each_time_is_told_so(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster, retries=1) as session:
        with caplog.at_level(logging.WARNING, "aiokafka.session"):
            with pytest.raises(IllegalStateError, match=r"records\.clear\(\)"):
                await leave(session, "continue")
        assert "its records are read again" in caplog.text
    assert committed_values(cluster) == []


async def test_a_request_that_comes_back_during_an_abort_is_not_waited_for(
    cluster: FakeCluster,
) -> None:
    """The leader moves away meanwhile: the abort ends all the same, and the records come again."""
    fill(cluster, 0, 3)
    release = asyncio.Event()
    answer = Hold(release, Fail(NotLeaderForPartitionError))
    held = cluster.intercept(ProduceRequest, answer, times=1)
    tries = 0
    async with session_of(cluster, writing={"max_block_ms": 5000}) as session, timeout(30):
        async for transaction in session:
            async with transaction as records:
                tries += 1
                for record in records:
                    await transaction.send("out", record.value, partition=0)
                if tries == 1:
                    await held.wait()
                    # In the next turn of the loop the abort is under way.
                    asyncio.get_running_loop().call_soon(release.set)
                    raise KafkaTimeoutError("something else that passes")
            if transaction.is_committed:
                break
    assert tries == 2
    assert committed_values(cluster) == numbers(3)
    assert stored(cluster) == [3, None]


TAKEN: dict[str, Callable[[Any], object]] = {
    "loop": lambda records: [record.value for record in records],
    "copy": list,
    "sorted": lambda records: sorted(records, key=lambda record: -record.offset),
    "reversed": lambda records: [record.value for record in reversed(records)],
    "unpacked": lambda records: [*records],
    "not at all": lambda records: None,
    "by index": lambda records: [records[at] for at in range(len(records))],
    "peek, then by index": lambda records: (next(iter(records)), records[-1]),
    "peek, then by slices": lambda records: (next(iter(records)), records[:2], records[2:]),
    "cleared": lambda records: (next(iter(records)), records.clear()),
}


@pytest.mark.parametrize("how", TAKEN)
async def test_what_counts_as_taken(cluster: FakeCluster, how: str) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:
        async for transaction in session:
            async with transaction as records:
                assert isinstance(records, list) and len(records) == 3
                TAKEN[how](records)
            break
        assert transaction.is_committed
    assert stored(cluster) == [3, None]


# -- records that cannot be read


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("linger_ms", [0, 200])
async def test_a_record_that_cannot_be_read(
    cluster: FakeCluster, linger_ms: float, waits: bool
) -> None:
    fill(cluster, 0, 4)

    def decode_now(value: bytes) -> bytes:
        if value == b"2":
            raise ValueError("poison")
        return value

    async def decode_later(value: bytes) -> bytes:
        await asyncio.sleep(0)
        return decode_now(value)

    decode = decode_later if waits else decode_now
    done: list[bytes] = []
    errors = 0
    session = session_of(cluster, reading={"value_deserializer": decode}, linger_ms=linger_ms)
    async with session, timeout(20):
        while len(done) < 3:
            try:
                async for transaction in session:
                    async with transaction as records:
                        values = [record.value for record in records]
                        for value in values:
                            await transaction.send("out", value, partition=0)
                    if transaction.is_committed:
                        done += values
                    if len(done) == 3:
                        break
            except Exception:
                errors += 1
                assert errors < 5
                session.consumer.seek(T0, 3)
    assert done == [b"0", b"1", b"3"]
    assert committed_values(cluster) == done
    assert stored(cluster, [0]) == [4]


async def test_an_abort_forgets_the_failure_behind_it(cluster: FakeCluster) -> None:
    """Its records come again, and so does what is behind them: a seek in answer to the failure
    would skip them."""
    fill(cluster, 0, 3)

    def decode(value: bytes) -> bytes:
        if value == b"2":
            raise ValueError("poison")
        return value

    session = session_of(cluster, reading={"value_deserializer": decode}, linger_ms=200)
    async with session, timeout(20):
        tries = 0
        with pytest.raises(Exception, match="poison"):
            async for transaction in session:
                async with transaction as records:
                    tries += 1
                    if tries == 1:
                        cluster.intercept(ProduceRequest, Fail(120), times=1)
                    for record in records:
                        await transaction.send("out", record.value, partition=0)
        assert tries == 2
    assert committed_values(cluster) == [b"0", b"1"]


# -- in time


@pytest.mark.parametrize("where", ["block", "commit"])
def test_a_cancelled_session_takes_its_time_once(where: str) -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t", partitions=2)
            await cluster.create_topic("out")
            await cancel_in(cluster, where)

    simulate(main)


def test_a_session_that_is_to_end_does_not_linger() -> None:
    """What it has taken by then is its last transaction."""

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(1) as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("out")
            fill(cluster, 0, 3)
            async with session_of(cluster, assign=[T0], linger_ms=60_000) as session:
                copying = asyncio.ensure_future(copy(session, 4))
                await asyncio.sleep(5)
                session.request_stop()
                asked = loop.time()
                assert await copying == [numbers(3)]
                assert loop.time() - asked < 1.0
            assert stored(cluster, [0]) == [3]

    simulate(main)


async def cancel_in(cluster: FakeCluster, where: str) -> None:
    fill(cluster, 0, 3)
    loop = asyncio.get_running_loop()
    is_inside = asyncio.Event()
    options: Any = {"stop_timeout_ms": 1000, "writing": {"max_block_ms": 20_000}}
    session = session_of(cluster, assign=[T0], **options)

    async def work() -> None:
        async with session:
            async for transaction in session:
                async with transaction as records:
                    for record in records:
                        await transaction.send("out", record.value, partition=0)
                    await session.producer.flush()
                    is_inside.set()
                    if where == "block":
                        await asyncio.Event().wait()

    with cluster.intercept(EndTxnRequest, Silence()) as silent:
        task = asyncio.ensure_future(work())
        await is_inside.wait()
        if where == "commit":
            await silent.wait()
        started = loop.time()
        task.cancel()
        await asyncio.wait([task])
        assert loop.time() - started < 2.0
    assert task.cancelled()


# -- a commit whose outcome is open


async def test_the_error_behind_an_open_commit_is_raised_when_that_is_repeated(
    cluster: FakeCluster,
) -> None:
    """The consumer has raised it once, and may be able to go on by then."""
    fill(cluster, 0, 4)
    unreadable = {b"2"}

    def decode(value: bytes) -> bytes:
        if value in unreadable:
            raise ValueError("poison")
        return value

    options: Any = {"reading": {"value_deserializer": decode}, "writing": {"max_block_ms": 400}}
    async with session_of(cluster, linger_ms=200, **options) as session, timeout(20):
        with cluster.intercept(EndTxnRequest, Silence()), pytest.raises(KafkaTimeoutError):
            await copy(session, 2)
        cluster.drop_connections()
        unreadable.clear()
        with pytest.raises(RecordDeserializationError, match="poison"):
            await copy(session, 2)
        assert committed_values(cluster) == numbers(2)
        assert await copy(session, 2) == [[b"2", b"3"]]
    assert committed_values(cluster) == numbers(4)


@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize("outcome", ["committed", "aborted"])
async def test_the_next_step_goes_on_with_an_open_commit(release: str, outcome: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        async with session_of(cluster, writing={"max_block_ms": 400}) as session, timeout(20):
            with cluster.intercept(EndTxnRequest, Silence()):
                with pytest.raises(KafkaTimeoutError):
                    await copy(session, 3)
            cluster.drop_connections()
            if outcome == "aborted":
                cluster.intercept(EndTxnRequest, Fail(120), times=1)
                assert await copy(session, 3) == [numbers(3)]
            else:
                fill(cluster, 0, 1)
                assert await copy(session, 1) == [[b"3"]]
        assert committed_values(cluster) == numbers(3 if outcome == "aborted" else 4)
        assert stored(cluster, [0]) == [3 if outcome == "aborted" else 4]
        assert cluster.failures == []


@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize("max_block_ms", [700, 20_000])
def test_records_that_expire_during_a_commit_are_read_again(
    release: str, max_block_ms: int
) -> None:
    """The commit was not sent, and its KafkaTimeoutError would be raised by every next step."""

    async def main(simulation: Simulation) -> None:
        writing = {
            "max_block_ms": max_block_ms,
            "delivery_timeout_ms": 1500,
            "request_timeout_ms": 1200,
        }
        async with simulation.cluster(1, as_version=release) as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("out")
            fill(cluster, 0, 3)
            async with session_of(cluster, assign=[T0], writing=writing) as session:
                with cluster.intercept(ProduceRequest, Silence()):
                    with pytest.raises(KafkaTimeoutError):
                        await copy(session, 3)
                    await asyncio.sleep(5)
                cluster.drop_connections()
                assert await copy(session, 3) == [numbers(3)]
            assert committed_values(cluster) == numbers(3)
            assert stored(cluster, [0]) == [3]

    simulate(main)


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_what_was_committed_is_not_read_again(
    release: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The response is lost, and another request is refused: an abort cannot be had any more."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        async with session_of(cluster, writing={"max_block_ms": 400}) as session, timeout(20):
            with cluster.intercept(EndTxnRequest, Silence(handled=True)):
                with pytest.raises(KafkaTimeoutError):
                    await copy(session, 3)
            cluster.drop_connections()
            cluster.intercept(EndTxnRequest, Fail(120), times=1)
            for _ in range(2):
                with pytest.raises(InvalidTxnState, match="was committed"):
                    await copy(session, 3)
        assert "its records are read again" not in caplog.text
        assert committed_values(cluster) == numbers(3)
        assert stored(cluster, [0]) == [3]


async def test_partitions_lost_between_the_offsets_and_the_commit(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    event = asyncio.Event()
    seen: list[SessionTransaction] = []

    async def note(transaction: SessionTransaction) -> None:
        seen.append(transaction)

    async with session_of(cluster) as session:
        with cluster.intercept(TxnOffsetCommitRequest, Hold(event), times=1) as held:
            copying = asyncio.ensure_future(copy(session, 3, note))
            await held.wait()
            cluster.groups.expire("g", session.consumer.group_metadata().member_id)
            await until(lambda: seen[0].is_void)
            event.set()
            assert await copying == [numbers(3)] * 2
        assert not seen[0].is_committed
    assert committed_values(cluster) == numbers(3)


# -- brokers that do not fence members


@pytest.mark.parametrize(("release", "warnings"), [("0.11", 1), ("2.1", 1), ("2.8", 0)])
@pytest.mark.parametrize("assigned", [True, False])
async def test_old_brokers_and_subscriptions(
    release: str, warnings: int, assigned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        async with session_of(cluster, assign=[T0] if assigned else (), max_records=1) as session:
            await copy(session, 3)
    told = [record for record in caplog.records if "before Kafka 2.5" in record.message]
    assert len(told) == (0 if assigned else warnings)
