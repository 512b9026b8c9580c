"""Who may commit positions of a group, and read them."""

from __future__ import annotations

from aiokafka.testing import codes
from aiokafka.testing.group_members import GroupRefusedError, GroupState
from aiokafka.testing.script import RequestContext

_OFFSET_COMMIT = 8


def check_committer(
    context: RequestContext,
    group_id: str,
    member_id: str,
    instance_id: str | None,
    generation: int,
) -> int:
    """Return the error code for a commit to this broker by such a member; 0 if it may.

    A client that names no generation (-1) may commit while the group has no members.
    """
    groups = context.services.groups
    errno = groups.check_coordinator(context.node_id, group_id)
    if errno:
        return errno
    if group_id in groups.consumer:
        return _check_consumer(context, group_id, member_id, generation)
    group = groups.classic.get(group_id)
    if group is None or group.state is GroupState.EMPTY:
        if generation < 0:
            return codes.NONE
        if groups.exists(group_id):
            return codes.UNKNOWN_MEMBER_ID
        knows_groups = context.api_key == _OFFSET_COMMIT and context.api_version >= 9
        return codes.GROUP_ID_NOT_FOUND if knows_groups else codes.ILLEGAL_GENERATION
    try:
        group.check_member(member_id, instance_id, generation)
    except GroupRefusedError as exc:
        return exc.errno
    if context.api_key != _OFFSET_COMMIT:
        return codes.NONE  # in a transaction, which neither waits for a group nor keeps a member
    if group.state is GroupState.COMPLETING:
        return codes.REBALANCE_IN_PROGRESS
    if group.state is not GroupState.PREPARING:
        group.heartbeat(member_id, instance_id, generation)
    return codes.NONE


def _check_consumer(context: RequestContext, group_id: str, member_id: str, epoch: int) -> int:
    group = context.services.groups.consumer[group_id]
    if not group.members and epoch < 0:
        return codes.NONE
    member = group.members.get(member_id)
    if member is None:
        return codes.UNKNOWN_MEMBER_ID
    if member.epoch == epoch:
        return codes.NONE
    is_plain = context.api_key == _OFFSET_COMMIT and member.classic is None
    return codes.STALE_MEMBER_EPOCH if is_plain else codes.ILLEGAL_GENERATION
