# The C form of aiokafka/protocol/_memory.py, inlined into the modules that cimport it.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t

ctypedef const uint8_t* source_t


cdef inline source_t source(bytearray buffer) noexcept:
    return <source_t> PyByteArray_AS_STRING(buffer)


cdef inline int32_t length_at(source_t data, Py_ssize_t at) noexcept:
    return <int32_t> (
        (<uint32_t> data[at] << 24)
        | (<uint32_t> data[at + 1] << 16)
        | (<uint32_t> data[at + 2] << 8)
        | data[at + 3]
    )


cdef inline bytes cut(source_t data, Py_ssize_t start, Py_ssize_t stop):
    return PyBytes_FromStringAndSize(<const char*> data + start, stop - start)


cdef inline bytearray new_buffer(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)
