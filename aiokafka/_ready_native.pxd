# The C form of aiokafka/_ready.py.

cdef extern from *:
    """
    /* An iterator that ends at once, with a value. */
    typedef struct {
        PyObject_HEAD
        PyObject *value;
    } AiokafkaReady;

    /* The last one that was freed: there is rarely more than one at a time. */
    static CYTHON_UNUSED AiokafkaReady *aiokafka_spare_ready = NULL;

    static void aiokafka_ready_dealloc(PyObject *self) {
        Py_CLEAR(((AiokafkaReady *) self)->value);
        if (aiokafka_spare_ready) PyObject_Free(self);
        else aiokafka_spare_ready = (AiokafkaReady *) self;
    }

    static PySendResult aiokafka_ready_send(PyObject *self, PyObject *sent, PyObject **result) {
        PyObject *value = ((AiokafkaReady *) self)->value;
        ((AiokafkaReady *) self)->value = NULL;
        (void) sent;
        if (!value) {
            value = Py_None;
            Py_INCREF(value);
        }
        *result = value;
        return PYGEN_RETURN;
    }

    static PyObject *aiokafka_ready_next(PyObject *self) {
        PyObject *value = NULL, *end;
        aiokafka_ready_send(self, Py_None, &value);
        /* An instance: of a tuple alone Python would make arguments. */
        end = PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
        Py_DECREF(value);
        if (end) {
            PyErr_SetObject(PyExc_StopIteration, end);
            Py_DECREF(end);
        }
        return NULL;
    }

    static PyObject *aiokafka_ready_throw(PyObject *self, PyObject *given) {
        /* Of a type, a value and a traceback, or an exception alone, as generators take it. */
        PyObject *type = NULL, *value = NULL, *traceback = NULL;
        Py_CLEAR(((AiokafkaReady *) self)->value);
        if (!PyArg_UnpackTuple(given, "throw", 1, 3, &type, &value, &traceback)) return NULL;
        if (PyExceptionInstance_Check(type)) {
            PyErr_SetObject((PyObject *) Py_TYPE(type), type);
        } else if (PyExceptionClass_Check(type)) {
            PyErr_SetObject(type, value);
        } else {
            PyErr_SetString(PyExc_TypeError, "exceptions must be classes or instances");
        }
        return NULL;
    }

    static PyObject *aiokafka_ready_send_any(PyObject *self, PyObject *sent) {
        (void) sent;
        return aiokafka_ready_next(self);
    }

    static PyObject *aiokafka_ready_close(PyObject *self, PyObject *nothing) {
        (void) nothing;
        Py_CLEAR(((AiokafkaReady *) self)->value);
        Py_RETURN_NONE;
    }

    static PyMethodDef aiokafka_ready_methods[] = {
        {"send", aiokafka_ready_send_any, METH_O, NULL},
        {"throw", aiokafka_ready_throw, METH_VARARGS, NULL},
        {"close", aiokafka_ready_close, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
    };

    static PyAsyncMethods aiokafka_ready_async = {
        PyObject_SelfIter, NULL, NULL, aiokafka_ready_send,
    };

    static CYTHON_UNUSED PyTypeObject aiokafka_ready_type = {
        PyVarObject_HEAD_INIT(NULL, 0)
        .tp_name = "aiokafka._ready.ready",
        .tp_basicsize = sizeof(AiokafkaReady),
        .tp_dealloc = aiokafka_ready_dealloc,
        .tp_as_async = &aiokafka_ready_async,
        .tp_flags = Py_TPFLAGS_DEFAULT,
        .tp_iter = PyObject_SelfIter,
        .tp_iternext = aiokafka_ready_next,
        .tp_methods = aiokafka_ready_methods,
    };

    static CYTHON_INLINE PyObject *aiokafka_ready(PyObject *value) {
        AiokafkaReady *made = aiokafka_spare_ready;
        if (made) {
            aiokafka_spare_ready = NULL;
            (void) PyObject_Init((PyObject *) made, &aiokafka_ready_type);
        } else {
            /* Does nothing the second time. */
            if (PyType_Ready(&aiokafka_ready_type) < 0) return NULL;
            made = PyObject_New(AiokafkaReady, &aiokafka_ready_type);
            if (!made) return NULL;
        }
        Py_INCREF(value);
        made->value = value;
        return (PyObject *) made;
    }
    """
    object ready "aiokafka_ready"(object value)
