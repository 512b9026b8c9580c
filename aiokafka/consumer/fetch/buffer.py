"""Fetched bytes, still encoded, and the one way from them to records. No I/O, no awaits.

Compiled where it can be: `next()` runs once per record.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from aiokafka import _cpython
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.errors import CorruptRecordError, RecordDeserializationError
from aiokafka.record.reader import RecordReader
from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["FetchBuffer", "FetchedPartition", "Frame", "RecordIterator"]

Failure = Callable[[], BaseException]
Wanted = Collection[TopicPartition] | None

_ALL = 2**31 - 1

# What one call decompresses before it returns what it has: the event loop stands still meanwhile.
# One batch more may come to it, and that is bounded by `max_decompressed_bytes`.
_MOST_UNPACKED = 64 * 1024 * 1024

# Most records that a reader takes one by one before it sees whether other tasks have waited for too
# long. A compressed record set may have tens of thousands.
_LONGEST_RUN = 127


class Frame:
    """The memory that one response pins: all of it, for as long as one record set in it is
    unread. `node_id` is the broker that sent it."""

    node_id: int
    nbytes: int
    live: int
    on_release: Callable[[int], None]

    def __init__(self, node_id: int, nbytes: int, on_release: Callable[[int], None]) -> None:
        self.node_id = node_id
        self.nbytes = nbytes
        self.live = 0
        self.on_release = on_release


class FetchedPartition:
    """One partition's record set from one response, good while `state.epoch` is still `epoch`."""

    state: PartitionState
    epoch: int
    start: int
    reader: RecordReader
    frame: Frame
    is_damaged: bool

    def __init__(self, state: PartitionState, reader: RecordReader, frame: Frame) -> None:
        self.state = state
        self.epoch = state.epoch
        self.start = reader.position
        self.reader = reader
        self.frame = frame
        self.is_damaged = False


class FetchBuffer:
    """Record sets in the order their partitions are to be served, and failures to report.

    Owns the record sets: a NodeFetcher adds, taking removes. Serves partitions in turn: one by
    one, a record set at a time; many at once, a call at a time. `position` moves in the same
    synchronous step that returns records, so a call that is cancelled while it waits has taken
    nothing.
    """

    call: int
    has_short_way: bool
    is_hungry: bool
    hungry_for: Wanted
    _run: int  # how many records `next()` finds before it looks at the time
    _left: int  # how many of these are left
    _room: int  # bytes that the call going on may still decompress
    _begun: list[tuple[PartitionState, int, int]]  # where it found the partitions
    _has_raised: bool  # a failure, since a record set was read
    _current: FetchedPartition | None
    _queues: OrderedDict[PartitionState, deque[FetchedPartition]]
    _failures: OrderedDict[PartitionState, tuple[int, Failure]]

    def __init__(self) -> None:
        self.call = 0
        self.has_short_way = True
        self.is_hungry = False
        self.hungry_for = None
        self._current = None
        self._queues = OrderedDict()
        self._failures = OrderedDict()
        self._run = 0
        self._left = 0
        self._room = 0
        self._begun = []
        self._has_raised = False

    # -- filling -----------------------------------------------------------------------------------

    def add(self, state: PartitionState, reader: RecordReader, frame: Frame) -> None:
        """Queue a record set that continues what is buffered of its partition."""
        queue = self._queues.get(state)
        if queue is None:
            queue = self._queues[state] = deque()
        queue.append(FetchedPartition(state, reader, frame))
        frame.live += 1
        state.cursor.queued += 1
        self.is_hungry = False

    def add_failure(self, state: PartitionState, failure: Failure) -> None:
        """Let the next reader of this partition see the exception that `failure` makes."""
        self._failures[state] = (state.epoch, failure)
        self._current = None

    def discard(self, state: PartitionState) -> None:
        """Drop all that is buffered of a partition, and have it fetched again from its position."""
        self._failures.pop(state, None)
        queue = self._queues.pop(state, None)
        if self._current is not None and self._current.state is state:
            self._current = None
        if queue is None:
            return
        for chunk in queue:
            self._release(chunk)
        state.cursor.rewind(state.next_offset)

    def discard_stale(self, state: PartitionState) -> None:
        """Drop what a seek, a reset or a revocation made void."""
        queue = self._queues.get(state)
        if queue is not None:
            chunk: FetchedPartition = queue[0]
            if chunk.epoch != state.epoch:
                self.discard(state)
        failure = self._failures.get(state)
        if failure is not None and failure[0] != state.epoch:
            del self._failures[state]

    def skip(self, state: PartitionState, offset: int) -> bool:
        """Seek forward within what is in store, and keep what follows; return whether that can be.

        An application that passes the records that it cannot read would otherwise wait for a fetch
        after each, which at the end of a log comes behind a long poll.
        """
        if state in self._failures or not state.is_in_store(offset) or self._head(state) is None:
            return False
        queue = self._queues[state]
        passed = [chunk for chunk in queue if chunk.start <= offset]
        head: FetchedPartition = passed.pop()
        # Damaged, it may come whole with another fetch.
        if head.is_damaged or not head.reader.go_to(offset):
            return False
        for chunk in passed:
            self._finish(chunk)
        for chunk in queue:
            chunk.epoch = state.epoch + 1
        state.skip_to(offset)
        return True

    def clear(self) -> None:
        """Drop everything."""
        for state in list(self._queues):
            self.discard(state)
        self._failures.clear()
        self._current = None

    def unserved(self, on_release: Callable[[int], None]) -> list[PartitionState]:
        """Return the partitions with data that is withheld, or that the hungry reader, if there is
        one, does not want, in frames that `on_release` counts."""
        found = []
        wanted = self.hungry_for if self.is_hungry else None
        for state, queue in self._queues.items():
            if not _is_served(state, wanted):
                for chunk in queue:
                    if chunk.frame.on_release == on_release:
                        found.append(state)
                        break
        return found

    # -- asking ------------------------------------------------------------------------------------

    def pop_failure(self, state: PartitionState) -> BaseException | None:
        """Return the exception to raise for this partition, which then counts as raised; for others
        with the same failure as well."""
        if state not in self._failures:
            return None
        _, failure = self._failures.pop(state)
        for other in [other for other, (_, its) in self._failures.items() if its is failure]:
            del self._failures[other]
        return failure()

    def note_hunger(self, wanted: Wanted) -> None:
        """Note that a reader of these partitions found nothing: what others wait for matters less
        now."""
        self.is_hungry = True
        self.hungry_for = wanted

    # -- taking records ----------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Count a call: the application has finished with what it got before."""
        self.call += 1

    def pace(self, share: float) -> None:
        """Let `next()` find nothing after as many records as fit into the time that other tasks may
        be kept waiting. They have waited for `share` of it now.

        What the application does with a record, without an await, counts as well: it may take a
        thousand times as long as finding the record.
        """
        run = 2 * self._run + 1 if share <= 1 else int(self._run / share)
        self._run = self._left = min(run, _LONGEST_RUN)

    def open_short_way(self, is_open: bool) -> None:
        """Let `next()` find records from now on, or nothing."""
        self.has_short_way = is_open

    def next(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of the record set being served; None when `next_of(None)` has to
        look further, now and then in any case, and always while the short way is closed.

        Counts as a call of its own.
        """
        chunk = self._current
        if chunk is None or not self._left or not self.has_short_way:
            return None
        state = chunk.state
        # `next_of` knows what to do about both; this way is for the record in the middle of a set.
        if state.epoch != chunk.epoch or state.is_withheld:
            return None
        try:
            record: ConsumerRecord[Any, Any] | None = chunk.reader.next()
        except Exception as error:
            if self._drop_copy(chunk, error):
                return None
            self._set_aside(chunk, error)
            raise
        if record is not None:
            self._left -= 1
            self.call += 1
            state.call = self.call
            state.finished = state.next_offset
            state.next_offset = chunk.reader.position
            state.taken += 1
        return record

    def next_of(self, wanted: Wanted) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of any of these partitions (None = all); None if there is none.

        Raises what is to be reported of them, each failure once; and what a record set raises for
        as long as the position stays where it is.
        """
        self._raise_failure_in_turn(wanted)
        skipped = 0
        while skipped < len(self._queues):
            state = next(iter(self._queues))
            if _is_served(state, wanted):
                record = self._next_from(state, wanted is None)
                if record is not None:
                    return record
                skipped = 0  # the record set was read to its end, or void
            else:
                skipped += 1
            if state in self._queues:
                self._queues.move_to_end(state)
        self._raise_failure(wanted)
        return None

    def take(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return up to `limit` records (-1 = all there are) of these partitions (None = all),
        fairly.

        Fewer if they are large: a call ends when it has unpacked a lot. A partition served goes to
        the end of the line. Raises as `next_of()`, but not while there are records to return.
        """
        self._raise_failure_in_turn(wanted)
        self._room = _MOST_UNPACKED
        self._begun.clear()
        try:
            found = self._take(wanted, limit)
            if not found:
                self._raise_failure(wanted)
            self._has_raised = False
            return found
        except Exception:
            raise
        except BaseException:
            # Nothing is going to arrive, of other partitions neither: hand it out next time.
            for state, position, taken in self._begun:
                state.put_back(position)
                state.taken = taken
            raise

    def _take(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        taken: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for _ in range(len(self._queues)):
            state = next(iter(self._queues))
            self._queues.move_to_end(state)
            if not _is_served(state, wanted):
                continue
            records: list[ConsumerRecord[Any, Any]] = []
            try:
                self._take_from(state, limit, records)
            except Exception:
                if not records and not taken:
                    raise
                # Good records go first. The error comes again with the next call, when the position
                # is at the record that has it.
                limit = 0
            if records:
                taken[state.tp] = records
            if limit > 0:
                limit -= len(records)
            if limit == 0 or (self._room <= 0 and taken):
                break
        return taken

    def _raise_failure_in_turn(self, wanted: Wanted) -> None:
        """Raise a failure of these partitions, unless one was raised since a record set was read.

        What fails again at once, such as a topic that is denied, would keep an application from all
        others that pauses after an error.
        """
        if not self._has_raised:
            self._raise_failure(wanted)

    def _raise_failure(self, wanted: Wanted) -> None:
        for state in self._failures:
            if _is_served(state, wanted):
                failure = self.pop_failure(state)
                if failure is not None:
                    self._has_raised = True
                    raise failure

    def _next_from(self, state: PartitionState, is_free: bool) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of one partition; None when its record set is at its end.

        The record set becomes the one `next()` reads on from, if the caller is free to take any
        partition.
        """
        chunk = self._head(state)
        if chunk is None:
            return None
        before = state.next_offset
        try:
            record: ConsumerRecord[Any, Any] | None = chunk.reader.next()
        except Exception as error:
            if self._drop_copy(chunk, error):
                return None
            self._set_aside(chunk, error)
            raise
        finally:
            # Also if it raises: it may have passed what holds no records, which need not be passed
            # again.
            state.next_offset = chunk.reader.position
        if record is None:
            self._finish(chunk)
            return None
        state.call = self.call
        state.finished = before
        state.taken += 1
        if is_free:
            self._current = chunk
        return record

    def _take_from(
        self, state: PartitionState, limit: int, records: list[ConsumerRecord[Any, Any]]
    ) -> None:
        """Append up to `limit` records (-1 = all) of one partition to `records`."""
        self._begun.append((state, state.next_offset, state.taken))
        while True:
            chunk = self._head(state)
            if chunk is None:
                return
            before = state.next_offset
            try:
                found = chunk.reader.take(limit if limit >= 0 else _ALL, max(self._room, 1))
            except Exception as error:
                if self._drop_copy(chunk, error):
                    return
                self._set_aside(chunk, error)
                raise
            finally:
                state.next_offset = chunk.reader.position
            self._room -= chunk.reader.unpacked
            if found and state.call != self.call:
                state.call = self.call
                state.finished = before
            state.taken += len(found)
            if records:
                records.extend(found)
            else:
                records[:] = found
            if chunk.reader.exhausted:
                self._finish(chunk)
            if limit >= 0:
                limit -= len(found)
                if limit <= 0:
                    return
            if self._room <= 0 and records:
                return

    def _head(self, state: PartitionState) -> FetchedPartition | None:
        """Return the partition's oldest record set that continues at its position; drops all if it
        does not."""
        queue = self._queues.get(state)
        if queue is None:
            return None
        chunk: FetchedPartition = queue[0]
        # A set that begins behind the position would skip records: one before it is missing, as
        # when a call has put its records back.
        if chunk.epoch == state.epoch and chunk.start <= state.next_offset:
            return chunk
        self.discard(state)
        state.changed()
        return None

    def _finish(self, chunk: FetchedPartition) -> None:
        """Drop a record set that is read: the next one of its partition, or a new fetch, takes its
        place."""
        state = chunk.state
        if chunk is self._current:
            self._current = None
        queue = self._queues[state]
        queue.popleft()
        if not queue:
            del self._queues[state]
        state.cursor.queued -= 1
        self._has_raised = False
        self._release(chunk)
        state.changed()

    def _drop_copy(self, chunk: FetchedPartition, error: Exception) -> bool:
        """Drop what was sent damaged by a replica, or by a broker that the partition was moved away
        from since: that which is asked next may have it whole. Return whether it is."""
        state = chunk.state
        if not isinstance(error, CorruptRecordError):
            return False
        if chunk.frame.node_id == state.home.node_id and not state.leave_replica():
            return False
        state.next_offset = chunk.reader.position
        self.discard(state)
        state.changed()
        return True

    def _set_aside(self, chunk: FetchedPartition, error: Exception) -> None:
        """Let other partitions come first from now on, as a record cannot be read; say in the error
        where."""
        self._current = None
        self._queues.move_to_end(chunk.state)
        chunk.is_damaged = not isinstance(error, RecordDeserializationError)
        if isinstance(error, CorruptRecordError):
            _locate(error, chunk.state.tp, chunk.reader.batch_end)

    def _release(self, chunk: FetchedPartition) -> None:
        frame = chunk.frame
        frame.live -= 1
        if frame.live == 0:
            frame.on_release(frame.nbytes)


def _locate(error: CorruptRecordError, tp: TopicPartition, batch_end: int) -> None:
    """Say in the error which partition it is, and where reading can go on."""
    error.topic_partition = tp
    where = f"{tp}: {error.args[0]}" if error.args else f"{tp}: corrupt batch"
    if batch_end >= 0:
        error.next_offset = batch_end
        where += f"; seek to {batch_end} to go past it"
    error.args = (where,)


def _is_served(state: PartitionState, wanted: Wanted) -> bool:
    return not state.is_withheld and (wanted is None or state.tp in wanted)


# -- Go through a consumer's records one by one, without a coroutine for each

# Compiled where it can be: all of it runs once per record.


_Record = ConsumerRecord[Any, Any]


class RecordIterator:
    """What `async for` goes through: the short way of `getone()`, as long as there is one.

    Owns whether that may be used: a program or a tracer may put something of its own in the place
    of the consumer's methods, at any time, and then each record has to pass through that. It is
    noticed with the first record of a record set, and after 128 records at the latest.
    """

    _buffer: FetchBuffer
    _is_plain: bool

    def __init__(
        self,
        buffer: FetchBuffer,
        is_plain: Callable[[], bool],
        find_next: Callable[[], Coroutine[Any, Any, _Record]],
    ) -> None:
        """Take records from `buffer`, and let `find_next()` find the others; all of them if not
        `is_plain()`."""
        self._buffer = buffer
        self._ask_plain = is_plain
        self._is_plain = False
        self._find_next = find_next

    def __aiter__(self) -> RecordIterator:
        # A loop begins, in whatever task. Its first record comes by the long way, which notes that
        # it is this task that reads.
        self._is_plain = False
        return self

    def __anext__(self) -> Coroutine[Any, Any, _Record]:
        """Return what gives the next record to the task that awaits it.

        It passes for a coroutine: it can be made a task of. It takes the record when it is awaited
        and not when it is made: one that is cancelled before it began, as by
        `asyncio.wait_for(anext(records), 0)`, has taken none.
        """
        return _cpython.call(_take, _find, self)


# The parameters have the type that C asks for, so it is the locals that are typed (iterator.pxd).


def _take(iterator: RecordIterator) -> _Record | None:
    """Take the next record by the short way; None where that does not lead to it."""
    records = iterator
    return records._buffer.next() if records._is_plain else None


def _find(iterator: RecordIterator) -> Coroutine[Any, Any, _Record]:
    """Return what finds the next record, and see whether the one behind it may be taken."""
    records = iterator
    records._is_plain = records._ask_plain()
    return records._find_next()
