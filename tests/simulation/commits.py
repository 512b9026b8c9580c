"""Commits as the brokers see them: none may pass work that is not finished."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.messages.group_members import LeaveGroupRequest
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.structs import TopicPartition
from tests.simulation import logs
from tests.simulation.history import Audience
from tests.simulation.progress import go_on
from tests.simulation.promises import STEADY

if TYPE_CHECKING:
    from aiokafka.testing import RequestContext
    from tests.simulation.world import World


# Faults after which requests may arrive in another order than they were sent.
_MIXES = {"slow line", "silent line", "slow broker", "hang", "stall", "cut at byte", "reset"}


def watch_commits(world: World) -> None:
    """Look at every OffsetCommit request that reaches a broker."""

    newest: dict[tuple[str, int, TopicPartition], float] = {}
    is_in_order = not _MIXES & {fault.kind for fault in world.scenario.faults}
    remade = world.history.remade
    remade.watch()

    def look(request: Any, context: RequestContext) -> None:
        audience = _audience(world, request)
        if audience is None:
            return
        last = audience.connections.get(request.member_id, 0)
        is_overtaken = context.connection_id < last
        audience.connections[request.member_id] = max(last, context.connection_id)
        note_overtaken(world, request, context)
        for topic in request.topics:
            name = topic.name or _name_of(world, topic.topic_id)
            for part in topic.partitions:
                tp = TopicPartition(name, part.partition_index)
                _check(world, audience, tp, part.committed_offset)
                remade.check_commit(audience, context, topic.topic_id, tp, part.committed_offset)
                who = (request.member_id, request.generation_id_or_member_epoch, tp)
                # A commit that was refused, or never arrived, has moved nothing.
                stored = world.cluster.groups.committed(request.group_id, name, tp.partition) or 0
                if is_overtaken:
                    # What the member commits next, having lost the partition meanwhile and read
                    # from what was stored then, may lie before this.
                    newest.pop(who, None)
                    continue
                before = min(newest.get(who, 0), stored)
                newest[who] = min(part.committed_offset, _read_up_to(audience, context, tp))
                is_free = audience.goes_back or name in audience.forgiven
                is_back = part.committed_offset < before and is_in_order and not is_free
                if is_back and not _are_marks(world, audience, tp, part.committed_offset, before):
                    text = f"{context.client_id} commits {part.committed_offset} of {tp}"
                    world.violate("commit goes back", f"{text} after {before}")

    world.cluster.intercept(OffsetCommitRequest, look)
    if world.promises(STEADY):
        world.cluster.intercept(
            LeaveGroupRequest, lambda request, _: world.violate("left", f"{request!r}")
        )


def note_overtaken(world: World, request: Any, context: RequestContext) -> None:
    """Take note of what a commit sets back that the coordinator is about to take.

    It may come from a connection that the member has given up: it was sent before what was taken
    already.
    """
    audience = _audience(world, request)
    if audience is None or context.connection_id >= audience.connections.get(request.member_id, 0):
        return
    for topic in request.topics:
        name = topic.name or _name_of(world, topic.topic_id)
        for part in topic.partitions:
            tp = TopicPartition(name, part.partition_index)
            stored = world.cluster.groups.committed(request.group_id, name, tp.partition) or 0
            if part.committed_offset < stored:
                audience.set_back[tp] = max(stored, audience.set_back.get(tp, 0))


def _audience(world: World, request: Any) -> Audience | None:
    return next((a for a in world.history.audiences if a.name == request.group_id), None)


def _read_up_to(audience: Audience, context: RequestContext, tp: TopicPartition) -> float:
    """The position that a member has read up to since it was given a partition.

    A program may name what it had read as a member before, that was removed; it reads that again.
    """
    for reading in audience.readings:
        if reading.name.replace(" ", "-") == context.client_id:
            return reading.positions.get(tp, 0)
    return math.inf


def _are_marks(world: World, audience: Audience, tp: TopicPartition, start: int, end: int) -> bool:
    """Say whether the offsets hold no record, for members that name some offsets and have others
    taken from their positions, which are behind the marks of transactions."""
    if not audience.mixes_commits:
        return False
    return logs.first_visible(world, tp, start, end, audience.committed_only) is None


def _name_of(world: World, topic_id: bytes) -> str:
    found = world.cluster.state.topics_by_id.get(topic_id)
    return "" if found is None else found.name


def _check(world: World, audience: Audience, tp: TopicPartition, offset: int) -> None:
    if not audience.starts_at_beginning or tp.topic in audience.forgiven:
        return
    done = audience.finished.get(tp, set())
    start = audience.done.get(tp, 0)
    reached = go_on(world, audience, tp, start, offset, done)
    audience.done[tp] = max(start, reached)
    if reached < offset:
        text = f"group {audience.name} commits {offset} of {tp}, but {reached} is not finished"
        world.violate("early commit", text)
