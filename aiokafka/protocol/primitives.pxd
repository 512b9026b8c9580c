# C types for primitives.py. The buffers are bytes or bytearray, nothing else.

cimport cython
from libc.stdint cimport int64_t, uint64_t


@cython.locals(
    data="const unsigned char*", size=Py_ssize_t, value=uint64_t, byte=uint64_t, shift=int
)
cpdef tuple get_uvarint(object buffer, Py_ssize_t position)

@cython.locals(rest=uint64_t)
cpdef object put_uvarint(bytearray out, uint64_t value)

@cython.locals(count=int64_t, length=int64_t)
cpdef Py_ssize_t skip_tags(object buffer, Py_ssize_t position, Py_ssize_t end) except -1
