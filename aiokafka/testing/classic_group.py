"""A consumer group of the classic protocol: join, sync, heartbeat, leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from aiokafka import _seams, errors
from aiokafka.testing.actions import RefusedError

if TYPE_CHECKING:
    from aiokafka.testing.script import Script

# -- Members, and the state that a coordinator stores


Protocols = list[tuple[str, bytes]]


class GroupState(Enum):
    """The states of a classic group; the values are Kafka's names for them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupRefusedError(RefusedError):
    """The group coordinator rejects the request of a member."""

    def __init__(self, errno: int, member_id: str = "") -> None:
        super().__init__(errno)
        self.member_id = member_id
        """With MEMBER_ID_REQUIRED, the id with which to join again."""


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


# -- The group

_T = TypeVar("_T")


@dataclass
class ClassicGroup:
    """One group. All methods change state at once; waiting is the caller's, on futures."""

    group_id: str
    initial_delay: float
    """Seconds that an empty group waits for more members (group.initial.rebalance.delay.ms)."""
    max_size: int
    script: Script
    """Woken after every change of state."""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    """Ids given to members that have not come back with them yet."""
    _stored: StoredGroup = field(default_factory=StoredGroup)
    _timer: asyncio.TimerHandle | None = None
    _waits_for_more: bool = False

    # -- join ----------------------------------------------------------------------------------

    def join(self, application: Application) -> asyncio.Future[Joined]:
        """Take a JoinGroup request; the future is the response.

        Raises:
            GroupRefusedError: at once, or through the future.
        """
        self._check_protocols(application)
        static = self._static(application.instance_id)
        if application.member_id == "":
            if static is not None:
                return self._replace_static(static, application)
            return self._join_new(application)
        if static is not None and static.member_id != application.member_id:
            raise GroupRefusedError(errors.FencedInstanceId.errno)
        if application.member_id in self.pending:
            self.pending.pop(application.member_id).cancel()
            return self._add(application, application.member_id)
        member = self.members.get(application.member_id)
        if member is None:
            raise GroupRefusedError(errors.UnknownMemberIdError.errno)
        return self._join_again(member, application)

    def _check_protocols(self, application: Application) -> None:
        if not application.protocol_type or not application.protocols:
            raise GroupRefusedError(errors.InconsistentGroupProtocolError.errno)
        others = [m for m in self.members.values() if m.member_id != application.member_id]
        if not others:
            return
        names = {name for name, _ in application.protocols}
        common = set.intersection(*({name for name, _ in m.protocols} for m in others))
        if application.protocol_type != self.protocol_type or not names & common:
            raise GroupRefusedError(errors.InconsistentGroupProtocolError.errno)

    def _join_new(self, application: Application) -> asyncio.Future[Joined]:
        if len(self.members) + len(self.pending) >= self.max_size:
            raise GroupRefusedError(errors.GroupMaxSizeReached.errno)
        prefix = application.instance_id or application.client_id
        member_id = f"{prefix}-{_seams.random_uuid()}"
        if application.instance_id is None and application.needs_member_id:
            loop = asyncio.get_running_loop()
            self.pending[member_id] = loop.call_later(
                application.session_timeout, self._forget_pending, member_id
            )
            raise GroupRefusedError(errors.MemberIdRequired.errno, member_id)
        return self._add(application, member_id)

    def _forget_pending(self, member_id: str) -> None:
        handle = self.pending.pop(member_id, None)
        if handle is not None:
            handle.cancel()
        self._maybe_complete_join()

    def _add(self, application: Application, member_id: str) -> asyncio.Future[Joined]:
        member = application.as_member(member_id)
        self.members[member_id] = member
        self.protocol_type = application.protocol_type
        return self._wait_for_join(member)

    def _replace_static(self, old: Member, application: Application) -> asyncio.Future[Joined]:
        """Replace a static member that is back under its instance id, and fence the old one
        (KIP-345).
        """
        self._drop(old, errors.FencedInstanceId.errno)
        member_id = f"{application.instance_id}-{_seams.random_uuid()}"
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member_id
        if self.state is not GroupState.STABLE:
            return self._add(application, member_id)
        joined = self._add_quietly(application, member_id, old.assignment)
        self._store()
        if self._vote() != self.protocol:
            return self._wait_for_join(joined)
        answer = self._answer(joined)
        if was_leader:
            # The assignment stands: the leader is not to make a new one, or told so (KIP-814).
            answer.skip_assignment = application.knows_skip
            answer.members = list(self.members.values()) if application.knows_skip else []
            if not application.knows_skip:
                answer.leader = old.member_id
        return _done(answer)

    def _add_quietly(self, application: Application, member_id: str, assignment: bytes) -> Member:
        member = application.as_member(member_id, assignment)
        self.members[member_id] = member
        self._touch(member)
        return member

    def _join_again(self, member: Member, application: Application) -> asyncio.Future[Joined]:
        changed = member.protocols != application.protocols
        member.protocols = application.protocols
        member.session_timeout = application.session_timeout
        member.rebalance_timeout = application.rebalance_timeout
        if self.state is GroupState.COMPLETING and not changed:
            self._touch(member)
            return _done(self._answer(member))
        # It has missed a response, and gets it again. When the leader joins, it wants to make
        # another assignment.
        if self.state is GroupState.STABLE and not changed and member.member_id != self.leader:
            self._touch(member)
            return _done(self._answer(member))
        return self._wait_for_join(member)

    def _wait_for_join(self, member: Member) -> asyncio.Future[Joined]:
        if member.joining is not None and not member.joining.done():
            member.joining.set_exception(GroupRefusedError(errors.UnknownMemberIdError.errno))
            member.joining.exception()  # its connection may be gone
        member.joining = asyncio.get_running_loop().create_future()
        # The request is kept, and its member waits: no heartbeat can come before the response.
        self._stop_expiry(member)
        waiting = member.joining
        self.rebalance()
        self._maybe_complete_join()
        return waiting

    # -- rebalance -----------------------------------------------------------------------------

    def rebalance(self) -> None:
        """Ask all members to join again; nothing happens if they are being asked already."""
        if self.state is GroupState.PREPARING or not self.members:
            return
        # The leader may have been assigning: its result is for members that are not the same any
        # more.
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
        """Complete as soon as all members have joined."""
        if self.state is not GroupState.PREPARING or self._waits_for_more or self.pending:
            return
        if all(member.joining is not None for member in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin a generation of the members that have joined; remove the others, except static
        ones.
        """
        self._stop_timer()
        self._waits_for_more = False
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._drop(member, errors.UnknownMemberIdError.errno)
        self.generation += 1
        if not self.members:
            self._become_empty()
            return
        self.protocol = self._vote()
        self.state = GroupState.COMPLETING
        joined = [m for m in self.members.values() if m.joining is not None]
        if self.leader not in {member.member_id for member in joined}:
            self.leader = joined[0].member_id if joined else next(iter(self.members))
        for member in joined:
            waiting, member.joining = member.joining, None
            if waiting is not None and not waiting.done():
                waiting.set_result(self._answer(member))
            self._touch(member)
        longest = max(member.rebalance_timeout for member in self.members.values())
        self._timer = asyncio.get_running_loop().call_later(longest, self._sync_expired)
        self.script.wake()

    def _vote(self) -> str:
        """Return the protocol that most members prefer, among those that all of them know."""
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
        """Take a SyncGroup request; the future is the member's assignment.

        Raises:
            GroupRefusedError: at once, or through the future.
        """
        member = self.check_member(member_id, instance_id, generation)
        if self.state is GroupState.PREPARING:
            raise GroupRefusedError(errors.RebalanceInProgressError.errno)
        self._touch(member)
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
        """Remove members that joined but never asked for their assignment."""
        for member in list(self.members.values()):
            if member.syncing is None:
                self._drop(member, errors.UnknownMemberIdError.errno)
        self._after_departure()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Take a Heartbeat request; the error code, 0 if all is well.

        Raises:
            GroupRefusedError: the member is not one.
        """
        member = self.check_member(member_id, instance_id, generation)
        self._touch(member)
        preparing = self.state is GroupState.PREPARING
        return errors.RebalanceInProgressError.errno if preparing else 0

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the member that a request names.

        Raises:
            GroupRefusedError: unknown, fenced, or of another generation.
        """
        static = self._static(instance_id)
        if instance_id is not None and static is None:
            raise GroupRefusedError(errors.UnknownMemberIdError.errno)
        if static is not None and static.member_id != member_id:
            raise GroupRefusedError(errors.FencedInstanceId.errno)
        member = self.members.get(member_id)
        if member is None:
            raise GroupRefusedError(errors.UnknownMemberIdError.errno)
        if generation != self.generation:
            raise GroupRefusedError(errors.IllegalGenerationError.errno)
        return member

    # -- leaving -------------------------------------------------------------------------------

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Take a LeaveGroup request for one member.

        Raises:
            GroupRefusedError: it is not a member.
        """
        if instance_id is not None:
            static = self._static(instance_id)
            if static is None:
                raise GroupRefusedError(errors.UnknownMemberIdError.errno)
            if member_id not in ("", static.member_id):
                raise GroupRefusedError(errors.FencedInstanceId.errno)
            member_id = static.member_id
        if member_id in self.pending:
            self._forget_pending(member_id)
            return
        if member_id not in self.members:
            raise GroupRefusedError(errors.UnknownMemberIdError.errno)
        self.remove(member_id)

    def remove(self, member_id: str) -> None:
        """Take a member out, as when its session has expired."""
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
        """Stop all timers."""
        self._stop_timer()
        for member in self.members.values():
            self._stop_expiry(member)
        for handle in self.pending.values():
            handle.cancel()
        self.pending.clear()

    # -- memory --------------------------------------------------------------------------------

    def _store(self) -> None:
        """Write down what another coordinator would have to know."""
        members = tuple(member.stored() for member in self.members.values())
        self._stored = StoredGroup(
            self.generation, self.protocol_type, self.protocol, self.leader, members
        )

    def load(self, seconds: float) -> None:
        """Restore what the log of the coordinator has; sessions begin once it is loaded, in so many
        seconds.
        """
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
            self._touch(member, seconds)
        self.script.wake()

    # -- change of the protocol (KIP-848) ------------------------------------------------------

    def take_over(self, generation: int, protocol_type: str, members: Iterable[Member]) -> None:
        """Go on with members that have their assignments, from a group of the other protocol."""
        self.generation, self.protocol_type = generation, protocol_type
        self.members = {member.member_id: member for member in members}
        self.leader = next(iter(self.members))
        self.protocol = self._vote()
        self.state = GroupState.STABLE
        for member in self.members.values():
            self._touch(member)
        self._store()

    def interrupt(self) -> None:
        """Have members join again that wait for a response, in whatever group there is then."""
        for member in self.members.values():
            if member.joining is not None:
                self._touch(member)
            _fail(member.joining, errors.RebalanceInProgressError.errno)
            _fail(member.syncing, errors.RebalanceInProgressError.errno)
            member.joining = member.syncing = None

    # -- timers --------------------------------------------------------------------------------

    def _touch(self, member: Member, later: float = 0.0) -> None:
        """Restart the session of a member that was heard of, `later` seconds from now."""
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
        waiting.exception()  # perhaps nothing waits for it any more
