cimport cython
from libc.stdint cimport int64_t

from aiokafka.record.batch cimport RecordBatchBuilder


cdef int64_t _OVERHEAD


cdef class ProducerBatch:
    cdef public object partition
    cdef public RecordBatchBuilder builder
    cdef public double created
    cdef public double deadline
    cdef public int state
    cdef public int64_t reserved
    cdef public int attempts
    cdef public bint is_doubtful
    cdef public object error
    cdef public int64_t producer_id
    cdef public int producer_epoch
    cdef public int64_t base_sequence
    cdef public object whole
    cdef public int64_t whole_timestamp
    cdef list _futures
    cdef list _timestamps

    @cython.locals(size=Py_ssize_t)
    cpdef object add(self, object timestamp, object key, object value, object headers, object loop)

    @cython.locals(offset=int64_t, step=int64_t, kind=int, timestamps=list, futures=list, index=Py_ssize_t)
    cpdef succeed(self, int64_t base_offset, int64_t log_append_time, object log_start_offset)
