"""Revoke partitions and take over others, with the application's listener in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka.consumer._shared import ListenerMethod, call_listener
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka.abc import ConsumerRebalanceListener
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.group.commits import GroupCommits
    from aiokafka.consumer.position.committed import Identity

__all__ = ["Handover"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

Partitions = frozenset[TopicPartition]

# Parts of the rebalance timeout: members that have not joined by its end lose everything.
_WAIT_FOR_APPLICATION = 0.5
_WAIT_FOR_COMMIT = 0.1


class Handover:
    """Takes the steps of a rebalance that the application sees. Called by the membership's task
    only, which writes the assignment through it.

    A partition goes to another member like this; `revoke()` takes the steps 1 to 4:

    1. `hold()`: readers get no more records. Without it the application could get the next records
       after its last commit, and the new owner would read them again.
    2. The application finishes what it has in hand: it asks for more, or commits. The wait ends
       early enough for the member to join in time, or the group would remove it.
    3. What is finished is committed, if auto-commit is on. The member still has its old identity,
       which the coordinator takes until the next generation begins.
    4. The listener hears of it. It may commit, too, and its own state is still that of the
       partition's owner. After it, no older commit may be in the place of these.
    5. Only then the assignment changes, and the group is told: another member can get the partition
       from here on. Late fetch responses and commits of it are void (`PartitionState.retire()`,
       `GroupCommits.forget()`).
    6. `release()`: readers get records again, of what is left.

    A member that the group has removed cannot do 2 and 3: other members may have the partitions
    already. So `lose()` drops the assignment first, and tells the listener afterwards. If it hears
    of that in step 2 or 3, `revoke()` ends there, and leaves the rest to `lose()`.

    Owns: which partitions the listener has heard of and has to hear the end of, and that listener;
    the listener that has heard of an end and waits for the next assignment;
    the last assignment by the group, and as it was when the application unsubscribed, for what is
    finished then.
    """

    def __init__(
        self,
        shared: Shared,
        route: Callable[[], None],
        commits: GroupCommits,
        tasks: TaskOwner,
    ) -> None:
        self._tasks = tasks
        self._config = shared.config
        self._log = SubjectLog(log, shared.config.subject)
        self._subscriptions = subscriptions = shared.subscriptions
        self._desk = shared.desk
        self._route = route
        self._commits = commits
        self._held = subscriptions.assignment
        self._given_up = commits.give_up(self._held)
        self._listener: ConsumerRebalanceListener | None = None
        self._told: Partitions = frozenset()
        self._waiting: ConsumerRebalanceListener | None = None

    @property
    def owned(self) -> Partitions:
        """The partitions that the group has assigned, not those that the application has chosen
        itself."""
        subscriptions = self._subscriptions
        return subscriptions.assignment.tps if subscriptions.is_by_group else frozenset()

    @property
    def is_owed(self) -> bool:
        """Whether a listener has yet to hear that its partitions are gone."""
        return bool(self._told)

    async def revoke(self, revoked: Partitions) -> bool:
        """Let the application finish what it has of these partitions, commit that if so
        configured, call the listener; False if the group removed the member before that."""
        self._desk.hold()
        self._log.info("Revoking %s", _names(revoked))
        await self._wait_for_application(revoked)
        if self._config.enable_auto_commit and not self._commits.is_lost:
            await self._commits.commit_finished(self._commit_limit)
        if self._commits.is_lost:
            return False
        await self._tell_revoked(revoked)
        await self._commits.restore_overwritten(
            asyncio.get_running_loop().time() + self._commit_limit
        )
        return True

    async def begin(self) -> None:
        """Call the listener before an eager member joins with nothing to give up, as aiokafka does
        before every join. Not again if `unsubscribe()`, or the loss of the partitions, was the
        reason for a call since it was last assigned something: calls come in pairs."""
        listener = self._subscriptions.listener
        if listener is not None and listener is not self._waiting:
            self._waiting = listener
            self._desk.hold()
            await self._call(listener.on_partitions_revoked, frozenset())

    async def lose(self) -> None:
        """Drop everything at once, then call the listener: the group has removed us."""
        lost = self.owned
        self._desk.hold()
        self._assign(frozenset(), keep=False)
        if not lost:
            return
        self._log.warning("Lost %s", _names(lost))
        await self._tell_lost(lost)

    def let_go(self) -> None:
        """Note that the application unsubscribes: what `abandon()` commits later belongs to the
        topics of now.

        It ends with that, whether there is a membership to commit it in or not: in a later one the
        partitions may be another member's, which has committed more.
        """
        self._given_up = self._commits.give_up(self._held)
        self._held = Assignment({}, -1)

    async def abandon(self, identity: Identity) -> None:
        """Finish with what the application has unsubscribed from: commit what it had finished, as
        the member that we still are, and call the listener of then."""
        self._desk.hold()
        gone = self._told
        # The group has removed this member meanwhile, and others may have the partitions: there is
        # nothing to commit any more, and lost is the word for it.
        if identity.generation < 0:
            self.close_books()
            await self._tell_lost(gone)
            return
        try:
            await self.commit_abandoned(identity)
        except KafkaError as error:
            self._commits.complain(error)
        self.close_books()
        await self._tell_revoked(gone)

    async def commit_abandoned(self, identity: Identity) -> None:
        """Commit, if so configured, what was finished of what the application has unsubscribed
        from, once. Raises as `OffsetCommitter.commit`."""
        if self._config.enable_auto_commit:
            await self._commits.commit_abandoned(self._given_up, identity, self._commit_limit)
        self.close_books()

    def close_books(self) -> None:
        """Let `abandon()` commit nothing of the last assignment: that is over, and what others have
        committed of its partitions must not be put back."""
        self._held = Assignment({}, -1)
        self.let_go()

    async def take_over(self, assigned: Partitions) -> None:
        """Assign exactly these partitions, each with a position to be found: eager rebalances."""
        if self._assign(assigned, keep=False):
            await self._tell_assigned(assigned)

    # In the next two, partitions that stay go on as if nothing had happened (KIP-429).

    async def give_up_all_but(self, kept: Partitions) -> bool:
        """Revoke all partitions but these. True if there were any, which the group can assign to
        others then."""
        owned = self.owned
        revoked = owned - kept
        if revoked and await self.revoke(revoked):
            # `kept` may name partitions that are still to come: `extend()` adds those. And what is
            # owned by now may be less: none after `unsubscribe()`, also if the application has
            # subscribed again since.
            ids = self._subscriptions.assignment.topic_ids
            self._assign(self.owned & kept, keep=True, topic_ids=ids)
        return bool(revoked)

    async def extend(
        self, assigned: Partitions, topic_ids: Mapping[str, bytes] | None = None
    ) -> None:
        """Assign these partitions, among them all that are assigned now; with their topics' ids, if
        it is by them that the group assigns."""
        added = assigned - self.owned
        if self._assign(assigned, keep=True, topic_ids=topic_ids):
            await self._tell_assigned(added)

    def release(self) -> None:
        """Give readers records again."""
        self._desk.release()

    @property
    def _commit_limit(self) -> float:
        limit = (self._config.rebalance_timeout or 1.0) * _WAIT_FOR_COMMIT
        return min(limit, self._config.client.request_timeout)

    # The listener that heard of partitions hears of their end, though the application may have
    # subscribed with another one since.

    async def _tell_assigned(self, added: Partitions) -> None:
        self._log.info("Assigned %s", _names(added))
        self._listener, self._waiting = self._subscriptions.listener, None
        if self._listener is not None:
            # Before the call: a listener that fails half-way has to hear the end of it all the
            # same.
            self._told |= added
            self._desk.hold()
            # Held (above) until it returns, because it may seek: no record may be returned from
            # where the position was before.
            await self._call(self._listener.on_partitions_assigned, added)

    async def _tell_revoked(self, revoked: Partitions) -> None:
        # Before the call, so that a listener whose call is cancelled is not called again for them.
        self._told -= revoked
        if self._listener is not None and revoked:
            self._waiting = self._listener
            await self._call(self._listener.on_partitions_revoked, revoked)

    async def _tell_lost(self, lost: Partitions) -> None:
        self._told -= lost
        if self._listener is not None and lost:
            self._waiting = self._listener
            # Duck-typed listeners know the other two only.
            on_lost = getattr(
                self._listener, "on_partitions_lost", self._listener.on_partitions_revoked
            )
            await self._call(on_lost, lost)

    def _assign(
        self, partitions: Partitions, *, keep: bool, topic_ids: Mapping[str, bytes] | None = None
    ) -> bool:
        """Write the assignment; False if the application has subscribed to something else
        meanwhile."""
        before = self.owned
        # While the states are still there: they say what the application has in hand of each. What
        # comes was perhaps here before, and others have committed for it since.
        self._commits.forget(before ^ partitions if keep else before | partitions)
        if self._subscriptions.subscription is None or self._subscriptions.is_manual:
            return False
        self._subscriptions.assign_from_subscribed(
            sorted(partitions), keep=keep, topic_ids=topic_ids
        )
        self._held = self._subscriptions.assignment
        self._commits.end_all_but(self._held.tps)
        self._route()
        return True

    async def _wait_for_application(self, revoked: Partitions) -> None:
        """Wait until the application asks for more or has committed, as long as the group can wait
        for us."""
        limit = (self._config.rebalance_timeout or 1.0) * _WAIT_FOR_APPLICATION
        deadline = asyncio.get_running_loop().time() + limit
        while self._commits.in_work(revoked) and not self._commits.is_lost:
            if not await self._desk.polls.wait(deadline):
                self._log.warning(
                    "Records that were returned are neither committed nor followed by another "
                    "call after %g s: their partitions are given up, others may read them again",
                    limit,
                )
                return

    async def _call(self, method: ListenerMethod, partitions: Partitions) -> None:
        """Call the listener. What it raises goes to the application with its next call."""
        try:
            await call_listener(self._desk, method, partitions)
        except asyncio.CancelledError as error:
            # A CancelledError here is one of two: ours, or that of something which the listener
            # awaited. Taken for ours, the second would end the membership, and nothing would be
            # logged.
            if self._tasks.is_ending_us():
                raise
            name = getattr(method, "__qualname__", repr(method))
            self._log.exception("Rebalance listener failed: %s awaited what was cancelled", name)
            failure = KafkaError(f"{name} of the rebalance listener awaited what was cancelled")
            failure.__cause__ = error
            self._desk.fail_next_call(failure)
        except Exception as error:
            self._log.exception("Rebalance listener failed")
            self._desk.fail_next_call(error)


def _names(partitions: Partitions) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)) or "nothing"
