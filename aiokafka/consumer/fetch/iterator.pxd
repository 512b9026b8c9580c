cimport cython

cimport aiokafka._ready_native as _ready
from aiokafka.consumer.fetch.buffer cimport FetchBuffer


@cython.final
cdef class RecordIterator:
    cdef FetchBuffer _buffer
    cdef object _ask_plain
    cdef bint _is_plain
    cdef object _find_next


@cython.locals(records=RecordIterator)
cdef object _take(object iterator)
@cython.locals(records=RecordIterator)
cdef object _find(object iterator)
