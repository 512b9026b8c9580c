"""The buffer of fetched record sets, from which readers take records. No I/O, no awaits.

Compiled if possible, since `next()` and `RecordIterator` run once per record.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from aiokafka import _cpython
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.errors import CorruptRecordError, RecordDeserializationError
from aiokafka.record.reader import RecordReader
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.fetch.node import NodeFetcher

__all__ = ["FetchBuffer", "FetchedPartition", "PinnedResponse", "RecordIterator"]

Failure = Callable[[], BaseException]
Wanted = Collection[TopicPartition] | None
Interceptor = Callable[[dict[TopicPartition, list[ConsumerRecord[Any, Any]]]], Any]

_ALL = 2**31 - 1

# Decompressed bytes after which `take()` returns, because decompression blocks the event loop. The
# last batch may exceed this limit, up to `max_decompressed_bytes`.
_MOST_UNPACKED = 64 * 1024 * 1024

# Records returned by `next()` before a reader checks how long other tasks have waited. A compressed
# record set may have tens of thousands of records.
_LONGEST_RUN = 127


class PinnedResponse:
    """The memory of one fetch response. Each unread record set is a view that keeps the whole
    response in memory; `unread` counts the unread record sets. `node` is the fetcher that counts
    the bytes."""

    node: NodeFetcher
    nbytes: int
    unread: int

    def __init__(self, node: NodeFetcher, nbytes: int) -> None:
        self.node = node
        self.nbytes = nbytes
        self.unread = 0


class FetchedPartition:
    """One partition's record set from one response, valid while `state.epoch` is `epoch`."""

    state: PartitionState
    epoch: int
    start: int
    reader: RecordReader
    response: PinnedResponse
    is_damaged: bool

    def __init__(
        self, state: PartitionState, reader: RecordReader, response: PinnedResponse
    ) -> None:
        self.state = state
        self.epoch = state.epoch
        self.start = reader.position
        self.reader = reader
        self.response = response
        self.is_damaged = False


class FetchBuffer:
    """Unread record sets by partition, and failures to raise.

    Owns the record sets: a NodeFetcher adds them, reading removes them. Partitions take turns:
    `next()` and `next_of()` switch after each record set, `take()` after each call. The position
    moves in the same synchronous step that returns records, so a call that is cancelled while it
    waits has consumed nothing.
    """

    call: int  # number of the latest call of `getone()` or `getmany()`
    fast_path: bool
    interceptor: Interceptor | None  # called by `next()` with each record
    is_intercepting: bool  # interceptors run: other readers get no records
    is_calling: bool  # `next()` is calling the interceptor
    unfinished: tuple[PartitionState, Any] | None  # for `resume()`
    is_awaited: bool  # a reader waits for records
    awaited: Wanted  # the partitions that the reader waits for
    _run: int  # records that `next()` returns before the caller checks the time
    _left: int  # remaining records of `_run`
    _room: int  # bytes that the current `take()` may still decompress
    _before: list[tuple[PartitionState, int, int]]  # positions and record counts before `take()`
    _has_raised: bool  # a failure was raised since the last record set was finished
    _current: FetchedPartition | None
    _queues: OrderedDict[PartitionState, deque[FetchedPartition]]
    _failures: OrderedDict[PartitionState, tuple[int, Failure]]

    def __init__(self) -> None:
        self.call = 0
        self.fast_path = True
        self.interceptor: Interceptor | None = None
        self.is_intercepting = False
        self.is_calling = False
        self.unfinished: tuple[PartitionState, Any] | None = None
        self.is_awaited = False
        self.awaited = None
        self._current = None
        self._queues = OrderedDict()
        self._failures = OrderedDict()
        self._run = 0
        self._left = 0
        self._room = 0
        self._before = []
        self._has_raised = False

    # -- filling -----------------------------------------------------------------------------------

    def add(self, state: PartitionState, reader: RecordReader, response: PinnedResponse) -> None:
        """Append a record set that follows the buffered record sets of its partition."""
        queue = self._queues.get(state)
        if queue is None:
            queue = self._queues[state] = deque()
        queue.append(FetchedPartition(state, reader, response))
        response.unread += 1
        state.cursor.queued += 1
        self.is_awaited = False

    def add_failure(self, state: PartitionState, failure: Failure) -> None:
        """Make the next reader of this partition raise the exception that `failure` returns."""
        self._failures[state] = (state.epoch, failure)
        self._current = None

    def discard(self, state: PartitionState) -> None:
        """Drop the buffered record sets of a partition and fetch again from its position."""
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
        """Drop the record sets and the failure of a partition that a seek, reset or revocation has
        made void."""
        queue = self._queues.get(state)
        if queue is not None:
            chunk: FetchedPartition = queue[0]
            if chunk.epoch != state.epoch:
                self.discard(state)
        failure = self._failures.get(state)
        if failure is not None and failure[0] != state.epoch:
            del self._failures[state]

    def skip(self, state: PartitionState, offset: int) -> bool:
        """Seek forward within the buffered records; return False if that is not possible.

        Without this, an application that seeks past each unreadable record would wait for a fetch
        each time, and at the end of the log for a long poll.
        """
        if state in self._failures or not state.is_buffered(offset) or self._head(state) is None:
            return False
        queue = self._queues[state]
        passed = [chunk for chunk in queue if chunk.start <= offset]
        head: FetchedPartition = passed.pop()
        # Another fetch may bring an undamaged copy of a damaged record set.
        if head.is_damaged or not head.reader.go_to(offset):
            return False
        for chunk in passed:
            self._finish(chunk)
        for chunk in queue:
            chunk.epoch = state.epoch + 1
        state.skip_to(offset)
        return True

    def clear(self) -> None:
        """Drop all record sets and failures."""
        for state in list(self._queues):
            self.discard(state)
        self._failures.clear()
        self._current = None

    def unserved(self, node: NodeFetcher) -> list[PartitionState]:
        """Return the partitions with record sets from `node` that no reader asks for: withheld
        partitions and, if a reader waits, partitions that this reader did not ask for."""
        found = []
        wanted = self.awaited if self.is_awaited else None
        for state, queue in self._queues.items():
            if not _is_served(state, wanted):
                for chunk in queue:
                    if chunk.response.node is node:
                        found.append(state)
                        break
        return found

    # -- failures and waiting readers --------------------------------------------------------------

    def pop_failure(self, state: PartitionState) -> BaseException | None:
        """Return the exception to raise for this partition, None without a failure. Remove the
        failure, also from other partitions for which the same failure was reported."""
        if state not in self._failures:
            return None
        _, failure = self._failures.pop(state)
        for other in [other for other, (_, its) in self._failures.items() if its is failure]:
            del self._failures[other]
        return failure()

    def await_records(self, wanted: Wanted) -> None:
        """Set that a reader of these partitions waits: buffered records of other partitions may be
        dropped to make memory available."""
        self.is_awaited = True
        self.awaited = wanted

    # -- taking records ----------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Count a call of `getone()` or `getmany()`, or of `stop()` by the task that reads: the
        application has finished the records of earlier calls."""
        self.call += 1

    def pace(self, share: float) -> None:
        """Set how many records `next()` returns before it returns None, so that the caller checks
        whether other tasks must run. `share`: the time since other tasks last ran, as a fraction of
        the permitted time.

        This time includes the application's work on the records, which may take a thousand times
        longer than reading the records.
        """
        run = 2 * self._run + 1 if share <= 1 else int(self._run / share)
        self._run = self._left = min(run, _LONGEST_RUN)

    def set_fast_path(self, is_open: bool) -> None:
        """Make `next()` return records, or always None."""
        self.fast_path = is_open

    def next(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of the current record set; the fast path of `next_of(None)`.

        Returns None at the end of the set, after as many records as `pace()` allows, while the fast
        path is closed (`set_fast_path`), and with `unfinished` interceptors. Counts the call of
        `getone()` if it takes a record.
        """
        chunk = self._current
        if chunk is None or not self._left or not self.fast_path or self.is_intercepting:
            return None
        state = chunk.state
        # `next_of` handles void record sets and withheld partitions.
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
            if self.interceptor is not None:
                return self._intercept(state, record)
        return record

    def _intercept(
        self, state: PartitionState, record: ConsumerRecord[Any, Any]
    ) -> ConsumerRecord[Any, Any] | None:
        """Return a record as changed by the interceptors, or the next record if they drop it.

        If an interceptor returns an awaitable, or a rebalance begins, set `unfinished` and return
        None. The caller calls `resume()` without an await in between, so that no other task reads.
        """
        state.shown = record.offset
        self.is_intercepting = self.is_calling = True
        try:
            passed = self.interceptor({state.tp: [record]})  # type: ignore[misc]
        except BaseException:
            # KeyboardInterrupt or another BaseException: Interception logs any Exception.
            self.is_intercepting = False
            state.give_back(1)
            raise
        finally:
            self.is_calling = False
        if not isinstance(passed, dict) or not self.fast_path:
            self.unfinished = (state, passed)
            return None
        self.is_intercepting = False
        state.hand_over(self.call)
        if not state.is_retired():
            result = passed
            for records in result.values():
                for one in records:
                    return one  # type: ignore[no-any-return]
        return self.next()

    def pop_unfinished(self) -> tuple[PartitionState, Any]:
        """Return and clear `unfinished`: the partition of the intercepted record, and the result or
        coroutine of the interceptors."""
        unfinished = self.unfinished
        self.unfinished = None
        assert unfinished is not None
        return unfinished

    def set_interceptor(self, interceptor: Interceptor | None) -> None:
        """Set the function that `next()` calls with each record; None without interceptors."""
        self.interceptor = interceptor

    def set_intercepting(self, is_intercepting: bool) -> None:
        """Set whether interceptors process records, so that other readers get no records."""
        self.is_intercepting = is_intercepting

    def next_of(self, wanted: Wanted) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of these partitions (None = all); None if no record is buffered.

        Raises the failures of these partitions, each once. Raises the error of an unreadable record
        with every call until the position moves.
        """
        self._raise_failure_in_turn(wanted)
        skipped = 0
        while skipped < len(self._queues):
            state = next(iter(self._queues))
            if _is_served(state, wanted):
                record = self._next_from(state, wanted is None)
                if record is not None:
                    return record
                skipped = 0  # a record set was removed: at its end, or void
            else:
                skipped += 1
            if state in self._queues:
                self._queues.move_to_end(state)
        self._raise_failure(wanted)
        return None

    def take(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return up to `limit` records (-1 = all buffered) of these partitions (None = all).

        Returns fewer records after decompressing 64 MiB. A served partition moves to the end of the
        queue. Raises as `next_of()`. Records before an unreadable record are returned first.
        """
        self._raise_failure_in_turn(wanted)
        self._room = _MOST_UNPACKED
        self._before.clear()
        try:
            found = self._take(wanted, limit)
            if not found:
                self._raise_failure(wanted)
            self._has_raised = False
            return found
        except Exception:
            raise
        except BaseException:
            # A deserializer has raised KeyboardInterrupt or another BaseException. No record
            # reaches the application, so put back the records of all partitions.
            for state, position, taken in self._before:
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
                # Return the records before the error. The next call raises the error again, because
                # the position is at the unreadable record.
                limit = 0
            if records:
                taken[state.tp] = records
            if limit > 0:
                limit -= len(records)
            if limit == 0 or (self._room <= 0 and taken):
                break
        return taken

    def _raise_failure_in_turn(self, wanted: Wanted) -> None:
        """Raise a failure of these partitions, unless a failure was raised since the last record
        set was read.

        A failure that recurs at once, such as TOPIC_AUTHORIZATION_FAILED, must not block the
        records of all other partitions.
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
        """Return the next record of one partition; None at the end of its record set.

        If the caller asks for any partition (`is_free`), `next()` continues with this record set.
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
            # Set the position after an error, too: the reader may have skipped empty batches.
            state.next_offset = chunk.reader.position
        if record is None:
            self._finish(chunk)
            return None
        # With two reading tasks, the other task may have read a record since the latest call began,
        # and is still processing this record.
        if state.call != self.call:
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
        self._before.append((state, state.next_offset, state.taken))
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
        """Return the partition's oldest record set. If it does not contain the position, drop all
        record sets of the partition, and return None."""
        queue = self._queues.get(state)
        if queue is None:
            return None
        chunk: FetchedPartition = queue[0]
        # A record set that begins after the position would skip records. This occurs after
        # `put_back`, if the previous record set is already removed.
        if chunk.epoch == state.epoch and chunk.start <= state.next_offset:
            return chunk
        self.discard(state)
        state.changed()
        return None

    def _finish(self, chunk: FetchedPartition) -> None:
        """Remove a record set that was read to its end, and make the partition fetchable again."""
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
        if state.fetcher is not None:
            state.fetcher.on_read(state)

    def _drop_copy(self, chunk: FetchedPartition, error: Exception) -> bool:
        """Drop a corrupt record set if another broker may have an undamaged copy: it came from a
        preferred replica, or the partition has moved to another broker. Return whether the record
        set was dropped."""
        state = chunk.state
        if not isinstance(error, CorruptRecordError):
            return False
        if chunk.response.node.node_id == state.target.node_id and not state.leave_replica():
            return False
        state.next_offset = chunk.reader.position
        self.discard(state)
        state.changed()
        return True

    def _set_aside(self, chunk: FetchedPartition, error: Exception) -> None:
        """Move a partition with an unreadable record to the end of the queue, and add the partition
        and the offset after the batch to a CorruptRecordError."""
        self._current = None
        self._queues.move_to_end(chunk.state)
        chunk.is_damaged = not isinstance(error, RecordDeserializationError)
        if isinstance(error, CorruptRecordError):
            _locate(error, chunk.state.tp, chunk.reader.batch_end)

    def _release(self, chunk: FetchedPartition) -> None:
        response = chunk.response
        response.unread -= 1
        if response.unread == 0:
            response.node.release(response.nbytes)


def _locate(error: CorruptRecordError, tp: TopicPartition, batch_end: int) -> None:
    """Add the partition, and the offset after the corrupt batch, to the error."""
    error.topic_partition = tp
    where = f"{tp}: {error.args[0]}" if error.args else f"{tp}: corrupt batch"
    if batch_end >= 0:
        error.next_offset = batch_end
        where += f"; seek to {batch_end} to go past it"
    error.args = (where,)


def _is_served(state: PartitionState, wanted: Wanted) -> bool:
    return not state.is_withheld and (wanted is None or state.tp in wanted)


_Record = ConsumerRecord[Any, Any]


class RecordIterator:
    """The iterator of `async for record in consumer`: the fast path of `getone()`, without a
    coroutine per record.

    Owns: whether the fast path may be used. A program or a tracer may replace `getone` or
    `__anext__` of the consumer at any time, and then each record has to pass through the
    replacement. The iterator checks for a replacement when the fast path returns no record: at the
    end of a record set, or after 128 records at the latest.
    """

    _buffer: FetchBuffer
    _is_plain: bool

    def __init__(
        self,
        buffer: FetchBuffer,
        is_plain: Callable[[], bool],
        find_next: Callable[[], Coroutine[Any, Any, _Record]],
    ) -> None:
        """
        Args:
            buffer: Source of records on the fast path.
            is_plain: Returns whether the consumer's methods are not replaced.
            find_next: Returns the next record when the fast path does not.
        """
        self._buffer = buffer
        self._ask_plain = is_plain
        self._is_plain = False
        self._find_next = find_next

    def __aiter__(self) -> RecordIterator:
        # A loop starts: its first record comes from `find_next`, which registers the reading task.
        self._is_plain = False
        return self

    def __anext__(self) -> Coroutine[Any, Any, _Record]:
        """Return an awaitable for the next record.

        The awaitable can be used like a coroutine, for example to create a task. The record is
        consumed when the awaitable is awaited: if it is cancelled before, as by
        `asyncio.wait_for(anext(records), 0)`, no record is consumed.
        """
        return _cpython.call(_take, _find, self)


# `_cpython.call` needs functions of one C signature, so buffer.pxd types the locals instead of the
# parameters.


def _take(iterator: RecordIterator) -> _Record | None:
    """Return the next record by the fast path; None if the fast path has no record."""
    records = iterator
    return records._buffer.next() if records._is_plain else None


def _find(iterator: RecordIterator) -> Coroutine[Any, Any, _Record]:
    """Return the coroutine of the next record, and check whether the fast path may be used."""
    records = iterator
    records._is_plain = records._ask_plain()
    return records._find_next()
