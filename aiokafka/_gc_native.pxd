# The C form of aiokafka/_gc.py.

cdef extern from "Python.h":
    bint PyObject_GC_IsTracked(object instance) noexcept
    void PyObject_GC_Track(object instance) noexcept
    void PyObject_GC_UnTrack(object instance) noexcept
    object PyObject_GenericGetDict(object instance, void *context)
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1


cdef inline void untrack(object instance) noexcept:
    PyObject_GC_UnTrack(instance)


cdef inline void track(object instance) noexcept:
    if not PyObject_GC_IsTracked(instance):
        PyObject_GC_Track(instance)


cdef inline void set_plainly(object cls) noexcept:
    pass


cdef inline int set_tracked(object instance, object name, object value) except -1:
    if not PyObject_GC_IsTracked(instance):
        PyObject_GC_Track(instance)
    return PyObject_GenericSetAttr(instance, name, value)


cdef inline object own_dict(object instance):
    return PyObject_GenericGetDict(instance, NULL)


cdef extern from *:
    """
    static CYTHON_INLINE void aiokafka_spare_dict(PyObject *instance) {
        PyObject **place = (PyObject **) ((char *) instance + Py_TYPE(instance)->tp_dictoffset);
        Py_CLEAR(*place);
    }

    static CYTHON_UNUSED int aiokafka_replace_attributes(
        PyObject *cls, PyObject *set_attribute, PyObject *dictionary, PyObject *model
    ) {
        PyTypeObject *type = (PyTypeObject *) cls;
        if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
            if (PyObject_SetAttrString(cls, "__setattr__", set_attribute) < 0) return -1;
            return PyObject_SetAttrString(cls, "__dict__", dictionary);
        }
        if (PyDict_SetItemString(type->tp_dict, "__setattr__", set_attribute) < 0) return -1;
        if (PyDict_SetItemString(type->tp_dict, "__dict__", dictionary) < 0) return -1;
        type->tp_setattro = ((PyTypeObject *) model)->tp_setattro;
        PyType_Modified(type);
        return 0;
    }
    """
    void spare_dict "aiokafka_spare_dict"(object instance) noexcept
    int replace_attributes "aiokafka_replace_attributes"(
        object cls, object set_attribute, object dictionary, object model
    ) except -1
