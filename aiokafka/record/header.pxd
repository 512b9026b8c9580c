cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

cimport aiokafka.record._native as mem

cdef Py_ssize_t _V2_SIZE
cdef Py_ssize_t _PREFIX_SIZE
cdef Py_ssize_t _LOG_OVERHEAD
cdef Py_ssize_t _MAX_BATCH
cdef int64_t _MAX_OFFSET
cdef Py_ssize_t _SMALLEST_V0
cdef Py_ssize_t _SMALLEST_V1

cdef class RecordBatch:
    cdef readonly object view
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly Py_ssize_t size_in_bytes
    cdef readonly int magic
    cdef readonly int32_t leader_epoch
    cdef readonly uint32_t crc
    cdef readonly int attributes
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t record_count

    @cython.locals(data=mem.source_t, last_delta=int32_t)
    cdef void _parse(self, object view) except *
    cdef int _read_message(self, mem.source_t data) except -1
    cpdef check_crc(self)
    cpdef object payload(self, object max_decompressed_bytes=*)

@cython.locals(
    data=mem.source_t, left=Py_ssize_t, size=Py_ssize_t, least=Py_ssize_t, magic=int
)
cdef Py_ssize_t batch_size(object view, Py_ssize_t at) except -1
@cython.locals(size=Py_ssize_t, batch=RecordBatch)
cpdef RecordBatch parse_batch(object view, Py_ssize_t at)
@cython.locals(data=mem.source_t, size=Py_ssize_t, base_offset=int64_t, last_delta=int32_t)
cpdef Py_ssize_t valid_size(object view, Py_ssize_t at) except -1

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
    total=Py_ssize_t,
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
