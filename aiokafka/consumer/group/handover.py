"""Give up partitions and take over others, with the application's listener in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka.consumer._listener_call import ListenerMethod, call_listener
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
    """The steps of a rebalance that the application sees. Called by the coordinator's task only,
    which writes the assignment through it.

    From `hold()` to `release()` nothing is handed out, so that what the application has in hand
    can be finished and committed.
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
        self._listener: ConsumerRebalanceListener | None = None
        self._told: Partitions = frozenset()

    @property
    def owned(self) -> Partitions:
        return self._subscriptions.assignment.tps

    @property
    def is_owed(self) -> bool:
        """Whether a listener has yet to hear that its partitions are gone."""
        return bool(self._told)

    async def revoke(self, revoked: Partitions) -> None:
        """Let the application finish what it has of these partitions, commit that if so
        configured, call the listener."""
        self._desk.hold()
        self._log.info("Revoking %s", _names(revoked))
        await self._wait_for_application(revoked)
        if self._config.enable_auto_commit:
            await self._commits.commit_finished(self._commit_limit)
        await self._tell_revoked(revoked)

    async def begin(self) -> None:
        """An eager member joins without anything to give up: listeners hear of that, too, as those
        of aiokafka always did."""
        listener = self._subscriptions.listener
        if listener is not None:
            self._desk.hold()
            await self._call(listener.on_partitions_revoked, frozenset())

    async def lose(self) -> None:
        """The group has removed us: drop everything at once, then tell the listener."""
        lost = self.owned
        self._desk.hold()
        self._assign(frozenset(), keep=False)
        if not lost:
            return
        self._log.warning("Lost %s", _names(lost))
        await self._tell_lost(lost)

    async def abandon(self, identity: Identity) -> None:
        """The application has unsubscribed, so nothing is handed out any more: commit what was
        finished, as the member that we still are, and call the listener of then."""
        self._desk.hold()
        gone = self._told
        if identity.generation < 0:
            self._held = self._subscriptions.assignment
            await self._tell_lost(gone)
            return
        if self._config.enable_auto_commit:
            await self._commits.commit_abandoned(self._held, identity, self._commit_limit)
        self._held = self._subscriptions.assignment
        await self._tell_revoked(gone)

    async def take_over(self, assigned: Partitions) -> None:
        """Exactly these partitions now, each with a position to be found: eager rebalances."""
        if self._assign(assigned, keep=False):
            await self._tell_assigned(assigned)

    # In the next two, partitions that stay go on as if nothing had happened (KIP-429).

    async def give_up_all_but(self, kept: Partitions) -> bool:
        """Keep only these. True if any had to be given up, which the group can give away then."""
        owned = self.owned
        revoked = owned - kept
        if revoked:
            await self.revoke(revoked)
            self._assign(owned & kept, keep=True)
        return bool(revoked)

    async def extend(self, assigned: Partitions) -> None:
        """Take over these partitions; those that we have are among them."""
        added = assigned - self.owned
        if self._assign(assigned, keep=True):
            await self._tell_assigned(added)

    def release(self) -> None:
        """Hand out records again."""
        self._desk.release()

    @property
    def _commit_limit(self) -> float:
        limit = (self._config.rebalance_timeout or 1.0) * _WAIT_FOR_COMMIT
        return min(limit, self._config.client.request_timeout)

    # The listener that was told of partitions is told of their end, even if the application has
    # subscribed with another one since.

    async def _tell_assigned(self, added: Partitions) -> None:
        self._log.info("Assigned %s", _names(added))
        self._listener = self._subscriptions.listener
        if self._listener is not None:
            self._told |= added
            self._desk.hold()
            await self._call(self._listener.on_partitions_assigned, added)

    async def _tell_revoked(self, revoked: Partitions) -> None:
        self._told -= revoked
        if self._listener is not None and revoked:
            await self._call(self._listener.on_partitions_revoked, revoked)

    async def _tell_lost(self, lost: Partitions) -> None:
        self._told -= lost
        if self._listener is not None and lost:
            # Duck-typed listeners know the other two only.
            on_lost = getattr(
                self._listener, "on_partitions_lost", self._listener.on_partitions_revoked
            )
            await self._call(on_lost, lost)

    def _assign(self, partitions: Partitions, *, keep: bool) -> bool:
        """False if the application has turned elsewhere meanwhile."""
        before = self.owned
        self._commits.forget(before - partitions if keep else before)
        if self._subscriptions.subscription is None or self._subscriptions.is_manual:
            return False
        self._subscriptions.assign_from_subscribed(sorted(partitions), keep=keep)
        self._held = self._subscriptions.assignment
        self._route()
        return True

    async def _wait_for_application(self, revoked: Partitions) -> None:
        """Until it asks for more or has committed, as long as the group can wait for us."""
        limit = (self._config.rebalance_timeout or 1.0) * _WAIT_FOR_APPLICATION
        deadline = asyncio.get_running_loop().time() + limit
        while self._commits.in_work(revoked):
            if not await self._desk.polls.wait(deadline):
                self._log.warning(
                    "Records handed out are neither committed nor followed by another call after "
                    "%g s: their partitions are given up, others may read them again",
                    limit,
                )
                return

    async def _call(self, method: ListenerMethod, partitions: Partitions) -> None:
        """Call the listener. What it raises goes to the application with its next call."""
        try:
            await call_listener(self._desk, method, partitions)
        except asyncio.CancelledError as error:
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
