"""What the two group protocols have in common, for the Group that has one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.group.commits import GroupCommits
    from aiokafka.consumer.group.handover import Handover
    from aiokafka.consumer.group.membership import Membership
    from aiokafka.consumer.group.mendable import MendableErrors
    from aiokafka.consumer.group.poll_watch import PollWatch
    from aiokafka.consumer.group.state import Standing
    from aiokafka.consumer.position.committed import Identity
    from aiokafka.errors import CommitFailedError

__all__ = ["GroupParts", "GroupProtocol"]


class GroupParts(NamedTuple):
    """What a group's protocol works with."""

    shared: Shared
    standing: Standing
    commits: GroupCommits
    handover: Handover
    errors: MendableErrors
    polls: PollWatch
    on_metadata: Callable[[], None]
    """Looks at the metadata again, for topics, partitions and leaders."""

    def settle(self) -> None:
        """Let readers get records again: the member has its assignment."""
        self.handover.release()
        self.errors.clear()
        self.standing.settle()
        # After the state has changed: metadata that came while the member joined was passed over,
        # and is compared with the assignment now.
        self.on_metadata()
        self.shared.meter.rebalanced()


class GroupProtocol(Protocol):
    """How members come to their partitions. One task of the Group calls `advance()`, a second one
    runs `send_heartbeats()`."""

    @property
    def member(self) -> Membership:
        """Who this consumer is to the group."""

    @property
    def session_timeout(self) -> float:
        """Seconds without a heartbeat after which the group drops a member."""

    @property
    def keeps_partitions(self) -> bool:
        """Whether the member has its partitions while it joins: the group gives them to no other
        member before this one has given them up."""

    @property
    def is_joining(self) -> bool:
        """Whether requests are out by which the member enters another generation, in which its
        commits will have to name that one."""

    @property
    def is_awaited(self) -> bool:
        """Whether other members wait for this one to finish its join, even if it is stopped."""

    def has_work(self) -> bool:
        """Return whether `advance()` is to be called."""

    async def advance(self) -> None:
        """Go on towards the assignment. Called while the member may take part."""

    async def send_heartbeats(self) -> None:
        """Keep the membership alive, until cancelled; look whether the application is."""

    async def catch_up(self, limit: float) -> None:
        """Finish, within `limit` seconds, what the background work has begun and the last commit
        depends on."""

    def on_subscribed(self) -> None:
        """Look at the subscription again: it has changed."""

    def on_metadata(self) -> None:
        """Look at the metadata again: it has changed."""

    def forget(self) -> None:
        """Drop what belongs to the assignment that was given up."""

    def on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        """Draw the consequence: the group does not count us as a member of this generation."""
