"""The parts of reading ranges that need no broker, or little of one."""

from __future__ import annotations

from aiokafka import AIOKafkaClient
from aiokafka._retry import Backoff
from aiokafka.ranges import LossKind, OffsetSizes, PartitionRange
from aiokafka.ranges.reader import is_confirmed
from aiokafka.ranges.state import RangePhase, RangeState
from aiokafka.testing import FakeCluster

WANTED = PartitionRange("t", 0, 0, 50)


def test_progress_ends_the_growth_of_pauses() -> None:
    state = RangeState(WANTED, 0.0, Backoff(0.1, 100.0), OffsetSizes())
    for _ in range(10):
        state.postpone(0.0, "LeaderNotAvailableError")
    assert state.retry_at > 10
    state.transition(RangePhase.FETCHING)
    state.advance(5, 1.0)
    assert (state.reason, state.phase, state.since) == ("", RangePhase.IDLE, 1.0)
    state.postpone(0.0, "LeaderNotAvailableError")
    assert state.retry_at < 0.2


def test_a_loss_lies_within_its_range() -> None:
    state = RangeState(PartitionRange("t", 0, 10, 40), 0.0, Backoff(0.1, 1.0), OffsetSizes())
    assert state.data_loss_until(LossKind.RETENTION, 20)[3:] == (10, 20)
    assert state.data_loss_until(LossKind.RETENTION, 90)[3:] == (10, 40)
    assert state.data_loss_until(LossKind.TRUNCATION, 5)[3:] == (10, 10)


async def test_one_look_is_no_proof(cluster: FakeCluster) -> None:
    """The client may know an older state, and so may the broker that it asks."""
    looks: list[bool] = []
    state = RangeState(WANTED, 0.0, Backoff(0.1, 1.0), OffsetSizes())

    def look(client: AIOKafkaClient, state: RangeState) -> bool:
        return looks.pop(0)

    async with AIOKafkaClient(
        bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=1
    ) as client:
        for said, sure in (([False], False), ([True, False], False), ([True, True, True], True)):
            looks[:] = said
            assert await is_confirmed(client, state, look) is sure
            assert looks == []
