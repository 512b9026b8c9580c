cdef class PartitionState:
    cdef public object tp
    cdef public long long next_offset
    cdef public long long epoch
    cdef public bint paused
    cdef public long long call
    cdef public long long finished
    cdef public object phase
    cdef public object reset_to
    cdef public object cursor
    cdef public object watcher
    cdef public object highwater
    cdef public object lso
    cdef public object log_start
    cdef public object timestamp
