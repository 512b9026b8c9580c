"""Find tasks that wrote rows of a batch and are not among those that repeated it.

A task that is repeated finds its own mark. But a batch that is repeated by fewer tasks has none
that would look for the marks of the others: the driver does, when the batch ends.
"""

from __future__ import annotations

from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.spark._options import WriteOptions
from aiokafka.spark._patience import connected
from aiokafka.spark._produce import (
    REPEAT_ADVICE,
    NotRepeatedError,
    name_of_marks,
    place_of_marks,
    read_marker,
)

__all__ = ["Ended", "Repetitions"]


class Ended(NamedTuple):
    """A batch all of whose tasks have committed."""

    query: str
    run: str | None
    """What is another each time that the query starts, if there is such a thing."""

    batch: int
    tasks: int
    last_marked: int
    """The latest batch that one of the tasks has a mark of."""


class Repetitions:
    """Checks batches. Remembers for each query up to which batch its marks reached when its run
    began: what comes later is written for the first time, and costs nothing to check.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}

    async def check(self, options: WriteOptions, ended: Ended) -> None:
        """Raise NotRepeatedError if tasks wrote rows of the batch that are not part of it now."""
        name = name_of_marks(options, ended.query)
        run, reached = self._known.get(name, (None, -1))
        if ended.run is not None and run == ended.run and ended.batch > reached:
            return
        marked = await connected(
            lambda: _marks_beyond(options, name, ended.tasks), options.kafka.patience
        )
        late = sorted(task for task, batch in marked.items() if batch >= ended.batch)
        if late:
            names = ", ".join(f"{name}{task}" for task in late)
            raise NotRepeatedError(
                f"query {ended.query}, batch {ended.batch}: it was repeated by {ended.tasks} "
                f"tasks, but tasks {', '.join(map(str, late))} had written rows of it before: "
                f"these are there twice. {REPEAT_ADVICE}. To go on nevertheless, delete the "
                f"groups {names}"
            )
        if ended.run is not None:
            self._known[name] = ended.run, max(ended.last_marked, *marked.values(), reached)


async def _marks_beyond(options: WriteOptions, name: str, tasks: int) -> dict[int, int]:
    """The batches of the marks of tasks whose number is `tasks` or more, by that number."""
    marked = {}
    place = place_of_marks(options)
    async with AIOKafkaAdminClient(**options.kafka.keywords()) as admin:
        for group, _ in await admin.list_consumer_groups():
            number = group.removeprefix(name)
            if number == group or not number.isdecimal() or int(number) < tasks:
                continue
            marker = await read_marker(admin, group, place)
            if marker is not None:
                marked[int(number)] = marker.batch
    return marked
