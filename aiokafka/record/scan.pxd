cimport cython
from libc.stdint cimport int32_t, int64_t

cimport aiokafka.record._native as mem
from aiokafka.record.header cimport valid_size

cdef int64_t _MAX_OFFSET
cdef Py_ssize_t _PREFIX_SIZE
cdef Py_ssize_t _LOG_OVERHEAD
cdef Py_ssize_t _LEAST_LENGTH
cdef int _CONTROL


@cython.final
cdef class Scan:
    cdef readonly Py_ssize_t size
    cdef readonly int64_t first
    cdef readonly int64_t end
    cdef readonly list spans


@cython.locals(
    data=mem.source_t,
    size=Py_ssize_t,
    at=Py_ssize_t,
    end=int64_t,
    epoch=int32_t,
    spans=list,
    found=Scan,
    first=int64_t,
    of_span=int32_t,
    base_offset=int64_t,
    delta=int32_t,
)
cpdef Scan scan_record_set(object buffer, int64_t until=*)


@cython.locals(
    data=mem.source_t,
    at=Py_ssize_t,
    left=Py_ssize_t,
    length=Py_ssize_t,
    promised=int32_t,
    count=int64_t,
)
cpdef int64_t count_records(object record_set) except -1
