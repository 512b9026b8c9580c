"""Revoke and assign partitions, and call the application's rebalance listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka.consumer._context import ListenerMethod, call_listener
from aiokafka.consumer.group.commits import RevokedAssignment
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka.abc import ConsumerRebalanceListener
    from aiokafka.consumer._context import ConsumerContext
    from aiokafka.consumer.fetch.fetcher import Fetcher
    from aiokafka.consumer.group.commits import GroupCommits
    from aiokafka.consumer.position.committed import Identity

__all__ = ["Rebalance"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

Partitions = frozenset[TopicPartition]

_NOTHING = Assignment({}, -1)
_NOTHING_REVOKED = RevokedAssignment(_NOTHING, {})

# `revoke()` waits at most for these parts of the rebalance timeout: `_WAIT_FOR_APPLICATION` for the
# application, `_WAIT_FOR_COMMIT` for the auto-commit, and another `_WAIT_FOR_COMMIT` for the check
# for late commits. After the timeout the group removes members that have not joined.
_WAIT_FOR_APPLICATION = 0.5
_WAIT_FOR_COMMIT = 0.1


class Rebalance:
    """The steps of a rebalance that the application sees: revoke, assign, and call the listener.
    The membership task takes these steps; at the end of a subscription, `unsubscribe()`,
    `assign()` and `stop()` take some of them. Only this class applies assignments of the group.

    A partition goes to another member in these steps; `revoke()` takes steps 1 to 4:

    1. `hold()`: calls return no more records. The application must not get records after its last
       commit, because the new owner would read the same records.
    2. The application finishes its records: it calls `getone()` or `getmany()` again, or commits.
       The wait ends early enough for the member to join before the group would remove it.
    3. Auto-commit commits the finished records. The coordinator accepts the member's old identity
       until the next generation begins.
    4. The listener is called, and may commit, too. An earlier commit without a response may
       overwrite these commits later, so `revoke()` compares the committed offsets and commits again
       if they differ (`GroupCommits.restore_overwritten()`).
    5. The assignment changes, and then the member reports the change to the group. Another member
       can get the partition from here on. Late fetch responses and commits are dropped
       (`PartitionState.retire()`, `GroupCommits.forget_committed()`).
    6. `release()`: calls return records of the remaining partitions again.

    A member that the group has removed cannot take steps 2 and 3: other members may have the
    partitions already. So `lose_all()` first drops the assignment, and then calls the listener. If
    the group removes the member during step 2 or 3, `revoke()` returns False, and the caller calls
    `lose_all()`.

    Owns:

    - The listener of the last assignment, and the partitions that this listener knows as assigned.
    - `_revoked_listener`: the listener that was last called for a revocation or loss; None after
      the next assignment.
    - The last assignment by the group, and the assignment that `unsubscribe()` has ended.
    """

    def __init__(
        self, context: ConsumerContext, fetcher: Fetcher, commits: GroupCommits, tasks: TaskOwner
    ) -> None:
        self._tasks = tasks
        self._config = context.config
        self._log = SubjectLog(log, context.config.subject)
        self._subscriptions = subscriptions = context.subscriptions
        self._queue = context.queue
        self._fetcher = fetcher
        self._commits = commits
        self._assigned = subscriptions.assignment
        self._unsubscribed = commits.as_revoked(self._assigned)
        self._listener: ConsumerRebalanceListener | None = None
        self._listener_partitions: Partitions = frozenset()
        self._revoked_listener: ConsumerRebalanceListener | None = None

    @property
    def owned(self) -> Partitions:
        """The partitions that the group has assigned; empty for a manual assignment."""
        subscriptions = self._subscriptions
        return subscriptions.assignment.tps if subscriptions.is_by_group else frozenset()

    @property
    def is_call_due(self) -> bool:
        """Whether the revocation or loss of partitions has to be reported to a listener."""
        return bool(self._listener_partitions)

    async def revoke(self, revoked: Partitions) -> bool:
        """Wait until the application has finished its records, auto-commit, and call the listener.
        The caller then changes the assignment. Return False, without a call of the listener, if the
        group has removed the member."""
        self._queue.hold()
        self._log.info("Revoking %s", _names(revoked))
        await self._wait_for_application(revoked)
        if self._config.enable_auto_commit and not self._commits.is_removed:
            await self._commits.commit_finished(self._commit_limit)
        if self._commits.is_removed:
            return False
        await self._call_revoked(revoked)
        await self._commits.restore_overwritten(
            asyncio.get_running_loop().time() + self._commit_limit
        )
        return True

    async def begin_join(self) -> None:
        """Call `on_partitions_revoked()` with no partitions before an eager member without
        partitions joins, as aiokafka 0.14 does. Skip the call if the listener was already called
        for a revocation or loss since its last assignment: it gets one such call for each
        assignment."""
        listener = self._subscriptions.listener
        if listener is not None and listener is not self._revoked_listener:
            self._revoked_listener = listener
            self._queue.hold()
            await self._call(listener.on_partitions_revoked, frozenset())

    async def lose_all(self) -> None:
        """Drop all partitions because the group has removed the member, then call the listener if
        there were partitions."""
        lost = self.owned
        self._queue.hold()
        self._assign(frozenset(), keep=False)
        if not lost:
            return
        self._log.warning("Lost %s", _names(lost))
        await self._call_lost(lost)

    # -- unsubscribe() -----------------------------------------------------------------------------

    def on_unsubscribed(self) -> None:
        """Keep the last assignment with the present ids of its topics, for `revoke_unsubscribed()`.

        The kept assignment is used for one commit. If the membership has ended before, it is
        dropped without a commit, because other members may have committed later offsets.
        """
        self._unsubscribed = self._commits.as_revoked(self._assigned)
        self._assigned = _NOTHING

    async def revoke_unsubscribed(self, identity: Identity) -> None:
        """Auto-commit the finished records of the partitions that `unsubscribe()` has unassigned,
        and call the listener. Log errors of the commit."""
        self._queue.hold()
        gone = self._listener_partitions
        # If the group has removed the member, other members may have the partitions: commit
        # nothing, and report the partitions as lost.
        if identity.generation < 0:
            self.forget_unsubscribed()
            await self._call_lost(gone)
            return
        try:
            await self.commit_unsubscribed(identity)
        except KafkaError as error:
            self._commits.log_failure(error)
        self.forget_unsubscribed()
        await self._call_revoked(gone)

    async def commit_unsubscribed(self, identity: Identity) -> None:
        """Auto-commit the finished records of the partitions that `unsubscribe()` has unassigned,
        then forget them, so that a second call commits nothing. Raises as
        `GroupCommits.commit_revoked`."""
        if self._config.enable_auto_commit:
            await self._commits.commit_revoked(self._unsubscribed, identity, self._commit_limit)
        self.forget_unsubscribed()

    def forget_unsubscribed(self) -> None:
        """Drop the assignments that are kept for a commit after `unsubscribe()`: the commit is
        done, or could overwrite commits of other members."""
        self._assigned, self._unsubscribed = _NOTHING, _NOTHING_REVOKED

    # -- assignments of the group ------------------------------------------------------------------

    async def assign_only(self, assigned: Partitions) -> None:
        """Assign exactly these partitions after an eager rebalance, and call the listener. All
        partitions begin without a position. Do nothing if the subscription has ended."""
        if self._assign(assigned, keep=False):
            await self._call_assigned(assigned)

    # `revoke_all_but` and `assign_all` keep the state of partitions that stay assigned (KIP-429).

    async def revoke_all_but(self, kept: Partitions) -> bool:
        """Revoke all partitions except `kept`. Return whether there were partitions to revoke. If
        the group removes the member during the revocation, the partitions stay assigned until
        `lose_all()`."""
        owned = self.owned
        revoked = owned - kept
        if revoked and await self.revoke(revoked):
            # Keep only `self.owned & kept`, because `kept` may include partitions that are not
            # owned yet (`assign_all()` adds them later). Read `self.owned` again: if the listener
            # has called `unsubscribe()` in `revoke()`, it is empty now, even if the application has
            # subscribed again.
            ids = self._subscriptions.assignment.topic_ids
            self._assign(self.owned & kept, keep=True, topic_ids=ids)
        return bool(revoked)

    async def assign_all(
        self, assigned: Partitions, topic_ids: Mapping[str, bytes] | None = None
    ) -> None:
        """Assign `assigned`, which includes all partitions that are assigned now, and call the
        listener for the added partitions. Do nothing if the subscription has ended. `topic_ids`:
        the ids of the topics, if the group assigns by topic id."""
        added = assigned - self.owned
        if self._assign(assigned, keep=True, topic_ids=topic_ids):
            await self._call_assigned(added)

    def release(self) -> None:
        """Return records again."""
        self._queue.release()

    @property
    def _commit_limit(self) -> float:
        limit = (self._config.rebalance_timeout or 1.0) * _WAIT_FOR_COMMIT
        return min(limit, self._config.client.request_timeout)

    # The listener that got `on_partitions_assigned()` also gets `on_partitions_revoked()` or
    # `on_partitions_lost()`, even if the application has subscribed with another listener since.

    async def _call_assigned(self, added: Partitions) -> None:
        self._log.info("Assigned %s", _names(added))
        self._listener, self._revoked_listener = self._subscriptions.listener, None
        if self._listener is not None:
            # Add before the call: a listener that raises must be called for the revocation, too.
            self._listener_partitions |= added
            # The listener may seek: no call may return records from the position before the seek.
            self._queue.hold()
            await self._call(self._listener.on_partitions_assigned, added)

    async def _call_revoked(self, revoked: Partitions) -> None:
        # Remove before the call: a listener whose call is cancelled is not called again.
        self._listener_partitions -= revoked
        if self._listener is not None and revoked:
            self._revoked_listener = self._listener
            await self._call(self._listener.on_partitions_revoked, revoked)

    async def _call_lost(self, lost: Partitions) -> None:
        self._listener_partitions -= lost
        if self._listener is not None and lost:
            self._revoked_listener = self._listener
            # A listener set by `rebalance_listener` may be of any class, and may lack this method.
            on_lost = getattr(
                self._listener, "on_partitions_lost", self._listener.on_partitions_revoked
            )
            await self._call(on_lost, lost)

    def _assign(
        self, partitions: Partitions, *, keep: bool, topic_ids: Mapping[str, bytes] | None = None
    ) -> bool:
        """Change the assignment. `keep`: partitions that stay assigned keep their state, such as
        the position. Return False, without a change, if the subscription has ended."""
        before = self.owned
        # Call this while the states of revoked partitions, with their positions, still exist.
        # Include added partitions, because other members may have committed for them since.
        self._commits.forget_committed(before ^ partitions if keep else before | partitions)
        if not self._subscriptions.is_by_group:
            return False
        self._subscriptions.assign_from_subscribed(
            sorted(partitions), keep=keep, topic_ids=topic_ids
        )
        self._assigned = self._subscriptions.assignment
        self._commits.revoke_all_but(self._assigned.tps)
        self._fetcher.route()
        return True

    async def _wait_for_application(self, revoked: Partitions) -> None:
        """Wait until the application has finished the records of these partitions: it calls for
        more records, or commits. Return earlier if the group removes the member; after half of the
        rebalance timeout, log a warning and return."""
        limit = (self._config.rebalance_timeout or 1.0) * _WAIT_FOR_APPLICATION
        deadline = asyncio.get_running_loop().time() + limit
        while self._commits.has_unfinished_records(revoked) and not self._commits.is_removed:
            if not await self._queue.polls.wait(deadline):
                self._log.warning(
                    "A rebalance waited %g s for the commit of returned records, or for another "
                    "getone() or getmany(). It continues without; other members may read these "
                    "records again",
                    limit,
                )
                return

    async def _call(self, method: ListenerMethod, partitions: Partitions) -> None:
        """Call the listener. If the listener raises, the application's next call raises the
        exception."""
        try:
            await call_listener(self._queue, method, partitions)
        except asyncio.CancelledError as error:
            # Either this task was cancelled, or a task or future that the listener awaited. In the
            # second case the membership continues, and the application gets an error.
            if self._tasks.is_ending_us():
                raise
            name = getattr(method, "__qualname__", repr(method))
            self._log.exception(
                "Rebalance listener failed: %s awaited a cancelled task or future", name
            )
            text = f"{name} of the rebalance listener awaited a cancelled task or future"
            failure = KafkaError(text)
            failure.__cause__ = error
            self._queue.fail_next_call(failure)
        except Exception as error:
            self._log.exception("Rebalance listener failed")
            self._queue.fail_next_call(error)


def _names(partitions: Partitions) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)) or "nothing"
