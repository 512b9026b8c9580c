cimport aiokafka._cpython_native as _cpython


cdef object _first_step(object result)
