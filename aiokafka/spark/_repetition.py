"""Find tasks that wrote rows of a batch and are not part of its repetition.

A repeated task finds its own mark. But when fewer tasks repeat a batch, no task looks for the marks
of the others. The driver does so when the batch ends.
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
    """A batch whose tasks have all committed."""

    query: str
    run: str | None
    """The id of the query's run, which changes with every start; None if unknown."""

    batch: int
    tasks: int
    last_marked: int
    """The latest batch for which one of the tasks has a mark."""


class Repetitions:
    """Checks batches.

    Remembers for each query the last batch that had marks when its run began. Later batches are
    written for the first time, so checking them costs nothing.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}

    async def check(self, options: WriteOptions, ended: Ended) -> None:
        """Raise NotRepeatedError if other tasks wrote rows of the batch before."""
        name = name_of_marks(options, ended.query)
        run, reached = self._known.get(name, (None, -1))
        if ended.run is not None and run == ended.run and ended.batch > reached:
            return
        marked = await connected(
            lambda: _marks_beyond(options, name, ended.tasks), options.kafka.patience
        )
        # A task of a batch that is skipped may have written later ones, which had more tasks.
        last = ended.batch if options.skip_written else max(marked.values(), default=-1)
        late = sorted(task for task, batch in marked.items() if ended.batch <= batch <= last)
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
    """Return the batches in the marks of tasks numbered `tasks` or higher, by that number."""
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
