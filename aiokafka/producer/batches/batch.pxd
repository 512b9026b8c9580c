cimport cython
from libc.stdint cimport int64_t

from aiokafka.producer.batches.record_future cimport BatchOutcome
from aiokafka.record.batch cimport RecordBatchBuilder


cdef int64_t _OVERHEAD


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
    cdef readonly bint is_unanswered
    cdef readonly bint goes_alone
    cdef readonly object error
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly int64_t base_sequence
    cdef readonly object whole
    cdef readonly int64_t whole_timestamp
    cdef readonly BatchOutcome outcome

    @cython.locals(size=Py_ssize_t)
    cpdef object add(
        self, object timestamp, object key, object value, object headers, bint is_awaited=*
    )
