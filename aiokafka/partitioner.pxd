cimport cython
from libc.stdint cimport uint32_t


@cython.locals(
    buffer=bytes,
    m=uint32_t,
    h=uint32_t,
    k=uint32_t,
    i=Py_ssize_t,
    length=Py_ssize_t,
)
cpdef uint32_t murmur2(object data) except? 0xFFFFFFFF
