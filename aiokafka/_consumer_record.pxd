cimport cython

cimport aiokafka._cpython_native as _cpython


cdef class Record:
    cdef dict __dict__
    cdef object __weakref__
    cdef public object topic
    cdef public object partition
    cdef public object offset
    cdef public object timestamp
    cdef public object timestamp_type
    cdef public object key
    cdef public object value
    cdef public object checksum
    cdef public object serialized_key_size
    cdef public object serialized_value_size
    cdef public object headers

    cpdef tuple _astuple(self)


cdef class AcquiredRecord(Record):
    cdef public object delivery_count
    cdef public object _acquisition
    cdef public bint _is_open
    cdef public bint _is_raw

    @cython.locals(was_open=bint)
    cpdef bint _close(self) noexcept
