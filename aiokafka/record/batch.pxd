cimport cython
from libc.stdint cimport int64_t

cimport aiokafka.record._native as mem
from aiokafka.record.rows cimport RowSource


cdef int64_t _MAX_TIMESTAMP


cdef Py_ssize_t _LEAST_REUSED
cdef Py_ssize_t _MOST_SPARE


cdef class SpareBuffers:
    cdef list _buffers
    cdef Py_ssize_t _free

    cpdef bytearray take(self)
    cpdef free(self, Py_ssize_t size)
    @cython.locals(size=Py_ssize_t)
    cpdef add(self, bytearray buffer)


cdef class RecordBatchBuilder:
    cdef readonly int compression
    cdef readonly Py_ssize_t size_limit
    cdef readonly bint is_large
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t record_count
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly Py_ssize_t compressed_size
    cdef object _level
    cdef bytearray _buffer
    cdef Py_ssize_t _capacity
    cdef object _batch
    cdef tuple _identity
    cdef SpareBuffers _spare
    cdef bint _is_reused
    cdef Py_ssize_t _loan

    @cython.locals(
        plain_key=bytes,
        plain_value=bytes,
        delta=int64_t,
        offset=Py_ssize_t,
        body=Py_ssize_t,
        extra=Py_ssize_t,
        size=Py_ssize_t,
        out=mem.target_t,
        at=Py_ssize_t,
        name=str,
        content=bytes,
    )
    cpdef Py_ssize_t append(
        self, int64_t timestamp, object key, object value, object headers
    ) except -2

    @cython.locals(places=mem.target_t, place=Py_ssize_t, row=Py_ssize_t)
    cpdef Py_ssize_t append_rows(
        self, RowSource rows, bytearray order, Py_ssize_t start, Py_ssize_t stop
    ) except -1
    @cython.locals(
        timestamp=int64_t,
        delta=int64_t,
        body=Py_ssize_t,
        size=Py_ssize_t,
        out=mem.target_t,
        at=Py_ssize_t,
    )
    cdef bint _append_row(self, RowSource rows, Py_ssize_t row) except -1

    @cython.locals(capacity=Py_ssize_t, buffer=bytearray)
    cdef int _grow(self, Py_ssize_t size) except -1
    cdef _give_buffer(self)
    cpdef end_loan(self)
    cdef _reduce_loan(self, Py_ssize_t unused)
    cpdef recycle(self)
    cpdef object pack(self)
    cdef object _write_header(
        self,
        object batch,
        object producer_id,
        object producer_epoch,
        object base_sequence,
        bint transactional,
    )
    cpdef object build(
        self,
        object producer_id=*,
        object producer_epoch=*,
        object base_sequence=*,
        object transactional=*,
    )


@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _headers_size(object headers) except -2
