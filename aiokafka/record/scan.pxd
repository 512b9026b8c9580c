cimport cython
from libc.stdint cimport int32_t, int64_t

cimport aiokafka.record._native as mem
from aiokafka.record.header cimport valid_size

cdef int64_t _MAX_OFFSET


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
