cimport cython


@cython.final
@cython.auto_pickle(False)
cdef class Histogram:
    cdef tuple _bounds
    cdef tuple _limits
    cdef double _first
    cdef list _counts
    cdef double _sum
    cdef double _max

    @cython.locals(bucket=Py_ssize_t)
    cpdef object observe(self, double value)

    cpdef object absorb(self, Histogram other)
