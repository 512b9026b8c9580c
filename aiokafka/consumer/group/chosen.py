"""Partitions that the application chose by `assign()`, and what is left to do when it gives them
up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._tasks import TaskOwner
from aiokafka.consumer.subscription_state import Assignment

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["ChosenPartitions", "GivenUp"]


class GivenUp(NamedTuple):
    """An assignment that the application has ended, and the ids that its topics had then."""

    assignment: Assignment
    topic_ids: Mapping[str, bytes]


class ChosenPartitions:
    """Has committed what was finished of them, if so configured. They are no member's, so nothing
    waits for that but `stop()`.

    Owns: the last of these assignments; the tasks of the commits.
    """

    def __init__(
        self,
        shared: Shared,
        give_up: Callable[[Assignment], GivenUp],
        commit: Callable[[GivenUp], Coroutine[Any, Any, None]],
    ) -> None:
        """Commit what is left by `commit`, of what `give_up` says of the moment of its end."""
        self._subscriptions = shared.subscriptions
        self._is_auto = shared.config.enable_auto_commit
        self._give_up = give_up
        self._commit = commit
        self._tasks = TaskOwner(f"{shared.config.client.client_id}-chosen")
        self._latest: Assignment | None = None

    def follow(self) -> None:
        """Look at the assignment of now: the application has perhaps changed it."""
        latest, now = self._latest, self._subscriptions.assignment
        self._latest = now if self._subscriptions.is_manual else None
        if latest is None or not self._is_auto or self._tasks.is_stopping:
            return
        gone = {state.tp: state for state in latest.states() if now.get(state.tp) is not state}
        if gone:
            given_up = self._give_up(Assignment(gone, -1))
            self._tasks.start(self._commit(given_up), name="commit")

    def cancel(self) -> None:
        """End the commits that are not made yet."""
        self._tasks.cancel()
