"""The buffer of fetched record sets, from which readers take records. No I/O, no awaits.

Compiled with Cython if possible, because `next()` and `RecordIterator` run once per record.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from aiokafka import _cpython
from aiokafka._serialization import SuspendedRecord
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

# Maximum number of records that `next()` returns before the reading task checks how long other
# tasks have waited. The check at the end of a record set is not enough: a compressed record set may
# have tens of thousands of records.
_LONGEST_RUN = 127


class PinnedResponse:
    """The memory of one fetch response. Each unread record set is a view that keeps the whole
    response in memory. `nbytes`: size of the response in bytes. `unread`: number of its unread
    record sets. `node`: the NodeFetcher that counts the bytes until all record sets are read or
    dropped."""

    node: NodeFetcher
    nbytes: int
    unread: int

    def __init__(self, node: NodeFetcher, nbytes: int) -> None:
        self.node = node
        self.nbytes = nbytes
        self.unread = 0


class FetchedPartition:
    """One partition's record set from one response, valid while `state.epoch` is `epoch`. `start`:
    the offset from which on its records are returned. `is_damaged`: a batch is corrupt."""

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
    """The unread record sets and the failure of each partition. A failure is a function that
    returns an exception to raise.

    Owns the record sets: a NodeFetcher adds them, reading removes them. A *reader* is a task in
    `getone()`, `getmany()` or `async for`. Partitions take turns: `next()` and `next_of()` switch
    after each record set, `take()` after each call. The position moves in the same synchronous step
    that returns records, so a call that is cancelled while it waits has consumed nothing.
    """

    call: int  # number of the latest call of `getone()` or `getmany()`
    timed_call: int  # number of the latest call with a known time
    called_at: float  # time of `timed_call` (loop time)
    first_called_at: float  # time of the first call (loop time)
    longest_interval: float  # longest time between two successive calls with known times, in s
    fast_path: bool  # `next()` may return records
    interceptor: Interceptor | None  # called with each record
    may_call_interceptor: bool  # `next()` may call `interceptor`: it has returned no awaitable yet
    is_intercepting: bool  # interceptors run or a deserializer waits: other readers get no records
    is_calling: bool  # `next()` is calling the interceptor
    unfinished: tuple[PartitionState, Any] | None  # for `_interception.resume()`
    suspended: FetchedPartition | None  # record set; the deserializer of its next record waits
    is_awaited: bool  # a reader waits for records
    awaited: Wanted  # the partitions that the reader waits for
    _run: int  # records that `next()` returns before the caller checks the time
    _left: int  # remaining records of `_run`
    _room: int  # bytes that the current `take()` may still decompress
    _before: list[tuple[PartitionState, int, int]]  # positions and record counts before `take()`
    _has_raised: bool  # a failure was raised since the last record set was read to its end
    _current: FetchedPartition | None  # the record set from which `next()` returns records
    _queues: OrderedDict[PartitionState, deque[FetchedPartition]]
    _failures: OrderedDict[PartitionState, tuple[int, Failure]]

    def __init__(self) -> None:
        self.call = 0
        self.timed_call = 0
        self.called_at = 0.0
        self.first_called_at = 0.0
        self.longest_interval = 0.0
        self.fast_path = True
        self.interceptor: Interceptor | None = None
        self.may_call_interceptor = True
        self.is_intercepting = False
        self.is_calling = False
        self.unfinished: tuple[PartitionState, Any] | None = None
        self.suspended = None
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
        """Make the next call for this partition raise the exception that `failure` returns."""
        self._failures[state] = (state.epoch, failure)
        self._current = None

    def discard(self, state: PartitionState) -> None:
        """Drop the buffered record sets and the failure of a partition. The next fetch begins at
        its position."""
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
        """Drop the record sets and the failure of a partition if a seek, reset or revocation has
        made them outdated."""
        queue = self._queues.get(state)
        if queue is not None:
            chunk: FetchedPartition = queue[0]
            if chunk.epoch != state.epoch:
                self.discard(state)
        failure = self._failures.get(state)
        if failure is not None and failure[0] != state.epoch:
            del self._failures[state]

    def skip(self, state: PartitionState, offset: int) -> bool:
        """Seek forward to `offset` within the buffered records. Return False, without a change, if
        `offset` is not buffered, its record set is corrupt, or the partition has a failure.

        An application may seek past each unreadable record. If a seek dropped the buffered records,
        each seek would wait for a fetch, and at the end of the log for a long poll.
        """
        if state in self._failures or not state.is_buffered(offset) or self._head(state) is None:
            return False
        queue = self._queues[state]
        passed = [chunk for chunk in queue if chunk.start <= offset]
        head: FetchedPartition = passed.pop()
        # Fetch a corrupt record set again: another copy may be undamaged.
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
        """Return the partitions with record sets from `node` that no reader can read now: paused
        partitions, partitions of topics that are not subscribed to any more and, if a reader waits,
        the partitions that are not in `awaited`."""
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
        """Return the exception to raise for this partition; None without a failure. Remove the
        failure, and remove the same failure from other partitions, so that it is raised once."""
        if state not in self._failures:
            return None
        _, failure = self._failures.pop(state)
        for other in [other for other, (_, its) in self._failures.items() if its is failure]:
            del self._failures[other]
        return failure()

    def await_records(self, wanted: Wanted) -> None:
        """Record that a reader waits for records of these partitions (None = all): buffered records
        of other partitions may be dropped to free memory."""
        self.is_awaited = True
        self.awaited = wanted

    # -- taking records ----------------------------------------------------------------------------

    def begin_call(self, now: float) -> None:
        """Increment `call` for a call of `getone()` or `getmany()`, or when the reading task calls
        `stop()`. The records of earlier calls are finished then. `now`: the loop time."""
        self.call += 1
        self.time_calls(now)

    def time_calls(self, now: float) -> None:
        """Count the time between calls (KIP-517). Do nothing if the time of the latest call is
        known.

        The fast paths do not read the clock, because that would cost as much as returning a record.
        `pace()` limits the number of calls of the fast paths, so that the clock is usually read
        once per millisecond. If the application becomes slower, the next check of
        `max_poll_interval_ms` calls this method earlier. `now` is then later than the application's
        call by at most the time between two checks.
        """
        if self.call == self.timed_call:
            return
        if self.timed_call == 0:
            self.first_called_at = now
        elif now - self.called_at > self.longest_interval:
            self.longest_interval = now - self.called_at
        self.timed_call = self.call
        self.called_at = now

    def pace(self, share: float) -> None:
        """Set how many records `next()` returns before it returns None, so that the caller checks
        whether other tasks must run. `share`: the time since other tasks last ran, as a fraction of
        the permitted time. If `share` is at most 1, the number of records doubles; else it falls in
        proportion to `share`.

        The number adapts, because the time includes the application's work on the records, which
        may take a thousand times longer than reading them.
        """
        run = 2 * self._run + 1 if share <= 1 else int(self._run / share)
        self._run = self._left = min(run, _LONGEST_RUN)

    def set_fast_path(self, is_open: bool) -> None:
        """Set whether `next()` and `take_now()` may return records. If not, they always return
        None."""
        self.fast_path = is_open

    def next(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of the current record set; the fast path of `next_of(None)`.

        Returns None:

        - after the last record of the set, and after as many records as `pace()` allows;
        - while the fast path is closed (`set_fast_path`);
        - while interceptors process records, or if the interceptors may be `async`;
        - while the partition is paused, or its topic is not subscribed to any more;
        - after a seek, reset or revocation;
        - if a deserializer waits; then sets `suspended`.

        Counts a call of `getone()` if it takes a record. Raises the error of an unreadable record,
        unless another broker may have an undamaged copy (`_drop_copy`).
        """
        chunk = self._current
        if chunk is None or not self._left or not self.fast_path or self.is_intercepting:
            return None
        # A deserializer waits. `async for` calls this method twice for such a record: the iterator
        # got None, so it calls `getone()`, which calls this method first. Deserializing the record
        # again would leave `suspended` set for a record that was returned.
        if self.suspended is not None:
            return None
        if not self.may_call_interceptor and self.interceptor is not None:
            return None
        state = chunk.state
        # While the partition is paused or its topic is not subscribed to any more, return None:
        # `next_of()`, which the caller calls then, skips the partition. A seek, reset or revocation
        # has already dropped the record set (`discard_stale`), and with it `_current`.
        if state.is_withheld:
            return None
        try:
            record: ConsumerRecord[Any, Any] | None = chunk.reader.next()
        except Exception as error:
            if self._is_suspended(chunk) or self._drop_copy(chunk, error):
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
            if chunk.reader.is_at_end():
                self._end_turn(chunk)
            if self.interceptor is not None:
                return self._intercept(state, record)
        return record

    def take_now(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]] | None:
        """Return what `take(None, limit)` returns; the fast path of `getmany()`.

        Returns None if nothing is buffered, if `limit` is -1 or exceeds the number of records that
        `pace()` still allows, while the fast path is closed (`set_fast_path`), and with
        interceptors. Otherwise counts the call of `getmany()`.
        """
        if limit < 0 or limit > self._left or not self._queues:
            return None
        if not self.fast_path or self.is_intercepting or self.interceptor is not None:
            return None
        self._left -= limit
        self.call += 1
        return self.take(None, limit)

    def _intercept(
        self, state: PartitionState, record: ConsumerRecord[Any, Any]
    ) -> ConsumerRecord[Any, Any] | None:
        """Return a record as changed by the interceptors, or the next record if they drop it.

        If an interceptor returns an awaitable, or a rebalance begins, set `unfinished` and return
        None. `getone()` then calls `resume()` without an await in between, so that no other task
        reads.
        """
        state.show(record.offset, 1)
        state.finished = record.offset
        self.is_intercepting = self.is_calling = True
        try:
            passed = self.interceptor({state.tp: [record]})  # type: ignore[misc]
        except BaseException:
            # Only a BaseException such as KeyboardInterrupt is raised here: ConsumerInterception
            # catches an Exception and logs it.
            self.is_intercepting = False
            state.give_back(1)
            raise
        finally:
            self.is_calling = False
        if not isinstance(passed, dict) or not self.fast_path:
            self.may_call_interceptor = isinstance(passed, dict)
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

    def set_interceptor(self, interceptor: Interceptor | None, may_call: bool = True) -> None:
        """Set the function that is called with each record; None without interceptors.

        `may_call`: whether `next()` may call the function. A function that may return an awaitable
        is called by `intercept()`, which marks the context: so `refuse_reading()` recognizes calls
        of `getone()` and `getmany()` in the function's coroutine, and in tasks that the coroutine
        starts.
        """
        self.interceptor = interceptor
        self.may_call_interceptor = may_call

    def set_intercepting(self, is_intercepting: bool) -> None:
        """Set whether interceptors process records, or a deserializer waits. Meanwhile, other
        readers get no records."""
        self.is_intercepting = is_intercepting

    def next_of(self, wanted: Wanted) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of these partitions (None = all); None if no record is buffered.
        Sets `suspended` and returns None if a deserializer waits.

        Raises the failures of these partitions, each failure once. Raises the error of an
        unreadable record with every call until the position moves.
        """
        self._raise_failure_in_turn(wanted)
        skipped = 0
        while skipped < len(self._queues):
            state = next(iter(self._queues))
            if _is_served(state, wanted):
                record = self._next_from(state, wanted is None)
                if record is not None or self.suspended is not None:
                    return record
                skipped = 0  # a record set was removed, so the queue has changed
            else:
                skipped += 1
                self._queues.move_to_end(state)
        self._raise_failure(wanted)
        return None

    def take(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return up to `limit` records (-1 = all buffered) of these partitions (None = all).

        After decompressing 64 MiB, returns the records so far. A partition whose records were
        returned moves to the end of the queue. Raises like `next_of()`, but returns the records
        before an unreadable record first. If a deserializer waits, sets `suspended` and returns the
        records before that record.
        """
        self._raise_failure_in_turn(wanted)
        self._room = _MOST_UNPACKED
        found = self._take_all(wanted, limit)
        if not found and self.suspended is None:
            self._raise_failure(wanted)
        self._has_raised = False
        return found

    def take_more(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Continue a `take()` that stopped because a deserializer waited. The deserializer has
        returned now, and the caller has accepted the record. `limit`: the remaining number of
        records. Raises no error of a record or partition: the caller returns its records first, and
        the next call raises the error."""
        if limit == 0 or self._room <= 0:
            return {}
        try:
            return self._take_all(wanted, limit)
        except Exception:
            return {}

    def take_again(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Take more records for a call that has taken records before, and has let other tasks run
        since. Returns {} if no record is buffered. Raises the error of an unreadable record like
        `take()`, but no failure of a partition."""
        self._room = _MOST_UNPACKED
        return self._take_all(wanted, limit)

    def has_failure(self, wanted: Wanted) -> bool:
        """Return whether one of these partitions (None = all) has a failure to raise."""
        return any(_is_served(state, wanted) for state in self._failures)

    def _take_all(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        self._before.clear()
        try:
            return self._take(wanted, limit)
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
            if limit == 0 or (self._room <= 0 and taken) or self.suspended is not None:
                break
        return taken

    def _is_suspended(self, chunk: FetchedPartition) -> bool:
        """Return whether the last read of a record set has stopped because a deserializer waits,
        and set `suspended` then."""
        if chunk.reader.suspended is None:
            return False
        self.suspended = chunk
        return True

    def pop_suspended(self) -> tuple[FetchedPartition, int, SuspendedRecord]:
        """Clear `suspended`, and return the arguments of `accept()`: the record set in `suspended`,
        its epoch, and its record whose deserializer waits."""
        chunk = self.suspended
        assert chunk is not None
        record = chunk.reader.suspended
        assert record is not None
        self.suspended = chunk.reader.suspended = None
        return chunk, chunk.epoch, record

    def accept(
        self, chunk: FetchedPartition, epoch: int, suspended: SuspendedRecord
    ) -> ConsumerRecord[Any, Any] | None:
        """Return the record whose deserializer has returned. Raises the error of the deserializer.

        Returns None, and the next read deserializes the record again, if it must not be returned
        now: after a seek, reset or revocation, or if its partition is paused or its record set was
        dropped. Returns None and sets `suspended.is_left_out` if the error of the deserializer is
        handled by leaving the record out.
        """
        state = chunk.state
        if state.is_withheld or chunk.epoch != epoch or self._head(state) is not chunk:
            return None
        try:
            record: ConsumerRecord[Any, Any] | None = chunk.reader.accept(suspended)
        except Exception as error:
            self._set_aside(chunk, error)
            raise
        state.next_offset = chunk.reader.position
        if record is None:
            suspended.is_left_out = True
        else:
            if state.call != self.call:
                state.call = self.call
                state.finished = min(record.offset, state.shown)
            state.taken += 1
        if chunk.reader.is_at_end():
            self._end_turn(chunk)
        else:
            self._queues.move_to_end(state, last=False)  # `take_more()` continues here
        return record

    def _raise_failure_in_turn(self, wanted: Wanted) -> None:
        """Raise a failure of these partitions, unless a failure was already raised since the last
        record set was read to its end.

        Without this limit, a failure that recurs at once, such as TOPIC_AUTHORIZATION_FAILED, would
        block the records of all other partitions.
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
        """Return the next record of one partition; None if its record set ends or is dropped.

        `is_free`: whether the caller reads from all partitions, so that `next()` may continue with
        this record set.
        """
        chunk = self._head(state)
        if chunk is None:
            return None
        try:
            record: ConsumerRecord[Any, Any] | None = chunk.reader.next()
        except Exception as error:
            if self._is_suspended(chunk) or self._drop_copy(chunk, error):
                return None
            self._set_aside(chunk, error)
            raise
        finally:
            # Set the position after an error, too: the reader may have skipped empty batches.
            state.next_offset = chunk.reader.position
        if record is None:
            self._end_turn(chunk)
            return None
        # If `state.call` is the latest call already, an earlier record of the partition was read
        # since that call began, by another task or by this call (an interceptor dropped the
        # record). The application may not have finished it: keep `finished`.
        if state.call != self.call:
            state.call = self.call
            state.finished = record.offset
        state.taken += 1
        # Finish the set with its last record, not with the next call: the next fetch is sent while
        # the application processes the record.
        if chunk.reader.is_at_end():
            self._end_turn(chunk)
        elif is_free:
            self._current = chunk
        return record

    def _take_from(
        self, state: PartitionState, limit: int, records: list[ConsumerRecord[Any, Any]]
    ) -> None:
        """Append up to `limit` records (-1 = all) of one partition to `records`; fewer if the limit
        of decompressed bytes (`_room`) is reached. If a record is unreadable, append the records
        before it and raise the error. If the deserializer of a record waits, append the records
        before it and set `suspended`."""
        self._before.append((state, state.next_offset, state.taken))
        while True:
            chunk = self._head(state)
            if chunk is None:
                return
            try:
                found = chunk.reader.take(limit if limit >= 0 else _ALL, max(self._room, 1))
            except Exception as error:
                if self._is_suspended(chunk) or self._drop_copy(chunk, error):
                    return
                self._set_aside(chunk, error)
                raise
            finally:
                state.next_offset = chunk.reader.position
            self._room -= chunk.reader.unpacked
            if found and state.call != self.call:
                # If another task began a call while a deserializer waited, `self.call` has changed
                # since the present call took its first records. These records, from `shown` on, are
                # not finished.
                state.call = self.call
                state.finished = min(found[0].offset, state.shown)
            state.taken += len(found)
            if records:
                records.extend(found)
            else:
                records[:] = found
            if self._is_suspended(chunk):
                return
            if chunk.reader.is_at_end():
                self._finish(chunk)
            if limit >= 0:
                limit -= len(found)
                if limit <= 0:
                    return
            if self._room <= 0 and records:
                return

    def _head(self, state: PartitionState) -> FetchedPartition | None:
        """Return the partition's oldest record set; None without record sets. If it was fetched
        before a seek, reset or revocation, or begins after the position, drop all record sets of
        the partition, and return None."""
        queue = self._queues.get(state)
        if queue is None:
            return None
        chunk: FetchedPartition = queue[0]
        # A record set that begins after the position would skip records. This occurs if `put_back`
        # has moved the position into a record set that is already removed.
        if chunk.epoch == state.epoch and chunk.start <= state.next_offset:
            return chunk
        self.discard(state)
        state.changed()
        return None

    def _end_turn(self, chunk: FetchedPartition) -> None:
        """Finish a record set, and let the other partitions be read before the next record set of
        this partition."""
        self._finish(chunk)
        if chunk.state in self._queues:
            self._queues.move_to_end(chunk.state)

    def _finish(self, chunk: FetchedPartition) -> None:
        """Remove a record set that was read to its end, or that a seek has passed, so that another
        one may be fetched."""
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
        """Drop a corrupt record set if another broker may have an undamaged copy: the record set
        came from a preferred replica, or the partition is now fetched from another broker. Return
        whether it was dropped; False for any error but CorruptRecordError."""
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
        """Move a partition with an unreadable record to the end of the queue. Mark the record set
        as damaged, unless only a deserializer failed. If `error` is a CorruptRecordError, add the
        partition and the offset after the batch to it."""
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
    """Add the partition and the offset after the corrupt batch (-1 = unknown) to the error."""
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
    `__anext__` of the consumer at any time. Then each record has to pass through the replacement.
    The iterator checks for a replacement when the fast path returns no record: at the end of a
    record set, or after 127 records at the latest.
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
            is_plain: Returns whether `getone` and `__anext__` are those of AIOKafkaConsumer.
            find_next: Returns a coroutine for the next record if the fast path returns None.
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
    """Return a coroutine that finds the next record. Before that, store in `_is_plain` whether the
    fast path may be used for the following records."""
    records = iterator
    records._is_plain = records._ask_plain()
    return records._find_next()
