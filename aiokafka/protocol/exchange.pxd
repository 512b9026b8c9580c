cimport cython
from libc.stdint cimport int32_t, int64_t

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


@cython.final
@cython.auto_pickle(False)
cdef class _Plan:
    cdef readonly object name
    cdef readonly bint is_flexible
    cdef readonly bint has_tags
    cdef readonly object encode
    cdef readonly object responses
    cdef object decode


@cython.final
@cython.auto_pickle(False)
cdef class InFlightRequest:
    cdef readonly object token
    cdef readonly double deadline
    cdef readonly double sent_at
    cdef readonly object on_response
    cdef readonly int64_t correlation_id
    cdef readonly object request
    cdef readonly _Plan plan


@cython.final
@cython.auto_pickle(False)
cdef class Exchange:
    cdef readonly object in_flight
    cdef tuple _heads
    cdef set _padded
    cdef int64_t _last_id
    cdef int64_t _answered_id
    cdef readonly bint has_silent
    cdef readonly object surplus

    @cython.locals(plan=_Plan, out=bytearray, buffers=list, size=Py_ssize_t, correlation_id=int64_t)
    cpdef list send(self, object request, object version, InFlightRequest expected)

    @cython.locals(
        request=InFlightRequest,
        plan=_Plan,
        correlation_id=int64_t,
        offset=Py_ssize_t,
        end=Py_ssize_t,
    )
    cpdef tuple receive(self, object frame)

    @cython.locals(request=InFlightRequest)
    cpdef object postpone(self, double seconds)
