cimport cython
from libc.stdint cimport int64_t

cimport aiokafka._cpython_native as _cpython
from aiokafka.record.batch cimport RecordBatchBuilder


cdef int _OPEN
cdef int _WRITTEN
cdef int _UNACKNOWLEDGED
cdef int _FAILED
cdef int _PENDING
cdef int _CANCELLED
cdef int _RESULT
cdef int _EXCEPTION
cdef list _NOTHING
cdef list _NO_CONTEXTS

cdef int64_t _OVERHEAD
cdef int _BATCH_OPEN
cdef int _BATCH_IN_FLIGHT
cdef int _BATCH_ABANDONED
cdef tuple _NEXT_STATES


@cython.final
cdef class BatchOutcome:
    cdef readonly object partition
    cdef readonly object loop
    cdef readonly int state
    cdef readonly list timestamps
    cdef int64_t _base_offset
    cdef int64_t _log_append_time
    cdef object _log_start
    cdef object _topic
    cdef object _number
    cdef object _make_error
    cdef bint _is_retrieved
    cdef list _waiting
    cdef list _dropped
    cdef list _records
    cdef list _contexts
    cdef object _observer
    cdef list _firsts
    cdef list _parts

    cpdef RecordFuture promise(self, object timestamp)

    cpdef object promise_awaited(self, object timestamp)

    cdef Py_ssize_t _part(self, Py_ssize_t number)

    @cython.locals(
        part=BatchOutcome, number=Py_ssize_t, at=Py_ssize_t, first=Py_ssize_t, end=Py_ssize_t
    )
    cpdef divide(self, object firsts, object parts)

    cpdef watch(self, Py_ssize_t number, RecordFuture future)

    cpdef note_dropped(self, Py_ssize_t number)

    cpdef observe(self, Py_ssize_t number, object record, object observer)

    @cython.locals(records=list, contexts=list, first=Py_ssize_t, end=Py_ssize_t)
    cpdef _report(self)

    @cython.locals(number=Py_ssize_t)
    cpdef _report_some(self, list records, Py_ssize_t first, Py_ssize_t end)

    cpdef write(self, int64_t base_offset, int64_t log_append_time, object log_start_offset)

    @cython.locals(waiting=list, number=Py_ssize_t)
    cdef _settle(self, int state)

    @cython.locals(watched=RecordFuture)
    cdef _wake(self, Py_ssize_t number, object future)

    @cython.locals(offset=int64_t, kind=int)
    cdef object _metadata(self, Py_ssize_t number)


@cython.final
@cython.auto_pickle(False)
cdef class RecordFuture:
    cdef dict __dict__
    cdef object __weakref__
    cdef BatchOutcome _outcome
    cdef Py_ssize_t _number
    cdef int _state
    cdef bint _is_retrieved
    cdef bint _is_called_first
    cdef object _value
    cdef object _fn
    cdef object _context
    cdef list _more
    cdef object _twin

    @cython.locals(outcome=BatchOutcome, part=Py_ssize_t)
    cdef BatchOutcome _current_outcome(self)

    @cython.locals(outcome=BatchOutcome)
    cdef _load(self)

    cpdef bint done(self) except -1

    cpdef bint cancelled(self) except -1

    cpdef result(self)

    @cython.locals(outcome=BatchOutcome)
    cpdef observe(self, object record, object observer)

    @cython.locals(outcome=BatchOutcome)
    cdef _watch(self)

    cdef _wake(self)

    cdef _call_back(self)


cdef bint _is_same(object context, object other) except -1


@cython.locals(future=RecordFuture)
cdef RecordFuture _new_future(BatchOutcome outcome, Py_ssize_t number)


cdef class ProducerBatch:
    cdef readonly object partition
    cdef readonly RecordBatchBuilder builder
    cdef readonly double created
    cdef readonly double deadline
    cdef readonly int state
    cdef readonly int64_t reserved
    cdef readonly int attempts
    cdef readonly bint has_grown
    cdef readonly bint is_doubtful
    cdef readonly bint is_unconfirmed
    cdef readonly bint goes_alone
    cdef readonly object error
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly int64_t base_sequence
    cdef readonly object user_future
    cdef readonly int64_t user_timestamp
    cdef readonly BatchOutcome outcome

    @cython.locals(allowed=int)
    cpdef object transition(self, int state)

    cpdef object begin_attempt(self)

    cpdef object reserve(self, int64_t size)

    @cython.locals(held=int64_t)
    cpdef int64_t release(self) except? -1

    cpdef object succeed(
        self, int64_t base_offset, int64_t log_append_time, object log_start_offset
    )

    @cython.locals(size=Py_ssize_t)
    cpdef object add(
        self, object timestamp, object key, object value, object headers, bint is_awaited=*
    )
