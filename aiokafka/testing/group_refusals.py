"""Groups that cannot be described, as the responses of all kinds of groups show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

__all__ = ["absent_groups", "refused_group"]

G = TypeVar("G")


def refused_group(kind: Callable[..., G], group_id: str, errno: int, **others: Any) -> G:
    """Return a described group with nothing but an error.

    Args:
        kind: The `DescribedGroup` of the response.
        group_id: The group.
        errno: Why it cannot be described.
        others: What only this kind of group has.
    """
    return kind(
        error_code=errno,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
        **others,
    )


def absent_groups(
    kind: Callable[..., G], context: RequestContext, group_ids: Iterable[str], **others: Any
) -> list[G]:
    """Return groups of a sort that a fake cluster has none of: not found, unless another broker is
    to be asked. The arguments are as in `refused_group`."""
    check = context.services.groups.check_coordinator
    return [
        refused_group(
            kind, each, check(context.node_id, each) or codes.GROUP_ID_NOT_FOUND, **others
        )
        for each in group_ids
    ]
