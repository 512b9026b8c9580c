"""What the fake cluster keeps, and what it forgets first."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster
from aiokafka.testing.fetch_sessions import FetchPosition, FetchSessionError, FetchSessions
from aiokafka.testing.simulation import Simulation, simulate


async def test_requests_are_remembered_up_to_a_number_of_bytes() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for _ in range(40):
                await producer.send_and_wait("t", bytes(1_000_000))
        assert cluster.count(ProduceRequest) == 40
        assert 20 < len(cluster.requests(ProduceRequest)) < 35


def position(number: int) -> FetchPosition:
    return FetchPosition("t", number, 0, -1, -1, 1000)


def test_the_fetch_session_goes_that_was_not_used_for_longest() -> None:
    sessions = FetchSessions(2)
    first, second = (sessions.open(0, 0, [position(n)], [])[0].session_id for n in (0, 1))
    sessions.open(first, 1, [], [])
    third = sessions.open(0, 0, [position(2)], [])[0].session_id
    with pytest.raises(FetchSessionError):
        sessions.open(second, 1, [], [])
    assert sessions.open(first, 2, [], [])[0].session_id == first
    assert sessions.open(third, 1, [], [])[0].session_id == third


async def test_epochs_under_which_nothing_was_written_are_not_known() -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t", replication_factor=3)
        log = cluster.log("t", 0)
        log.append(b"1")
        first = log.leader_epoch
        for broker in (1, 2, 0):
            cluster.move_leader(("t", 0), broker)
        log.append(b"2")
        assert log.leader_epoch == first + 3
        assert log.end_of_epoch(first) == (first, 1)
        for between in (first + 1, first + 2):
            assert log.end_of_epoch(between) == (first, 1)
        assert log.end_of_epoch(first + 3) == (first + 3, 2)


def test_static_members_that_do_not_join_stay_for_their_session() -> None:
    async def main(simulation: Simulation) -> list[str | None]:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", partitions=3)

            def member(name: str) -> AIOKafkaConsumer:
                return AIOKafkaConsumer(
                    "t",
                    bootstrap_servers=cluster.bootstrap_servers,
                    group_id="g",
                    group_instance_id=name,
                    session_timeout_ms=60_000,
                    rebalance_timeout_ms=5000,
                )

            first, second, third = (member(name) for name in ("a", "b", "c"))
            async with first:
                await second.start()
                await second.stop()  # it does not leave
                async with third:
                    await asyncio.sleep(20)
                    group = cluster.groups.classic["g"]
                    return sorted(str(each.instance_id) for each in group.members.values())

    assert simulate(main) == ["a", "b", "c"]
