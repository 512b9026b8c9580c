cimport cython

cimport aiokafka._ready_native as _ready
from aiokafka.consumer.fetch.buffer cimport FetchBuffer


@cython.final
cdef class RecordIterator:
    cdef FetchBuffer _buffer
    cdef object _ask_plain
    cdef bint _is_plain
    cdef object _find_next

    cpdef object take(self)


@cython.final
@cython.freelist(8)
cdef class NextRecord:
    cdef RecordIterator _records
    cdef object _going_on

    cdef object _begin(self)
