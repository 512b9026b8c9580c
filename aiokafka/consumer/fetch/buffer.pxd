cimport cython
from libc.stdint cimport int64_t

cimport aiokafka._cpython_native as _cpython
from aiokafka.consumer._partition_state cimport PartitionState
from aiokafka.record.reader cimport RecordReader

cdef Py_ssize_t _ALL
cdef int64_t _MOST_UNPACKED
cdef int64_t _LONGEST_RUN


@cython.final
cdef class PinnedResponse:
    cdef readonly object node
    cdef readonly Py_ssize_t nbytes
    cdef Py_ssize_t unread


@cython.final
cdef class FetchedPartition:
    cdef readonly PartitionState state
    cdef int64_t epoch
    cdef int64_t start
    cdef RecordReader reader
    cdef PinnedResponse response
    cdef bint is_damaged


@cython.final
cdef class FetchBuffer:
    cdef readonly int64_t call
    cdef readonly int64_t timed_call
    cdef readonly double called_at
    cdef readonly double first_called_at
    cdef readonly double longest_interval
    cdef readonly bint fast_path
    cdef readonly object interceptor
    cdef readonly bint may_call_interceptor
    cdef readonly bint is_intercepting
    cdef readonly bint is_calling
    cdef readonly tuple unfinished
    cdef readonly FetchedPartition suspended
    cdef readonly bint is_awaited
    cdef readonly object awaited
    cdef int64_t _run
    cdef int64_t _left
    cdef int64_t _room
    cdef list _before
    cdef bint _has_raised
    cdef FetchedPartition _current
    cdef object _queues
    cdef object _failures

    cpdef add(self, PartitionState state, RecordReader reader, PinnedResponse response)
    @cython.locals(chunk=FetchedPartition)
    cpdef discard(self, PartitionState state)
    @cython.locals(chunk=FetchedPartition)
    cpdef discard_stale(self, PartitionState state)
    @cython.locals(head=FetchedPartition, chunk=FetchedPartition, passed=list)
    cpdef bint skip(self, PartitionState state, int64_t offset) except -1
    @cython.locals(chunk=FetchedPartition, state=PartitionState, found=list)
    cpdef list unserved(self, object node)
    cpdef begin_call(self, double now)
    cpdef time_calls(self, double now)
    @cython.locals(run=int64_t)
    cpdef pace(self, double share)
    @cython.locals(chunk=FetchedPartition, state=PartitionState)
    cpdef object next(self)
    cpdef object take_now(self, Py_ssize_t limit)
    @cython.locals(result=dict)
    cdef object _intercept(self, PartitionState state, object record)
    @cython.locals(state=PartitionState, skipped=Py_ssize_t)
    cpdef object next_of(self, object wanted)
    cpdef dict take(self, object wanted, Py_ssize_t limit)
    cpdef dict take_more(self, object wanted, Py_ssize_t limit)
    cpdef dict take_again(self, object wanted, Py_ssize_t limit)
    cdef dict _take_all(self, object wanted, Py_ssize_t limit)
    cdef bint _is_suspended(self, FetchedPartition chunk) except -1
    @cython.locals(chunk=FetchedPartition)
    cpdef tuple pop_suspended(self)
    @cython.locals(state=PartitionState)
    cpdef object accept(self, FetchedPartition chunk, int64_t epoch, object suspended)
    @cython.locals(state=PartitionState, records=list)
    cdef dict _take(self, object wanted, Py_ssize_t limit)
    @cython.locals(chunk=FetchedPartition)
    cdef object _next_from(self, PartitionState state, bint is_free)
    @cython.locals(chunk=FetchedPartition, found=list)
    cdef object _take_from(self, PartitionState state, Py_ssize_t limit, list records)
    @cython.locals(chunk=FetchedPartition)
    cdef FetchedPartition _head(self, PartitionState state)
    cdef int _end_turn(self, FetchedPartition chunk) except -1
    cdef int _finish(self, FetchedPartition chunk) except -1
    @cython.locals(state=PartitionState)
    cdef bint _drop_copy(self, FetchedPartition chunk, object error) except -1
    cdef object _set_aside(self, FetchedPartition chunk, object error)
    @cython.locals(response=PinnedResponse)
    cdef int _release(self, FetchedPartition chunk) except -1


cdef bint _is_served(PartitionState state, object wanted) except -1


@cython.final
cdef class RecordIterator:
    cdef FetchBuffer _buffer
    cdef object _ask_plain
    cdef bint _is_plain
    cdef object _find_next


@cython.locals(records=RecordIterator)
cdef object _take(object iterator)
@cython.locals(records=RecordIterator)
cdef object _find(object iterator)
