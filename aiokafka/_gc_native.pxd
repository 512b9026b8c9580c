# The C form of aiokafka/_gc.py.

cdef extern from "Python.h":
    bint PyObject_GC_IsTracked(object instance) noexcept
    void PyObject_GC_Track(object instance) noexcept
    void PyObject_GC_UnTrack(object instance) noexcept
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1


cdef inline void untrack(object instance) noexcept:
    PyObject_GC_UnTrack(instance)


cdef inline int set_tracked(object instance, object name, object value) except -1:
    if not PyObject_GC_IsTracked(instance):
        PyObject_GC_Track(instance)
    return PyObject_GenericSetAttr(instance, name, value)


cdef inline void leave_tracked(object cls) noexcept:
    pass
