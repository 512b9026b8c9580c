"""On an executor: write the rows of one task. On the driver: find rows that were written twice."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.spark._loop import SharedClients, loop_thread, unwind, with_retries
from aiokafka.spark._options import WriteOptions
from aiokafka.spark._produce import (
    REPEAT_ADVICE,
    Marker,
    NotRepeatedError,
    RecordWriter,
    Tally,
    TaskIdentity,
    TaskTransaction,
    TopicRows,
    WrittenLaterError,
    check_mark,
    make_producer,
    marker_group_prefix,
    marker_partition,
    read_marker,
    stop_producer,
)

__all__ = [
    "EndedBatch",
    "RepetitionCheck",
    "Report",
    "check_producer",
    "check_repetition",
    "write_batches",
]


# -- Batches that are repeated with fewer tasks
#
# With exactly-once, the transaction of a task also commits an offset, the task's `Marker`, which
# proves that the task has written the batch. A repeated task reads its own Marker. If a batch is
# repeated with fewer tasks, no task reads the Markers of the missing tasks, so the driver reads
# them at the end of the batch.


class EndedBatch(NamedTuple):
    """A batch all of whose tasks have committed their transactions."""

    query: str
    run: str | None
    """Id of the query's run, which is new after every start of the query; None if unknown."""

    batch: int
    tasks: int
    last_marked: int
    """The latest batch in the Markers of the tasks; -1 without Markers."""


class RepetitionCheck:
    """Finds batches for which an earlier attempt had more tasks: the rows of the additional tasks
    are written twice.

    Stores for each query the last batch that had Markers when the run of the query began. Later
    batches are written for the first time, so they are not checked.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}

    async def check(self, options: WriteOptions, ended: EndedBatch) -> None:
        """Raise NotRepeatedError if an earlier attempt at this batch had additional tasks that
        wrote rows."""
        name = marker_group_prefix(options, ended.query)
        run, reached = self._known.get(name, (None, -1))
        if ended.run is not None and run == ended.run and ended.batch > reached:
            return
        marked = await with_retries(
            lambda: _marks_beyond(options, name, ended.tasks), options.kafka.broker_timeout
        )
        # `marked` are the tasks after the last task of this attempt. If one of them has a Marker of
        # this batch, an earlier attempt has had more tasks: an error. A Marker of a later batch is
        # an error only without skipWritten: with it, the later batch may have had more tasks.
        last = ended.batch if options.skip_written else max(marked.values(), default=-1)
        late = sorted(task for task, batch in marked.items() if ended.batch <= batch <= last)
        if late:
            names = ", ".join(f"{name}{task}" for task in late)
            raise NotRepeatedError(
                f"query {ended.query}, batch {ended.batch}: it was repeated by {ended.tasks} "
                f"tasks, but tasks {', '.join(map(str, late))} had written rows of it before: "
                f"these rows are in Kafka twice. {REPEAT_ADVICE}. To continue nevertheless, delete "
                f"the groups {names}"
            )
        if ended.run is not None:
            self._known[name] = ended.run, max(ended.last_marked, *marked.values(), reached)


async def _marks_beyond(options: WriteOptions, name: str, tasks: int) -> dict[int, int]:
    """Return the batch in the Marker of each task whose number is at least `tasks`, by task number.
    Tasks without a Marker are omitted."""
    marked = {}
    place = marker_partition(options)
    async with AIOKafkaAdminClient(**options.kafka.keywords()) as admin:
        for group, _ in await admin.list_consumer_groups():
            number = group.removeprefix(name)
            if number == group or not number.isdecimal() or int(number) < tasks:
                continue
            marker = await read_marker(admin, group, place)
            if marker is not None:
                marked[int(number)] = marker.batch
    return marked


log = logging.getLogger("aiokafka.spark")

_repetitions = RepetitionCheck()


class Report(NamedTuple):
    """The result of a task. If the task repeats rows that were written before, it has sent none,
    and `counts` is empty."""

    counts: Mapping[tuple[str, int], int]
    rows: int
    is_repetition: bool
    marked: int | None = None
    """The batch in the Marker of the task; None if the task has no Marker."""


def write_batches(
    options: WriteOptions, batches: Iterator[Any], identity: TaskIdentity | None
) -> Report:
    """Write the rows of Arrow batches, and wait for the acknowledgements. With exactly-once, write
    them in a transaction, and commit it.

    If the task is killed, the transaction is aborted.
    """
    from aiokafka.spark._arrow import rows_to_write

    thread = loop_thread()
    task = _Task(options, identity, thread.clients)
    error: BaseException | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            thread.run(task.open())
            parts = rows_to_write(batch, options.topic, task.labels)
            if task.count(parts):
                thread.run(task.write(parts))
        return thread.run(task.finish())
    except BaseException as raised:
        error = raised
        raise
    finally:
        thread.run(task.close(error))


class _Task:
    """The writer of a task, and its producer.

    They are created for the first row, so that a task without rows registers no transactional id.
    """

    def __init__(
        self, options: WriteOptions, identity: TaskIdentity | None, clients: SharedClients
    ) -> None:
        self._options = options
        self._identity = identity
        self._clients = clients
        self._stack = contextlib.AsyncExitStack()
        self._transaction: TaskTransaction | None = None
        self._marker: Marker | None = None
        self._writer: RecordWriter | None = None
        self._tally = Tally()
        self.labels: Iterator[str] | None = None
        """The header values of the rows, one after the other; None without addBatchHeaders."""
        if options.add_batch_headers and identity is not None:
            place = f"{identity.query}/{identity.batch}/{identity.task}"
            self.labels = (f"{place}/{number}" for number in itertools.count())

    async def open(self) -> None:
        """Start the producer; with exactly-once, also begin the transaction. Later calls do
        nothing."""
        if self._writer is not None:
            return
        options, identity = self._options, self._identity
        if options.exactly_once:
            assert identity is not None
            self._transaction = TaskTransaction(options, identity)
            # Register `close` before `begin` is called: if the task is killed during `begin`, the
            # producer must be stopped.
            self._stack.push_async_callback(self._transaction.close)
            producer, self._marker = await self._transaction.begin()
            self._check_marker(identity)
        else:
            key = ("write", options.kafka.key())
            producer = await self._stack.enter_async_context(
                self._clients.use(
                    key, lambda: make_producer(options), stop_producer, options.idle_timeout
                )
            )
        self._writer = RecordWriter(producer)
        self._stack.callback(self._writer.drop)

    def _check_marker(self, identity: TaskIdentity) -> None:
        marker = self._marker
        if marker is None or marker.batch <= identity.batch:
            return
        text = (
            f"query {identity.query}, task {identity.task}: batch {marker.batch} was written before"
        )
        if self._options.skip_written:
            log.warning("%s, so batch %d is skipped", text, identity.batch)
            return
        raise WrittenLaterError(
            f"{text}, so batch {identity.batch} looks like a repetition, whose rows would be "
            "skipped. A new checkpoint needs a new name (the first argument of batch_writer, "
            "txnAppId, or transactionalIdPrefix). If an old checkpoint was restored, and its later "
            "batches were written, set skipWritten to true until the query has reached them"
        )

    def count(self, parts: Iterable[TopicRows]) -> bool:
        """With exactly-once, add rows to the tally. Return False if the task's Marker shows that
        the rows were written before, so that they must not be written again.

        Runs in Spark's thread, not in the event loop.
        """
        if self._options.exactly_once:
            self._tally.add(parts)
        return self._marker is None

    async def write(self, parts: Iterable[TopicRows]) -> None:
        """Write rows. Call this only after `count` has returned True for them."""
        assert self._writer is not None
        await self._writer.add(parts)

    async def finish(self) -> Report:
        """Wait for all acknowledgements; with exactly-once, commit the transaction. Return the
        result.

        Raises NotRepeatedError if an earlier attempt at this batch has written other rows.
        """
        writer, transaction, identity = self._writer, self._transaction, self._identity
        if writer is None:
            return await self._finish_empty()
        if transaction is None:
            await writer.finish()
            return Report(writer.counts, writer.rows, False)
        assert identity is not None
        if self._marker is not None:
            check_mark(identity, self._marker, self._tally)
            return Report({}, self._tally.rows, True, self._marker.batch)
        await writer.finish()
        await transaction.commit(self._tally)
        return Report(writer.counts, writer.rows, False, identity.batch)

    async def _finish_empty(self) -> Report:
        """Return the result of a task without rows. With exactly-once, raise NotRepeatedError if an
        earlier attempt of the task wrote rows of this batch.
        """
        options, identity = self._options, self._identity
        if not options.exactly_once:
            return Report({}, 0, False)
        assert identity is not None
        name = f"{marker_group_prefix(options, identity.query)}{identity.task}"
        use = self._clients.use(
            ("marks", options.kafka.key()),
            lambda: _make_admin(options),
            AIOKafkaAdminClient.close,
            options.idle_timeout,
        )
        async with use as admin:
            marker = await read_marker(admin, name, marker_partition(options))
        if marker is None:
            return Report({}, 0, False)
        check_mark(identity, marker, self._tally)
        return Report({}, 0, marker.batch >= identity.batch, marker.batch)

    async def close(self, error: BaseException | None) -> None:
        """Discard rows that are not committed, and release the producer."""
        await unwind(self._stack, error)


async def _make_admin(options: WriteOptions) -> AIOKafkaAdminClient:
    async def start() -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(**options.kafka.keywords())
        try:
            await admin.start()
        except BaseException:
            await admin.close()
            raise
        return admin

    return await with_retries(start, options.kafka.broker_timeout)


def check_producer(options: WriteOptions) -> None:
    """Raise ValueError or TypeError if a producer does not accept these options. Does not
    connect."""

    async def check() -> None:
        AIOKafkaProducer(**options.kafka.keywords(), **options.kafka.role)

    loop_thread().run(check())


def check_repetition(options: WriteOptions, ended: EndedBatch) -> None:
    """Raise NotRepeatedError if an earlier attempt at this batch had additional tasks that wrote
    rows."""
    loop_thread().run(_repetitions.check(options, ended))
