cimport cython
from libc.stdint cimport int64_t

cimport aiokafka.record._native as mem
from aiokafka.record.header cimport RecordBatch

cdef int64_t _MAX_OFFSET


cdef class BatchCursor:
    cdef public int64_t position
    cdef readonly int last_leader_epoch
    cdef readonly bint truncated
    cdef readonly int64_t unpacked

    cdef object _view
    cdef bint _check_crcs
    cdef bint _include_control
    cdef object _max_decompressed_bytes
    cdef list _aborted
    cdef Py_ssize_t _aborted_seen
    cdef set _aborting

    cdef Py_ssize_t _next
    cdef RecordBatch _batch
    cdef object _payload
    cdef list _messages

    # The current batch: the bytes of its records, the number of remaining records (`_left`), and
    # the header fields from which offsets and timestamps are computed.
    cdef mem.source_t _data
    cdef Py_ssize_t _at
    cdef Py_ssize_t _end
    cdef Py_ssize_t _left
    cdef int64_t _base_offset
    cdef int64_t _last_offset
    cdef int64_t _base_timestamp
    cdef int64_t _max_timestamp
    cdef int _timestamp_type
    cdef bint _append_time

    # The state that `_mark` has saved.
    cdef int64_t _marked_position
    cdef Py_ssize_t _marked_next
    cdef int _marked_epoch
    cdef Py_ssize_t _marked_seen
    cdef set _marked_aborting

    cpdef bint go_to(self, int64_t offset) except -1
    cdef int _mark(self) except -1
    cdef int _return(self) except -1
    cdef int _leave(self) except -1
    @cython.locals(batch=RecordBatch)
    cdef bint _find(self) except -1
    cdef int _pass(self, RecordBatch batch) except -1
    cdef bint _is_hidden(self, RecordBatch batch) except -1
    cdef void _begin_aborted(self, int64_t last_offset) except *
    cdef bint _is_abort_marker(self, RecordBatch batch) except -1
    @cython.locals(batch=RecordBatch)
    cdef bint _enter(self) except -1
    cdef int _enter_legacy(self, RecordBatch batch) except -1
    cdef int _leave_if_done(self) except -1
    cdef int _settle(self) except -1
    cpdef bint is_at_end(self) except -1
    @cython.locals(batch=RecordBatch)
    cdef void _skip_batch(self) except *
    cdef RecordBatch _unread(self)
    @cython.locals(following=RecordBatch, behind=int64_t)
    cdef int64_t _behind(self, RecordBatch batch) except -1
    cdef object _corrupt(self, str what)
