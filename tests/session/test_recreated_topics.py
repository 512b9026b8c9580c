"""Topics that are deleted and made again while a session has records of the former one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import TransactionalSession
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.protocol.messages.fetch import ListOffsetsRequest
from aiokafka.session import SessionTransaction
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill
from tests.support.producers import numbers
from tests.support.sessions import copy, session_of
from tests.support.transactions import committed_values, stored, until

COOPERATIVE = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
KINDS: dict[str, dict[str, Any]] = {
    "assigned": {"assign": [T0]},
    "eager": {},
    "cooperative": {"reading": COOPERATIVE},
}
NEW = [b"new %d" % number for number in range(50)]
NO_TOPICS = {"auto.create.topics.enable": False}


async def make_again(cluster: FakeCluster, session: TransactionalSession) -> None:
    """Make `t` again, with other records, and wait until the session's consumer is in it."""
    await cluster.delete_topic("t")
    await cluster.create_topic("t", 1)
    for value in NEW:
        cluster.log("t", 0).append(value)
    while await session.consumer.position(T0):
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", ["abort", "commit"])
def test_no_record_of_the_next_topic_is_skipped(kind: str, ends: str) -> None:
    """Offsets of the former one are neither gone back to nor committed."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(1, config=NO_TOPICS) as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("out")
            fill(cluster, 0, 10)
            async with session_of(cluster, **KINDS[kind]) as session:
                await copy(session, 10)
                assert stored(cluster, [0]) == [10]
                fill(cluster, 0, 10)

                async def go_on(transaction: SessionTransaction) -> None:
                    await make_again(cluster, session)
                    if ends == "abort":
                        raise ZeroDivisionError

                if ends == "abort":
                    with pytest.raises(ZeroDivisionError):
                        await copy(session, 10, go_on)
                    await copy(session, 50)
                else:
                    await copy(session, 10, go_on)
            if ends == "commit":
                # It begins where that was committed.
                async with session_of(cluster, name="next", **KINDS[kind]) as session:
                    await copy(session, 50)
            former = numbers(10 if ends == "abort" else 20)
            assert committed_values(cluster) == former + NEW

    simulate(main)


@pytest.mark.parametrize("ends", ["abort", "commit"])
def test_nor_is_one_while_the_position_in_the_next_topic_is_looked_up(ends: str) -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(1, config=NO_TOPICS) as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("out")
            fill(cluster, 0, 10)
            found = asyncio.Event()

            async def go_on(transaction: SessionTransaction) -> None:
                looking = cluster.intercept(ListOffsetsRequest, Hold(found))
                await cluster.delete_topic("t")
                await cluster.create_topic("t", 1)
                for value in NEW:
                    cluster.log("t", 0).append(value)
                await until(lambda: looking.hits)
                if ends == "abort":
                    raise ZeroDivisionError

            async with session_of(cluster) as session:
                await copy(session, 10)
                fill(cluster, 0, 10)
                if ends == "abort":
                    with pytest.raises(ZeroDivisionError):
                        await copy(session, 10, go_on)
                    found.set()
                    await copy(session, 50)
                else:
                    await copy(session, 10, go_on)
            found.set()
            if ends == "commit":
                async with session_of(cluster, name="next") as session:
                    await copy(session, 50)
            former = numbers(10 if ends == "abort" else 20)
            assert committed_values(cluster) == former + NEW

    simulate(main)


def test_records_of_both_topics_in_one_transaction_are_read_again() -> None:
    """Those of the next topic come while the session waits for more."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(1, config=NO_TOPICS) as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("out")
            fill(cluster, 0, 10)
            async with session_of(cluster, linger_ms=5000) as session:
                await copy(session, 10)
                fill(cluster, 0, 10)
                waiting = asyncio.ensure_future(anext(session))
                while await session.consumer.position(T0) < 20:
                    await asyncio.sleep(0.1)
                await cluster.delete_topic("t")
                await cluster.create_topic("t", 1)
                while await session.consumer.position(T0):
                    await asyncio.sleep(0.1)
                for value in NEW:
                    cluster.log("t", 0).append(value)
                transaction = await waiting
                with pytest.raises(ZeroDivisionError):
                    async with transaction as records:
                        assert [record.value for record in records] == numbers(20)[10:] + NEW
                        raise ZeroDivisionError
                assert await copy(session, 50) == [NEW]

    simulate(main)
