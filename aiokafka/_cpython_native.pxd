# The C forms of aiokafka/_cpython.py.

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.contextvars cimport PyContext_CopyCurrent

# -- Memory

cdef inline bytearray new_buffer(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


# -- The garbage collector

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


cdef extern from *:
    """
    static CYTHON_UNUSED PyObject *aiokafka_make_untracked(PyObject *cls, PyObject *fields) {
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
    object make_untracked "aiokafka_make_untracked"(object cls, tuple fields)


cdef extern from *:
    """
    #include "structmember.h"

    static CYTHON_UNUSED PyObject *aiokafka_make_slotted(
        PyObject *cls, PyObject *slots, PyObject *fields
    ) {
        PyTypeObject *type = (PyTypeObject *) cls;
        PyObject *made = type->tp_alloc(type, 0);
        if (!made) return NULL;
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(slots); at++) {
            PyMemberDescrObject *slot = (PyMemberDescrObject *) PyTuple_GET_ITEM(slots, at);
            PyObject *field = PyTuple_GET_ITEM(fields, at);
            Py_INCREF(field);
            *(PyObject **) ((char *) made + slot->d_member->offset) = field;
        }
        return made;
    }
    """
    object make_slotted "aiokafka_make_slotted"(object cls, tuple slots, tuple fields)


cdef inline object copy_context():
    return PyContext_CopyCurrent()


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


# -- The name of a class

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


# -- Awaitables without a coroutine

cdef extern from *:
    """
    typedef PyObject *(*AiokafkaStep)(PyObject *source);

    /* The awaitable of `call` and `ready`, with the methods of a coroutine. `__await__()` returns the
       awaitable itself, because `anext(records, default)` calls `__await__()` before each step.
       `source` is set until the first step, `waiting` (the iterator of `find`'s result) while the
       awaitable waits; both are NULL after the end. `find` is NULL in `ready`: None is then a
       result like any other. */
    typedef struct {
        PyObject_HEAD
        AiokafkaStep take, find;
        PyObject *source;
        PyObject *waiting;
        /* Whether `__await__()` was called during a wait, and no step has followed yet. */
        int is_asked_again;
    } AiokafkaCall;

    /* The last freed awaitable, for reuse: there is rarely more than one at a time. */
    static CYTHON_UNUSED AiokafkaCall *aiokafka_spare_call = NULL;

    static int aiokafka_call_traverse(PyObject *self, visitproc visit, void *arg) {
        Py_VISIT(((AiokafkaCall *) self)->source);
        Py_VISIT(((AiokafkaCall *) self)->waiting);
        return 0;
    }

    static int aiokafka_call_clear(PyObject *self) {
        Py_CLEAR(((AiokafkaCall *) self)->source);
        Py_CLEAR(((AiokafkaCall *) self)->waiting);
        return 0;
    }

    static void aiokafka_call_dealloc(PyObject *self) {
        PyObject_GC_UnTrack(self);
        (void) aiokafka_call_clear(self);
        if (aiokafka_spare_call) PyObject_GC_Del(self);
        else aiokafka_spare_call = (AiokafkaCall *) self;
    }

    static PyObject *aiokafka_call_refuse(void) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return NULL;
    }

    /* Begin to wait for the result of `find`; return -1 if `find` raises. */
    static int aiokafka_call_wait(AiokafkaCall *call, PyObject *source) {
        PyObject *awaitable = call->find(source);
        if (!awaitable) return -1;
        call->waiting = PyObject_CallMethod(awaitable, "__await__", NULL);
        Py_DECREF(awaitable);
        return call->waiting ? 0 : -1;
    }

    static PySendResult aiokafka_call_send(PyObject *self, PyObject *sent, PyObject **result) {
        AiokafkaCall *call = (AiokafkaCall *) self;
        PyObject *source = call->source, *waiting;
        PySendResult how;
        if (source) {
            int failed;
            call->source = NULL;
            *result = call->take(source);
            if (*result != Py_None || !call->find) {
                Py_DECREF(source);
                return *result ? PYGEN_RETURN : PYGEN_ERROR;
            }
            Py_CLEAR(*result);
            failed = aiokafka_call_wait(call, source);
            Py_DECREF(source);
            if (failed) return PYGEN_ERROR;
        }
        waiting = call->waiting;
        if (!waiting) {
            *result = aiokafka_call_refuse();
            return PYGEN_ERROR;
        }
        Py_INCREF(waiting);
        how = PyIter_Send(waiting, sent, result);
        if (how != PYGEN_NEXT) Py_CLEAR(call->waiting);
        Py_DECREF(waiting);
        return how;
    }

    /* The step of an `await` expression. If a second task awaits the same awaitable, the second task
       calls `__await__()` and then this function, during the wait of the first task: raise, so that
       the second task neither advances nor cancels that wait. `anext(records, default)` also calls
       `__await__()` during a wait, but then takes its step by `__next__()` or `send()`. */
    static PySendResult aiokafka_call_await_send(
        PyObject *self, PyObject *sent, PyObject **result
    ) {
        if (!((AiokafkaCall *) self)->is_asked_again) return aiokafka_call_send(self, sent, result);
        ((AiokafkaCall *) self)->is_asked_again = 0;
        PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
        *result = NULL;
        return PYGEN_ERROR;
    }

    static PyObject *aiokafka_call_await(PyObject *self) {
        ((AiokafkaCall *) self)->is_asked_again = ((AiokafkaCall *) self)->waiting != NULL;
        Py_INCREF(self);
        return self;
    }

    static PyObject *aiokafka_call_go_on(PyObject *self, PyObject *sent) {
        PyObject *value = NULL, *end;
        PySendResult how;
        ((AiokafkaCall *) self)->is_asked_again = 0;
        how = aiokafka_call_send(self, sent, &value);
        if (how != PYGEN_RETURN) return value;
        /* Create the StopIteration here: Python would pass the items of a tuple as arguments. */
        end = PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
        Py_DECREF(value);
        if (end) {
            PyErr_SetObject(PyExc_StopIteration, end);
            Py_DECREF(end);
        }
        return NULL;
    }

    static PyObject *aiokafka_call_next(PyObject *self) {
        return aiokafka_call_go_on(self, Py_None);
    }

    static PyObject *aiokafka_call_send_any(PyObject *self, PyObject *sent) {
        if (sent != Py_None && ((AiokafkaCall *) self)->source) {
            PyErr_SetString(
                PyExc_TypeError, "can't send non-None value to a just-started coroutine");
            return NULL;
        }
        return aiokafka_call_go_on(self, sent);
    }

    static PyObject *aiokafka_call_raise(PyObject *given) {
        /* As for coroutines, `given` is an exception, or a type, a value and a traceback. */
        PyObject *type = NULL, *value = NULL, *traceback = NULL;
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

    static PyObject *aiokafka_call_throw(PyObject *self, PyObject *given) {
        AiokafkaCall *call = (AiokafkaCall *) self;
        PyObject *method, *result;
        call->is_asked_again = 0;
        if (call->source) {
            Py_CLEAR(call->source);
            return aiokafka_call_raise(given);
        }
        if (!call->waiting) return aiokafka_call_refuse();
        method = PyObject_GetAttrString(call->waiting, "throw");
        if (!method) return NULL;
        result = PyObject_Call(method, given, NULL);
        if (!result) Py_CLEAR(call->waiting);
        Py_DECREF(method);
        return result;
    }

    static PyObject *aiokafka_call_close(PyObject *self, PyObject *nothing) {
        AiokafkaCall *call = (AiokafkaCall *) self;
        PyObject *waiting = call->waiting, *result;
        (void) nothing;
        call->is_asked_again = 0;
        Py_CLEAR(call->source);
        if (!waiting) Py_RETURN_NONE;
        call->waiting = NULL;
        result = PyObject_CallMethod(waiting, "close", NULL);
        Py_DECREF(waiting);
        return result;
    }

    static PyMethodDef aiokafka_call_methods[] = {
        {"send", aiokafka_call_send_any, METH_O, NULL},
        {"throw", aiokafka_call_throw, METH_VARARGS, NULL},
        {"close", aiokafka_call_close, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
    };

    static PyAsyncMethods aiokafka_call_async = {
        aiokafka_call_await, NULL, NULL, aiokafka_call_await_send,
    };

    static CYTHON_UNUSED PyTypeObject aiokafka_call_type = {
        PyVarObject_HEAD_INIT(NULL, 0)
        .tp_name = "aiokafka._cpython.call",
        .tp_basicsize = sizeof(AiokafkaCall),
        .tp_dealloc = aiokafka_call_dealloc,
        .tp_as_async = &aiokafka_call_async,
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
        .tp_traverse = aiokafka_call_traverse,
        .tp_clear = aiokafka_call_clear,
        .tp_iter = PyObject_SelfIter,
        .tp_iternext = aiokafka_call_next,
        .tp_methods = aiokafka_call_methods,
    };

    static CYTHON_INLINE PyObject *aiokafka_call(
        AiokafkaStep take, AiokafkaStep find, PyObject *source
    ) {
        AiokafkaCall *made = aiokafka_spare_call;
        if (made) {
            aiokafka_spare_call = NULL;
            (void) PyObject_Init((PyObject *) made, &aiokafka_call_type);
        } else {
            /* A repeated call does nothing. */
            if (PyType_Ready(&aiokafka_call_type) < 0) return NULL;
            made = PyObject_GC_New(AiokafkaCall, &aiokafka_call_type);
            if (!made) return NULL;
        }
        made->take = take;
        made->find = find;
        Py_INCREF(source);
        made->source = source;
        made->waiting = NULL;
        made->is_asked_again = 0;
        PyObject_GC_Track((PyObject *) made);
        return (PyObject *) made;
    }

    static CYTHON_UNUSED PyObject *aiokafka_call_take_itself(PyObject *value) {
        Py_INCREF(value);
        return value;
    }

    static CYTHON_INLINE PyObject *aiokafka_ready(PyObject *value) {
        return aiokafka_call(aiokafka_call_take_itself, NULL, value);
    }
    """
    object ready "aiokafka_ready"(object value)
    object call "aiokafka_call"(object (*take)(object), object (*find)(object), object source)


cdef extern from *:
    """
    static CYTHON_UNUSED PyObject *aiokafka_first_step(PyObject *coroutine, PyObject *suspended) {
        PyObject *result, *error;
        switch (PyIter_Send(coroutine, Py_None, &result)) {
        case PYGEN_RETURN:
            return result;
        case PYGEN_NEXT:
            error = PyObject_CallFunctionObjArgs(suspended, coroutine, result, NULL);
            Py_DECREF(result);
            if (error) {
                PyErr_SetObject((PyObject *) Py_TYPE(error), error);
                Py_DECREF(error);
            }
            return NULL;
        default:
            return NULL;
        }
    }
    """
    object first_step "aiokafka_first_step"(object coroutine, object suspended)
