"""How far an audience has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.structs import TopicPartition
from tests.simulation import logs
from tests.simulation.promises import EVERY

if TYPE_CHECKING:
    from tests.simulation.history import Audience
    from tests.simulation.world import World


def missing_for(
    world: World,
    audience: Audience,
    *,
    by_hand: bool = False,
    held: frozenset[int] = frozenset(),
) -> str:
    """What an audience has still to get, in words; "" if it has everything.

    `by_hand`: it need not read more than the partitions that were there at the beginning. `held`:
    nor partitions with these numbers.
    """
    for topic in audience.topics:
        if topic in world.history.forgiven or topic in audience.forgiven:
            wants_all = world.history.remade.is_complete(audience, topic) and not by_hand
            if (world.promises(EVERY) or wants_all) and (
                missing := _missing_at_all(world, audience, topic, held)
            ):
                return missing
            continue
        for tp in logs.partitions(world, topic):
            if by_hand and tp.partition >= world.scenario.topic(topic).partitions:
                continue
            if tp.partition in held:
                continue
            end = logs.visible_end(world, tp, audience.committed_only)
            start = advance(world, audience, tp, end)
            if start < end:
                return f"{tp} {start} (of {end})"
    return ""


def _missing_at_all(world: World, audience: Audience, topic: str, held: frozenset[int]) -> str:
    """A record that is there now, and was never delivered: for logs that are not what they were."""
    for tp in logs.partitions(world, topic):
        if tp.partition in held:
            continue
        for entry in logs.entries(world, tp):
            is_hidden = audience.committed_only and (entry.is_aborted or entry.is_open)
            if audience.without(entry.number) and not is_hidden:
                return f"{tp} {entry.offset}: record {entry.number}"
    return ""


def advance(world: World, audience: Audience, tp: TopicPartition, end: int) -> int:
    """Move the frontier of what was delivered as far as it goes, up to `end`."""
    known = audience.delivered.get(tp, {})
    frontier = go_on(world, audience, tp, audience.frontier.get(tp, 0), end, known)
    audience.frontier[tp] = frontier
    return frontier


def go_on(
    world: World,
    audience: Audience,
    tp: TopicPartition,
    start: int,
    end: int,
    known: dict[int, int] | set[int],
) -> int:
    """The first offset from `start` on that is visible and not among those known, at most `end`.

    What was deleted once is passed by: a replica that lagged has it, and may lead later.
    """
    start = max(start, min(end, world.history.gone.get(tp, 0)))
    while start < end:
        if start in known:
            start += 1
            continue
        seen = logs.first_visible(world, tp, start, end, audience.committed_only)
        if seen is None:
            return end
        if seen == start or seen not in known:
            return seen
        start = seen
    return start
