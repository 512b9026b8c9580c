cimport cython
from libc.stdint cimport int64_t

cimport aiokafka._cpython_native as _cpython
cimport aiokafka.record._native as mem
from aiokafka._consumer_record cimport AcquiredRecord, Record
from aiokafka.record.cursor cimport BatchCursor

cdef int64_t _MAX_INT64
cdef int64_t _MIN_INT64
cdef int64_t _NO_LIMIT


@cython.final
cdef class RecordReader(BatchCursor):
    cdef object _topic
    cdef object _partition
    cdef object _key_deserializer
    cdef object _value_deserializer
    cdef object _on_error
    cdef object _is_turn_over
    cdef bint _takes_context
    cdef bint _is_awaiting
    cdef readonly object suspended
    cdef object _acquisition
    cdef object _delivery_count
    cdef object _key_type
    cdef object _value_type
    cdef bint _is_atomic_key
    cdef bint _is_atomic_value
    cdef tuple _last_headers
    cdef Py_ssize_t _header_end
    cdef bint _is_raw

    cpdef object set_delivery_count(self, object delivery_count)
    cpdef object next(self)
    @cython.locals(records=list, count=Py_ssize_t)
    cpdef list take(self, Py_ssize_t max_records, int64_t max_bytes=*)
    @cython.locals(record=Record, is_kept=bint)
    cpdef object accept(self, object suspended)
    @cython.locals(record=object)
    cdef Py_ssize_t _fill(self, list records, Py_ssize_t count, Py_ssize_t limit) except -1
    @cython.locals(
        data=mem.source_t,
        size=int64_t,
        at=Py_ssize_t,
        stop=Py_ssize_t,
        timestamp=int64_t,
        delta=int64_t,
        offset=int64_t,
        record=Record,
        is_kept=bint,
    )
    cdef object _decode(self)
    @cython.locals(base=int64_t)
    cdef int64_t _timestamp(self, int64_t delta) except? -1
    @cython.locals(
        data=mem.source_t,
        key_size=int64_t,
        key_at=Py_ssize_t,
        value_size=int64_t,
        value_at=Py_ssize_t,
        record=Record,
    )
    cdef Record _read_record(self, Py_ssize_t at, Py_ssize_t stop)
    @cython.locals(record=AcquiredRecord)
    cdef Record _new_acquired(self)
    cdef int _acquire(self, AcquiredRecord record) except -1
    @cython.locals(
        data=mem.source_t,
        count=int64_t,
        known=Py_ssize_t,
        index=Py_ssize_t,
        last=tuple,
        like=tuple,
        pair=tuple,
        pairs=list,
    )
    cdef tuple _read_headers(self, Py_ssize_t at, Py_ssize_t stop)
    @cython.locals(data=mem.source_t, size=int64_t, start=Py_ssize_t, name=str, value=bytes)
    cdef tuple _read_header(self, tuple like, Py_ssize_t at, Py_ssize_t stop)
    @cython.locals(record=Record, is_kept=bint)
    cdef object _decode_message(self)
    cdef bint _deserialize(self, Record record) except -1
    cdef int _convert_both(self, Record record) except -1
    cdef object _convert(self, Record record, object part, object deserializer, object data)
    cdef object _await(self, Record record, object part, object awaitable, object key)
