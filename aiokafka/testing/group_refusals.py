"""Groups that cannot be described, as the responses of all kinds of groups show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["refused_group"]

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
