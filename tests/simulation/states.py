"""What clients are about: which states a fault has met."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

#: By the first word of a call, as programs name it.
_BY_CALL = {
    "start": "starting",
    "stop": "stopping",
    "send": "sending",
    "send_batch": "sending",
    "wait": "sending",
    "flush": "flushing",
    "begin_transaction": "beginning",
    "commit_transaction": "ending",
    "abort_transaction": "aborting",
    "send_offsets_to_transaction": "offsets",
    "getone": "reading",
    "getmany": "reading",
    "commit": "committing",
    "committed": "looking up",
    "position": "looking up",
    "seek_to_committed": "looking up",
    "seek_to_beginning": "looking up",
    "session": "session",
    "block": "handling",
    "run": "handling",
    "next": "range",
}
IN_TRANSACTION, JOINING, IN_HAND = "transaction", "joining", "in hand"
STATES = (*dict.fromkeys(_BY_CALL.values()), IN_TRANSACTION, JOINING, IN_HAND)


class States:
    """The states of all clients of a run, and which of them each kind of fault has met."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: Counter[str] = Counter()
        self.met: set[tuple[str, str]] = set()

    def began(self, what: str) -> str | None:
        """A call has begun; returns its state, for `ended`."""
        state = _BY_CALL.get(what.replace("(", " ").split(" ", 1)[0])
        if state is not None:
            self._calls[state] += 1
        return state

    def ended(self, state: str | None) -> None:
        """It has ended."""
        if state is not None:
            self._calls[state] -= 1

    def note(self, fault: str) -> None:
        """A fault begins now."""
        self.met.update((fault, state) for state, count in self._calls.items() if count > 0)
        world = self._world
        if any(transaction.outcome == "open" for transaction in world.history.transactions):
            self.met.add((fault, IN_TRANSACTION))
        groups = world.cluster.groups
        if any("Rebalance" in str(groups.state_of(name)) for name in groups.classic):
            self.met.add((fault, JOINING))
        audiences = world.history.audiences
        if any(reading.in_hand for audience in audiences for reading in audience.readings):
            self.met.add((fault, IN_HAND))
