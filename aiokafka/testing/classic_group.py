"""The coordinator's state of a classic group, and its handling of join, sync, heartbeat, leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from aiokafka import _clock, errors
from aiokafka.testing.actions import ErrorCode, RefusedError

if TYPE_CHECKING:
    from aiokafka.testing.script import Script

# -- Members, and the stored state of a group


Protocols = list[tuple[str, bytes]]


class GroupState(Enum):
    """The states of a classic group, with Kafka's names as values."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupRefusedError(RefusedError):
    """The group coordinator rejects the request of a member."""

    def __init__(self, error: ErrorCode, member_id: str = "") -> None:
        super().__init__(error)
        self.member_id = member_id
        """The new member id, if the error is MEMBER_ID_REQUIRED: the client joins again with it."""


@dataclass(slots=True)
class Joined:
    """The JoinGroup response to a member."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: list[Member]
    """All members if the response is for the group leader, else empty."""
    skip_assignment: bool = False


@dataclass(slots=True, eq=False)
class Member:
    """A member, with the futures of its pending JoinGroup and SyncGroup requests and its session
    timer. Timeouts are in seconds."""

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
        """Return the member's metadata for a protocol; empty for an unsupported protocol."""
        return dict(self.protocols).get(protocol, b"")

    def stored(self) -> Member:
        """Return a copy to store, without the futures and the timer."""
        return replace(self, joining=None, syncing=None, expiry=None)


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The fields of a JoinGroup request. Timeouts are in seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool
    """Whether a new member must join twice: its first request gets MEMBER_ID_REQUIRED and a member
    id, with which it joins again (KIP-394)."""
    knows_skip: bool
    """Whether the response has the field SkipAssignment (KIP-814)."""

    def create_member(self, member_id: str, assignment: bytes = b"") -> Member:
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
    """The stored state of a group. The coordinator stores this state when a generation has its
    assignment, when a static member of a stable group is replaced, when the last member is removed,
    and when a group of the consumer protocol is converted to this group.
    """

    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[Member, ...] = ()


# -- The group

_T = TypeVar("_T")


@dataclass
class ClassicGroup:
    """One classic group. The methods change the group at once, and return futures of responses.
    Requests that Kafka rejects raise GroupRefusedError, at once or through the future.
    """

    group_id: str
    initial_delay: float
    """Seconds that the first rebalance waits for members (group.initial.rebalance.delay.ms)."""
    max_size: int
    script: Script
    """Its `wake` is called after every change, because a test may wait for the change
    (:meth:`FakeCluster.wait_for`)."""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    """Generated member ids with which no member has joined yet (KIP-394), and their timers."""
    _stored: StoredGroup = field(default_factory=StoredGroup)
    _timer: asyncio.TimerHandle | None = None
    _waits_for_more: bool = False

    # -- join ----------------------------------------------------------------------------------

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Handle a JoinGroup request; return a future of the response. The future is resolved when
        the join phase is complete, or at once if the join causes no rebalance."""
        self._check_protocols(request)
        static = self._static(request.instance_id)
        if request.member_id == "":
            if static is not None:
                return self._replace_static(static, request)
            return self._join_new(request)
        if static is not None and static.member_id != request.member_id:
            raise GroupRefusedError(errors.FencedInstanceId)
        if request.member_id in self.pending:
            self.pending.pop(request.member_id).cancel()
            return self._add(request, request.member_id)
        member = self.members.get(request.member_id)
        if member is None:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        return self._join_again(member, request)

    def _check_protocols(self, request: JoinRequest) -> None:
        if not request.protocol_type or not request.protocols:
            raise GroupRefusedError(errors.InconsistentGroupProtocolError)
        others = [m for m in self.members.values() if m.member_id != request.member_id]
        if not others:
            return
        names = {name for name, _ in request.protocols}
        common = set.intersection(*({name for name, _ in m.protocols} for m in others))
        if request.protocol_type != self.protocol_type or not names & common:
            raise GroupRefusedError(errors.InconsistentGroupProtocolError)

    def _join_new(self, request: JoinRequest) -> asyncio.Future[Joined]:
        if len(self.members) + len(self.pending) >= self.max_size:
            raise GroupRefusedError(errors.GroupMaxSizeReached)
        prefix = request.instance_id or request.client_id
        member_id = f"{prefix}-{_clock.random_uuid()}"
        if request.instance_id is None and request.needs_member_id:
            loop = asyncio.get_running_loop()
            self.pending[member_id] = loop.call_later(
                request.session_timeout, self._forget_pending, member_id
            )
            raise GroupRefusedError(errors.MemberIdRequired, member_id)
        return self._add(request, member_id)

    def _forget_pending(self, member_id: str) -> None:
        handle = self.pending.pop(member_id, None)
        if handle is not None:
            handle.cancel()
        self._maybe_complete_join()

    def _add(self, request: JoinRequest, member_id: str) -> asyncio.Future[Joined]:
        member = request.create_member(member_id)
        self.members[member_id] = member
        self.protocol_type = request.protocol_type
        return self._wait_for_join(member)

    def _replace_static(self, old: Member, request: JoinRequest) -> asyncio.Future[Joined]:
        """Handle a static member that rejoins without its member id: generate a new member id, and
        fence the previous one (KIP-345). A stable group rebalances only if its protocol changes.
        """
        self._drop(old, errors.FencedInstanceId.errno)
        member_id = f"{request.instance_id}-{_clock.random_uuid()}"
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member_id
        if self.state is not GroupState.STABLE:
            return self._add(request, member_id)
        joined = self._add_quietly(request, member_id, old.assignment)
        self._store()
        if self._choose_protocol() != self.protocol:
            return self._wait_for_join(joined)
        answer = self._answer(joined)
        if was_leader:
            # The rejoined leader must not compute an assignment. With KIP-814 the response has the
            # field SkipAssignment for that. An older response names the previous member id as the
            # leader, so that the client considers itself a follower.
            answer.skip_assignment = request.knows_skip
            answer.members = list(self.members.values()) if request.knows_skip else []
            if not request.knows_skip:
                answer.leader = old.member_id
        return _done(answer)

    def _add_quietly(self, request: JoinRequest, member_id: str, assignment: bytes) -> Member:
        member = request.create_member(member_id, assignment)
        self.members[member_id] = member
        self._restart_session(member)
        return member

    def _join_again(self, member: Member, request: JoinRequest) -> asyncio.Future[Joined]:
        changed = member.protocols != request.protocols
        member.protocols = request.protocols
        member.session_timeout = request.session_timeout
        member.rebalance_timeout = request.rebalance_timeout
        if self.state is GroupState.COMPLETING and not changed:
            self._restart_session(member)
            return _done(self._answer(member))
        # A follower that rejoins with the same protocols has missed the JoinGroup response: send
        # the response again. A leader that rejoins requests a rebalance.
        if self.state is GroupState.STABLE and not changed and member.member_id != self.leader:
            self._restart_session(member)
            return _done(self._answer(member))
        return self._wait_for_join(member)

    def _wait_for_join(self, member: Member) -> asyncio.Future[Joined]:
        if member.joining is not None and not member.joining.done():
            member.joining.set_exception(GroupRefusedError(errors.UnknownMemberIdError))
            # Mark the exception as retrieved: otherwise asyncio logs it if nobody awaits the
            # future.
            member.joining.exception()
        member.joining = asyncio.get_running_loop().create_future()
        # A member that waits for a JoinGroup response sends no heartbeats: stop its session timer.
        self._stop_expiry(member)
        waiting = member.joining
        self.rebalance()
        self._maybe_complete_join()
        return waiting

    # -- rebalance -----------------------------------------------------------------------------

    def rebalance(self) -> None:
        """Begin the join phase of a rebalance, unless it has begun or the group has no members."""
        if self.state is GroupState.PREPARING or not self.members:
            return
        # The leader may be computing an assignment for the former members. Fail the SyncGroup
        # requests that wait for that assignment.
        if self.state is GroupState.COMPLETING:
            for member in self.members.values():
                _fail(member.syncing, errors.RebalanceInProgressError.errno)
                member.syncing = None
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        longest = max(member.rebalance_timeout for member in self.members.values())
        delay = self.initial_delay if was_empty else longest
        self._stop_timer()
        if delay > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay, self._complete_join)
            if was_empty:
                self._waits_for_more = True
        self.script.wake()

    def _maybe_complete_join(self) -> None:
        """Complete the join phase if all members have joined, no member id given out with
        MEMBER_ID_REQUIRED is pending, and the initial rebalance delay is over."""
        if self.state is not GroupState.PREPARING or self._waits_for_more or self.pending:
            return
        if all(member.joining is not None for member in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin a generation with the joined members and the static members; remove the other
        members. A group without members becomes empty."""
        self._stop_timer()
        self._waits_for_more = False
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._drop(member, errors.UnknownMemberIdError.errno)
        self.generation += 1
        if not self.members:
            self._become_empty()
            return
        self.protocol = self._choose_protocol()
        self.state = GroupState.COMPLETING
        joined = [m for m in self.members.values() if m.joining is not None]
        if self.leader not in {member.member_id for member in joined}:
            self.leader = joined[0].member_id if joined else next(iter(self.members))
        for member in joined:
            waiting, member.joining = member.joining, None
            if waiting is not None and not waiting.done():
                waiting.set_result(self._answer(member))
            self._restart_session(member)
        longest = max(member.rebalance_timeout for member in self.members.values())
        self._timer = asyncio.get_running_loop().call_later(longest, self._sync_expired)
        self.script.wake()

    def _choose_protocol(self) -> str:
        """Return the protocol with the most votes. Each member votes for the first protocol in its
        list that all members support."""
        common = set.intersection(*({n for n, _ in m.protocols} for m in self.members.values()))
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _answer(self, member: Member) -> Joined:
        is_leader = member.member_id == self.leader
        members = list(self.members.values()) if is_leader else []
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            member.member_id,
            members,
        )

    # -- sync and heartbeat --------------------------------------------------------------------

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
    ) -> asyncio.Future[bytes]:
        """Handle a SyncGroup request; return a future of the member's assignment. The future is
        resolved when the leader has sent the assignments; at once if the group is stable."""
        member = self.check_member(member_id, instance_id, generation)
        if self.state is GroupState.PREPARING:
            raise GroupRefusedError(errors.RebalanceInProgressError)
        self._restart_session(member)
        if self.state is GroupState.STABLE:
            return _done(member.assignment)
        member.syncing = asyncio.get_running_loop().create_future()
        waiting = member.syncing
        if member_id == self.leader:
            self._assign(assignments)
        return waiting

    def _assign(self, assignments: dict[str, bytes]) -> None:
        self._stop_timer()
        self.state = GroupState.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            waiting, member.syncing = member.syncing, None
            if waiting is not None and not waiting.done():
                waiting.set_result(member.assignment)
        self._store()
        self.script.wake()

    def _sync_expired(self) -> None:
        """Remove the members that have sent no SyncGroup request. Called if the leader has sent no
        assignments within the longest rebalance timeout of the members."""
        for member in list(self.members.values()):
            if member.syncing is None:
                self._drop(member, errors.UnknownMemberIdError.errno)
        self._after_departure()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle a Heartbeat request; return the error code, 0 if the member need not rejoin."""
        member = self.check_member(member_id, instance_id, generation)
        self._restart_session(member)
        preparing = self.state is GroupState.PREPARING
        return errors.RebalanceInProgressError.errno if preparing else 0

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the member of a request. Raises GroupRefusedError for a member id, instance id or
        generation that is not current."""
        static = self._static(instance_id)
        if instance_id is not None and static is None:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        if static is not None and static.member_id != member_id:
            raise GroupRefusedError(errors.FencedInstanceId)
        member = self.members.get(member_id)
        if member is None:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        if generation != self.generation:
            raise GroupRefusedError(errors.IllegalGenerationError)
        return member

    # -- leaving -------------------------------------------------------------------------------

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Handle a LeaveGroup request for one member."""
        if instance_id is not None:
            static = self._static(instance_id)
            if static is None:
                raise GroupRefusedError(errors.UnknownMemberIdError)
            if member_id not in ("", static.member_id):
                raise GroupRefusedError(errors.FencedInstanceId)
            member_id = static.member_id
        if member_id in self.pending:
            self._forget_pending(member_id)
            return
        if member_id not in self.members:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        self.remove(member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, and rebalance the other members."""
        self._drop(self.members[member_id], errors.UnknownMemberIdError.errno)
        self._after_departure()

    def _after_departure(self) -> None:
        if not self.members and self.state is not GroupState.PREPARING:
            self.generation += 1
            self._become_empty()
        elif self.state is GroupState.PREPARING:
            self._maybe_complete_join()
        else:
            self.rebalance()

    def _become_empty(self) -> None:
        self._stop_timer()
        self.state = GroupState.EMPTY
        self.leader = self.protocol = ""
        self._store()
        self.script.wake()

    def _drop(self, member: Member, errno: int) -> None:
        del self.members[member.member_id]
        self._stop_expiry(member)
        _fail(member.joining, errno)
        _fail(member.syncing, errno)
        member.joining = member.syncing = None

    def close(self) -> None:
        """Cancel all timers, and forget the pending member ids."""
        self._stop_timer()
        for member in self.members.values():
            self._stop_expiry(member)
        for handle in self.pending.values():
            handle.cancel()
        self.pending.clear()

    # -- stored state --------------------------------------------------------------------------

    def _store(self) -> None:
        """Store the state. `load` restores it when a new coordinator loads the group."""
        members = tuple(member.stored() for member in self.members.values())
        self._stored = StoredGroup(
            self.generation, self.protocol_type, self.protocol, self.leader, members
        )

    def load(self, seconds: float) -> None:
        """Restore the stored state, as a new coordinator does. Member sessions restart after the
        loading time, `seconds`."""
        self.close()
        for member in list(self.members.values()):
            self._drop(member, errors.NotCoordinatorForGroupError.errno)
        self._timer = None
        self._waits_for_more = False
        stored = self._stored
        self.generation, self.protocol_type = stored.generation, stored.protocol_type
        self.protocol, self.leader = stored.protocol, stored.leader
        self.members = {member.member_id: member.stored() for member in stored.members}
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        for member in self.members.values():
            self._restart_session(member, seconds)
        self.script.wake()

    # -- change of the protocol (KIP-848) ------------------------------------------------------

    def take_over(self, generation: int, protocol_type: str, members: Iterable[Member]) -> None:
        """Continue a group of the consumer protocol, which was converted to this group: take over
        its members and their assignments."""
        self.generation, self.protocol_type = generation, protocol_type
        self.members = {member.member_id: member for member in members}
        self.leader = next(iter(self.members))
        self.protocol = self._choose_protocol()
        self.state = GroupState.STABLE
        for member in self.members.values():
            self._restart_session(member)
        self._store()

    def interrupt(self) -> None:
        """Fail the waiting JoinGroup and SyncGroup requests with REBALANCE_IN_PROGRESS, so that the
        members join again. Called before the group is converted to the consumer protocol."""
        for member in self.members.values():
            if member.joining is not None:
                self._restart_session(member)
            _fail(member.joining, errors.RebalanceInProgressError.errno)
            _fail(member.syncing, errors.RebalanceInProgressError.errno)
            member.joining = member.syncing = None

    # -- timers --------------------------------------------------------------------------------

    def _restart_session(self, member: Member, later: float = 0.0) -> None:
        """Restart the session timer of a member; its session begins `later` seconds from now."""
        self._stop_expiry(member)
        loop = asyncio.get_running_loop()
        member.expiry = loop.call_later(later + member.session_timeout, self._expire, member)

    def _expire(self, member: Member) -> None:
        if member.joining is None and self.members.get(member.member_id) is member:
            self.remove(member.member_id)

    def _static(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        found = (m for m in self.members.values() if m.instance_id == instance_id)
        return next(found, None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @staticmethod
    def _stop_expiry(member: Member) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
            member.expiry = None


def _done(value: _T) -> asyncio.Future[_T]:
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def _fail(waiting: asyncio.Future[_T] | None, errno: int) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_exception(GroupRefusedError(errno))
        # Mark the exception as retrieved: otherwise asyncio logs it if nobody awaits the future.
        waiting.exception()
