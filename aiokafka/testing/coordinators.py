"""Coordinators of a fake cluster that move, and load what they coordinate."""

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
    ClusterState = later("aiokafka.testing.state.ClusterState")

KINDS = {"group": 0, "transaction": 1}

Key = tuple[int, str]
"""Kind, and group id or transactional id."""


class Coordinators:
    """Who coordinates groups and transactions in a :class:`FakeCluster`; see its `coordinators`.

    A real coordinator keeps its groups in memory and writes down what must not be lost. When
    another broker takes over it reads that, and answers COORDINATOR_LOAD_IN_PROGRESS meanwhile.
    Members of the last complete generation are members again, and their sessions begin afresh; who
    was joining, and a generation without assignment, is forgotten. Members of the consumer protocol
    and transactions are as they were.
    """

    def __init__(self, state: ClusterState, random: Random) -> None:
        #: How long each coordinator loads after it has moved or its broker has started again, as
        #: seconds or (least, most). None (the default): it takes no time, and nothing is forgotten.
        self.load_time: Seconds | None = None
        self._state = state
        self._random = random
        self._groups: Groups | None = None
        self._loaded_at: dict[Key, int] = {}  # the broker that has it in memory
        self._busy_until: dict[Key, float] = {}

    # -- for tests -----------------------------------------------------------------------------

    def move(self, kind: str, key: str, broker_id: int) -> None:
        """Let another broker coordinate a group or transactional id; the old one answers
        NOT_COORDINATOR from now on.

        Args:
            kind: ``"group"`` or ``"transaction"``.
            key: The group id or transactional id.
            broker_id: The new coordinator. While it is stopped another one takes its place.

        Raises:
            KeyError: no such kind or broker.
        """
        self._state.nodes[broker_id]  # raises
        place = (_kind(kind), key)
        former = self._state.coordinator(*place)
        self._state.placed_coordinators[place] = broker_id
        if self.load_time is not None and self._state.coordinator(*place) != former:
            self._begin(place, drawn(self.load_time, self._random))

    def load(self, kind: str, key: str, seconds: float) -> None:
        """Let the coordinator of a group or transactional id load it again: requests get
        COORDINATOR_LOAD_IN_PROGRESS for so long.

        Raises:
            KeyError: no such kind.
        """
        self._begin((_kind(kind), key), seconds)

    def heal(self) -> None:
        """End all loading, and let moves take no time from now on."""
        self.load_time = None
        self._busy_until.clear()
        self._loaded_at.clear()

    # -- for the brokers -----------------------------------------------------------------------

    def attach(self, groups: Groups) -> None:
        """Set the groups that a new coordinator loads."""
        self._groups = groups

    def check(self, kind: int, key: str, node_id: int) -> int:
        """Return the error code for a request about a key to this broker; 0 if it is the right
        one.
        """
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
        """Forget what a broker had loaded: it loses its memory when it stops."""
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
