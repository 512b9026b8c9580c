cimport cython
from libc.stdint cimport int64_t

from aiokafka.record.batch cimport RecordBatchBuilder


cdef class AppendedRecord:
    cdef readonly int64_t offset
    cdef readonly int64_t size
    cdef readonly int64_t timestamp


cdef class BatchBuilder:
    cdef RecordBatchBuilder _builder
    cdef object _serializers
    cdef object _key_serializer
    cdef object _value_serializer
    cdef readonly object topic
    cdef bint _is_closed
    cdef bint _is_sent
    cdef int64_t _first_timestamp

    cdef RecordBatchBuilder _records(self)

    @cython.locals(
        seconds=double,
        stamp=int64_t,
        before=Py_ssize_t,
        offset=Py_ssize_t,
        builder=RecordBatchBuilder,
        record=AppendedRecord,
    )
    cpdef AppendedRecord _add(self, object timestamp, object key, object value, object headers)
