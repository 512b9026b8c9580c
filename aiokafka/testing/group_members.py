"""Members of classic groups, and what a coordinator writes down of a group."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import Enum

Protocols = list[tuple[str, bytes]]


class GroupState(Enum):
    """The states of a classic group; the values are Kafka's names for them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupRefusedError(Exception):
    """The coordinator says no; `errno` says why."""

    def __init__(self, errno: int, member_id: str = "") -> None:
        super().__init__(errno)
        self.errno = errno
        self.member_id = member_id
        """The id to come back with, for MEMBER_ID_REQUIRED."""


@dataclass(slots=True)
class Joined:
    """The response to a member that has joined."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: list[Member]
    """All members, for the leader; nothing for the others."""
    skip_assignment: bool = False


@dataclass(slots=True, eq=False)
class Member:
    """A member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[bytes] | None = None
    expiry: asyncio.TimerHandle | None = None

    def metadata(self, protocol: str) -> bytes:
        """Return the metadata that the member sent for a protocol; empty if it sent none."""
        return dict(self.protocols).get(protocol, b"")

    def stored(self) -> Member:
        """Return a copy without anything that waits."""
        return replace(self, joining=None, syncing=None, expiry=None)


@dataclass(frozen=True, slots=True)
class Application:
    """What a JoinGroup request says."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool
    """The version of the request has new members come back with an id (KIP-394)."""
    knows_skip: bool
    """The version of the response can say that the assignment is to be kept (KIP-814)."""

    def as_member(self, member_id: str, assignment: bytes = b"") -> Member:
        """Return the member that applies, under an id."""
        return Member(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout,
            self.rebalance_timeout,
            self.protocols,
            assignment,
        )


@dataclass(frozen=True)
class StoredGroup:
    """A group as its coordinator has written it down, which is when a generation has its
    assignment, a static member was replaced, or the last member has left."""

    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[Member, ...] = ()
