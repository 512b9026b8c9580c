cimport cython
from libc.stdint cimport uint32_t

cdef uint32_t _FACTOR
cdef uint32_t _SEED
cdef uint32_t _MASK
cdef uint32_t _FNV_OFFSET
cdef uint32_t _FNV_PRIME


@cython.locals(buffer=bytes)
cpdef uint32_t murmur2(object data) except? 0xFFFFFFFF


@cython.locals(m=uint32_t, mask=uint32_t, h=uint32_t, k=uint32_t, i=Py_ssize_t, end=Py_ssize_t)
cdef uint32_t murmur2_at(const unsigned char* data, Py_ssize_t at, Py_ssize_t length) noexcept


@cython.locals(buffer=bytes, prime=uint32_t, mask=uint32_t, h=uint32_t, byte=uint32_t)
cpdef uint32_t fnv1a(object data) except? 0xFFFFFFFF
