# The C form of aiokafka/_names.py.

cdef extern from *:
    """
    static CYTHON_INLINE int aiokafka_present_as(PyObject *cls, const char *module, const char *name) {
        PyTypeObject *type = (PyTypeObject *) cls;
        if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
            PyObject *text = PyUnicode_FromString(module);
            if (!text || PyObject_SetAttrString(cls, "__module__", text) < 0) PyErr_Clear();
            Py_XDECREF(text);
            text = PyUnicode_FromString(name);
            if (!text || PyObject_SetAttrString(cls, "__qualname__", text) < 0
                || PyObject_SetAttrString(cls, "__name__", text) < 0) PyErr_Clear();
            Py_XDECREF(text);
            return 0;
        }
        /* A static type shows its module and name from tp_name, which lives as long as the type. */
        size_t size = strlen(module) + strlen(name) + 2;
        char *full = (char *) PyMem_Malloc(size);
        if (!full) { PyErr_NoMemory(); return -1; }
        PyOS_snprintf(full, size, "%s.%s", module, name);
        type->tp_name = full;
        PyType_Modified(type);
        return 0;
    }
    """
    int present_as "aiokafka_present_as"(object cls, const char* module, const char* name) except -1
