cimport cython

cimport aiokafka._cpython_native as _cpython


cdef class Interception:
    cdef object __weakref__
    cdef readonly object is_idle
    cdef tuple _interceptors
    cdef bint _drops
    cdef object _guard
    cdef object _loop
    cdef object _waiting
    cdef object _wake
    cdef object _advanced
    cdef object _current
    cdef object _running
    cdef object _tasks
    cdef bint _is_closed

    @cython.locals(number=Py_ssize_t)
    cpdef object transform(self, object item, tuple methods, object is_valid, Py_ssize_t first=*)

    cdef object _enqueue(self, object method, object result)


cdef class ProducerInterception(Interception):
    cdef readonly object observer
    cdef tuple _on_send
    cdef tuple _on_acknowledgement

    cpdef object on_send(
        self,
        object topic,
        object value,
        object key,
        object partition,
        object timestamp_ms,
        object headers,
    )

    cpdef acknowledge(self, object record, object metadata, object error)


cdef class ConsumerInterception(Interception):
    cdef readonly object committed
    cdef readonly bint is_plain
    cdef bint _has_awaitables
    cdef tuple _on_poll
    cdef tuple _on_consume

    cpdef object begin(self, object records, double waited=*)
