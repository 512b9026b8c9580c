"""Assigns groups and transactional ids to coordinators, which take time to load their state."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka._typing import later
from aiokafka.testing.replication import Seconds, drawn

if TYPE_CHECKING:
    from aiokafka.testing.groups import Groups
    from aiokafka.testing.state import ClusterState
else:
    Groups = later("aiokafka.testing.groups.Groups")
    ClusterState = later("aiokafka.testing.state.ClusterState")

KINDS = {"group": 0, "transaction": 1}

Key = tuple[int, str]
"""(0, group id) or (1, transactional id)."""


class Coordinators:
    """Group and transaction coordinators of a :class:`FakeCluster` (its `coordinators`).

    A real coordinator keeps groups in memory, and stores a part of their state in a topic. A new
    coordinator returns COORDINATOR_LOAD_IN_PROGRESS while it loads the stored state. A classic
    group then has the members of its last generation with an assignment, with new sessions; joining
    members, and a generation without an assignment, are lost. Groups of the consumer protocol and
    transactions do not change.

    The methods raise KeyError for an unknown kind or broker id.
    """

    def __init__(self, state: ClusterState, random: Random) -> None:
        #: Loading time after a move or a restart of the broker, in seconds or (least, most).
        #: None (the default): loading takes no time, and no state is lost.
        self.load_time: Seconds | None = None
        self._state = state
        self._random = random
        self._groups: Groups | None = None
        self._loaded_at: dict[Key, int] = {}  # the broker that has loaded the state; -1 for none
        self._busy_until: dict[Key, float] = {}

    # -- for tests -----------------------------------------------------------------------------

    def move(self, kind: str, key: str, broker_id: int) -> None:
        """Make another broker the coordinator of a group or transactional id. The previous
        coordinator then returns NOT_COORDINATOR.

        Args:
            kind: ``"group"`` or ``"transaction"``.
            key: The group id or transactional id.
            broker_id: The new coordinator. While it is stopped, another broker coordinates."""
        self._state.nodes[broker_id]  # raises KeyError for an unknown broker
        place = (_kind(kind), key)
        former = self._state.coordinator(*place)
        self._state.placed_coordinators[place] = broker_id
        if self.load_time is not None and self._state.coordinator(*place) != former:
            self._begin(place, drawn(self.load_time, self._random))

    def load(self, kind: str, key: str, seconds: float) -> None:
        """Make the coordinator of a group or transactional id load its state again. Requests get
        COORDINATOR_LOAD_IN_PROGRESS for `seconds`."""
        self._begin((_kind(kind), key), seconds)

    def heal(self) -> None:
        """End all loading; later moves take no time."""
        self.load_time = None
        self._busy_until.clear()
        self._loaded_at.clear()

    # -- for the brokers -----------------------------------------------------------------------

    def attach(self, groups: Groups) -> None:
        """Set the groups, whose `load` a new coordinator calls."""
        self._groups = groups

    def check(self, kind: int, key: str, node_id: int) -> int:
        """Return 0 if this broker coordinates the key and has loaded it, else the error code."""
        place = (kind, key)
        if self._state.coordinator(kind, key) != node_id:
            return errors.NotCoordinatorForGroupError.errno
        if self.load_time is not None and self._loaded_at.setdefault(place, node_id) != node_id:
            self._begin(place, drawn(self.load_time, self._random))
        until = self._busy_until.get(place)
        if until is None:
            return 0
        if asyncio.get_running_loop().time() < until:
            return errors.GroupLoadInProgressError.errno
        del self._busy_until[place]
        return 0

    def broker_stopped(self, node_id: int) -> None:
        """Make a stopped broker load the states of its groups and transactional ids again."""
        for place, loaded_at in self._loaded_at.items():
            if loaded_at == node_id:
                self._loaded_at[place] = -1

    def _begin(self, place: Key, seconds: float) -> None:
        self._busy_until[place] = asyncio.get_running_loop().time() + seconds
        self._loaded_at[place] = self._state.coordinator(*place)
        if self._groups is not None and place[0] == KINDS["group"]:
            self._groups.load(place[1], seconds)


def _kind(name: str) -> int:
    if name not in KINDS:
        raise KeyError(f"kind must be one of {', '.join(KINDS)}, not {name!r}")
    return KINDS[name]
