"""Ids of group members; and the consumers of each event loop, by group.

A transactional producer that gets only a group id for its offsets looks up the consumer here, and
commits with the member id and generation of that consumer (KIP-447).
"""

from __future__ import annotations

import base64
from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from aiokafka import _clock

if TYPE_CHECKING:
    from aiokafka.consumer.group.group import GroupView

__all__ = ["add_reader", "new_member_id", "readers"]

_readers: WeakKeyDictionary[AbstractEventLoop, dict[str, WeakSet[GroupView]]] = WeakKeyDictionary()


def add_reader(loop: AbstractEventLoop, reader: GroupView) -> None:
    """Register a consumer, until it is garbage-collected."""
    groups = _readers.setdefault(loop, {})
    for group_id in [group_id for group_id, found in groups.items() if not found]:
        del groups[group_id]
    groups.setdefault(reader.group_id, WeakSet()).add(reader)


def readers(loop: AbstractEventLoop, cluster_id: str | None, group_id: str) -> list[GroupView]:
    """Return the consumers of a group in a loop, without consumers that are known to use another
    cluster than `cluster_id`. If `cluster_id` is None, the cluster does not matter."""
    found = _readers.get(loop, {}).get(group_id, ())
    return [reader for reader in found if _is_same(reader.cluster_id, cluster_id)]


def _is_same(one: str | None, other: str | None) -> bool:
    """Return whether two cluster ids are equal or one is unknown: brokers before Kafka 0.10.1
    report no cluster id (None)."""
    return one is None or other is None or one == other


def new_member_id() -> str:
    """Return a random member id (KIP-1082), in the form of Kafka's UUIDs."""
    return base64.urlsafe_b64encode(_clock.random_uuid().bytes).decode().rstrip("=")
