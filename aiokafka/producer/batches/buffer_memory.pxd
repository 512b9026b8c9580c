from libc.stdint cimport int64_t


cdef class BufferMemory:
    cdef readonly int64_t size
    cdef readonly int64_t free
    cdef readonly int64_t room
    cdef readonly int64_t taken
    cdef readonly bint is_contended
    cdef bint _is_granting
    cdef int64_t _rest
    cdef object _waiters
    cdef object _loop

    cpdef take(self, int64_t size)
    cpdef give_back(self, int64_t size)
