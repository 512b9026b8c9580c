"""The order of commits, with some that do not wait to the end."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.consumer.group.commits import Turn, Turns
from tests.support.consumers import T0, T1, T2


class Line:
    """Turns that wait in tasks, and the order in which they have come."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.came: list[Turn] = []

    def join(self, *partitions: object) -> tuple[Turn, asyncio.Task[bool]]:
        """A turn, and the task that waits for it."""
        turn = self.turns.join(partitions)  # type: ignore[arg-type]
        return turn, asyncio.create_task(self._wait(turn))

    async def _wait(self, turn: Turn) -> bool:
        found = await self.turns.wait(turn, None)
        self.came.append(turn)
        return found


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_waits_for_those_of_its_partitions_only() -> None:
    line = Line()
    first, _ = line.join(T0)
    other, _ = line.join(T1)
    both, _ = line.join(T0, T1)
    free, _ = line.join(T2)
    await settle()
    assert line.came == [first, other, free]
    line.turns.leave(first)
    await settle()
    assert both not in line.came
    line.turns.leave(other)
    await settle()
    assert line.came[-1] is both
    for turn in (both, free):
        line.turns.leave(turn)
    assert not line.turns


@pytest.mark.parametrize("comes_after", [True, False])
async def test_behind_one_that_has_not_waited_comes_nobody_earlier(comes_after: bool) -> None:
    """1. The first is sent. 2. The second is cancelled. 3. The third must not overtake the first,
    whether it was called before the second was cancelled or after."""
    line = Line()
    first, _ = line.join(T0)
    second, waiting = line.join(T0, T1)
    if not comes_after:
        third, _ = line.join(T0)
    await settle()
    waiting.cancel()
    line.turns.leave(second)
    if comes_after:
        third, _ = line.join(T0)
    elsewhere, _ = line.join(T1)
    await settle()
    assert line.came == [first, elsewhere]
    line.turns.leave(first)
    await settle()
    assert line.came == [first, elsewhere, third]


async def test_a_turn_that_does_not_come_in_time() -> None:
    line = Line()
    line.join(T0)
    late = line.turns.join([T0])
    assert not await line.turns.wait(late, asyncio.get_running_loop().time())


async def test_a_thousand_commits_of_one_partition() -> None:
    """Each end of one wakes the next one alone."""
    line = Line()
    turns = [line.join(T0)[0] for _ in range(1000)]
    for turn in turns:
        await settle()
        assert line.came[-1] is turn
        line.turns.leave(turn)
    assert line.came == turns
    assert not any(turn.before for turn in turns)
