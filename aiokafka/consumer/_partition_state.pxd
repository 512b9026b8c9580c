cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class PartitionState:
    cdef public object tp
    cdef public int64_t next_offset
    cdef public int64_t shown
    cdef public int64_t epoch
    cdef public bint paused
    cdef public bint is_wanted
    cdef public bint is_withheld
    cdef public int64_t call
    cdef public int64_t finished
    cdef public int64_t taken
    cdef public object phase
    cdef public bint is_fetchable
    cdef public bint needs_offset
    cdef public object reset_to
    cdef public object cursor
    cdef public object target
    cdef public object retry
    cdef public object fetcher
    cdef public object highwater
    cdef public object lso
    cdef public object log_start
    cdef public object timestamp
    cdef public object topic_id
    cdef public int64_t lost_at
    cdef dict _former
    cdef int64_t _seen_taken
    cdef double _seen_at

    cdef _update_withheld(self)
    cpdef show(self, int64_t offset, int64_t count)
    cpdef hand_over(self, int64_t call)
    cpdef bint is_retired(self) except -1
