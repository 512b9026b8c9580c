"""What happens to groups and transactions on their coordinators."""

from __future__ import annotations

from typing import Any

from tests.simulation.faults.base import Fault
from tests.simulation.scenario import Draft


class Rebalance(Fault):
    """A group has to assign its partitions again, or loses a member."""

    kind = "rebalance"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which group, what happens."""
        groups = draft.groups()
        if not groups:
            return None
        source = draft.random
        how = source.choice(("rebalance", "rebalance", "expire", "fence"))
        return {"group": source.choice(groups), "how": how, "index": source.randrange(10)}

    async def begin(self) -> None:
        """Let it happen, if the group is there."""
        groups = self.world.cluster.groups
        group_id, how = self.arguments["group"], self.arguments["how"]
        group: Any = groups.classic.get(group_id) or groups.consumer.get(group_id)
        if group is None or not group.members:
            return
        members = sorted(group.members)
        member = members[self.arguments["index"] % len(members)]
        if how == "rebalance":
            groups.rebalance(group_id)
        elif how == "fence" and group_id in groups.consumer:
            groups.fence(group_id, member)
        else:
            groups.expire(group_id, member)
        self.hit()


class HeldMarkers(Fault):
    """The markers that end transactions are not written for a while."""

    kind = "held markers"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Only where there are transactions."""
        return {} if draft.transactional_ids() else None

    async def begin(self) -> None:
        """Hold them back."""
        self.world.cluster.transactions.pause_markers()
        self.hit()

    async def end(self) -> None:
        """Write them."""
        self.world.cluster.transactions.resume_markers()


GROUP_FAULTS: dict[type[Fault], int] = {Rebalance: 5, HeldMarkers: 3}
