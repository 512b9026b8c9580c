"""Write the rows of one task. Runs where the task runs."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.spark._loop import SharedClients, loop_thread
from aiokafka.spark._options import WriteOptions
from aiokafka.spark._produce import (
    Identity,
    Marker,
    RecordWriter,
    Tally,
    TopicRows,
    Transaction,
    make_producer,
)
from aiokafka.spark._repetition import Ended, Repetitions

if TYPE_CHECKING:
    from types import TracebackType


__all__ = ["Report", "check_producer", "check_repetition", "write_batches"]

log = logging.getLogger("aiokafka.spark")

_STOP_TIMEOUT = 10.0

_repetitions = Repetitions()


class Report(NamedTuple):
    """What a task did."""

    counts: Mapping[tuple[str, int], int]
    rows: int
    is_repetition: bool
    marked: int | None = None
    """The batch that its mark is of, with exactly-once."""


def write_batches(
    options: WriteOptions, batches: Iterator[Any], identity: Identity | None
) -> Report:
    """Write Arrow batches and wait until they are written; with exactly-once, commit them.

    A task that is killed on the way leaves no transaction that anybody could see.
    """
    from aiokafka.spark._arrow import rows_to_write

    thread = loop_thread()
    task = _Task(options, identity, thread.clients)
    error: BaseException | None = None
    try:
        thread.run(task.open())
        for batch in batches:
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
    """The writer of a task, and the producer that it uses."""

    def __init__(
        self, options: WriteOptions, identity: Identity | None, clients: SharedClients
    ) -> None:
        self._options = options
        self._identity = identity
        self._clients = clients
        self._stack = contextlib.AsyncExitStack()
        self._transaction: Transaction | None = None
        self._marker: Marker | None = None
        self._writer: RecordWriter | None = None
        self._tally = Tally() if options.exactly_once else None
        self.labels: Iterator[str] | None = None
        """One for each row that is written, if rows get labels."""

    async def open(self) -> None:
        options, identity = self._options, self._identity
        if options.exactly_once:
            assert identity is not None
            self._transaction = Transaction(options, identity)
            self._stack.push_async_callback(self._transaction.close)
            producer, self._marker = await self._transaction.begin()
            self._look_at_marker(identity)
        else:
            key = ("write", options.kafka.key())
            producer = await self._stack.enter_async_context(
                self._clients.use(key, lambda: make_producer(options), _stop, options.idle_timeout)
            )
        if options.add_batch_headers and identity is not None:
            place = f"{identity.query}/{identity.batch}/{identity.task}"
            self.labels = (f"{place}/{number}" for number in itertools.count())
        self._writer = RecordWriter(producer)
        self._stack.callback(self._writer.drop)

    def _look_at_marker(self, identity: Identity) -> None:
        marker = self._marker
        if marker is not None and marker.batch > identity.batch:
            log.warning(
                "query %s, task %d: batch %d was written, so batch %d is skipped; was the "
                "checkpoint turned back? Another transactionalIdPrefix writes anew",
                identity.query,
                identity.task,
                marker.batch,
                identity.batch,
            )

    def count(self, parts: Iterable[TopicRows]) -> bool:
        """Count rows; whether they are to be written. Not in the event loop."""
        if self._tally is not None:
            self._tally.add(parts)
        return self._marker is None

    async def write(self, parts: Iterable[TopicRows]) -> None:
        assert self._writer is not None
        await self._writer.add(parts)

    async def finish(self) -> Report:
        writer, transaction = self._writer, self._transaction
        assert writer is not None
        if transaction is None:
            await writer.finish()
            return Report(writer.counts, writer.rows, False)
        assert self._tally is not None
        assert self._identity is not None
        if self._marker is not None:
            transaction.check(self._marker, self._tally)
            return Report({}, self._tally.rows, True, self._marker.batch)
        await writer.finish()
        await transaction.commit(self._tally)
        return Report(writer.counts, writer.rows, False, self._identity.batch)

    async def close(self, error: BaseException | None) -> None:
        traceback: TracebackType | None = None if error is None else error.__traceback__
        try:
            await self._stack.__aexit__(None if error is None else type(error), error, traceback)
        except Exception as raised:
            if raised is not error:
                raise


async def _stop(producer: AIOKafkaProducer) -> None:
    await producer.stop(timeout=_STOP_TIMEOUT)


def check_producer(options: WriteOptions) -> None:
    """Raise what a producer with these options would raise; nothing is connected."""

    async def check() -> None:
        AIOKafkaProducer(**options.kafka.keywords(), **options.kafka.role)

    loop_thread().run(check())


def check_repetition(options: WriteOptions, ended: Ended) -> None:
    """Raise NotRepeatedError if other tasks than those of a batch have written rows of it."""
    loop_thread().run(_repetitions.check(options, ended))
