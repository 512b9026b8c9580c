# The C form of aiokafka/producer/results.py.

cdef extern from *:
    """
    static CYTHON_INLINE PyObject *aiokafka_make_metadata(PyObject *cls, PyObject *fields) {
    #if PY_VERSION_HEX < 0x030E0000
        /* What tuple.__new__ does for a class that derives from tuple. */
        PyTypeObject *type = (PyTypeObject *) cls;
        Py_ssize_t size = PyTuple_GET_SIZE(fields);
        PyObject *made = type->tp_alloc(type, size);
        if (!made) return NULL;
        for (Py_ssize_t at = 0; at < size; at++) {
            PyObject *field = PyTuple_GET_ITEM(fields, at);
            Py_INCREF(field);
            PyTuple_SET_ITEM(made, at, field);
        }
    #else
        /* Newer tuples have members besides their items. */
        PyObject *made = PyObject_CallMethod((PyObject *) &PyTuple_Type, "__new__", "OO", cls, fields);
        if (!made) return NULL;
    #endif
        PyObject_GC_UnTrack(made);
        return made;
    }
    """
    object make_metadata "aiokafka_make_metadata"(object cls, tuple fields)
