cimport cython
from libc.stdint cimport int32_t

cimport aiokafka._cpython_native as _cpython


cdef class FrameReader:
    cdef Py_ssize_t _max_frame_bytes
    cdef bytearray _scratch
    cdef object _scratch_view
    cdef Py_ssize_t _pending
    cdef bytearray _frame
    cdef object _target
    cdef Py_ssize_t _filled

    cpdef object clear(self)
    cpdef object allow(self, Py_ssize_t max_frame_bytes)
    cpdef object get_buffer(self, Py_ssize_t sizehint=*)

    @cython.locals(end=Py_ssize_t, position=Py_ssize_t, start=Py_ssize_t, size=int32_t)
    cpdef list advance(self, Py_ssize_t count)

    cdef object _begin_large(self, Py_ssize_t size, Py_ssize_t start, Py_ssize_t end)
    cdef list _advance_large(self, Py_ssize_t count)
    cdef object _check(self, int32_t size, Py_ssize_t position)
