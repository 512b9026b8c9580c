cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

cimport aiokafka.record._native as mem

cdef int32_t _ANY
cdef int64_t _MAX_PARTITIONS
cdef uint64_t _MAX_UINT64


cdef class SpanSource:
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t _start
    cdef object _offsets_view
    cdef object _validity_view
    cdef bint _has_validity
    cdef mem.source_t _offsets
    cdef mem.source_t _validity

    @cython.locals(low=int32_t, high=int32_t, index=Py_ssize_t)
    cdef int _check_offsets(self, Py_ssize_t size, Py_ssize_t end) except -1
    @cython.locals(index=Py_ssize_t, at=Py_ssize_t)
    cdef (Py_ssize_t, Py_ssize_t) span(self, Py_ssize_t row) noexcept


@cython.final
cdef class BinarySource(SpanSource):
    cdef object _data_view
    cdef mem.source_t _data

    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t field_size(self, Py_ssize_t row) noexcept
    @cython.locals(start=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t put(self, Py_ssize_t row, mem.target_t out, Py_ssize_t at) noexcept
    @cython.locals(start=Py_ssize_t, size=Py_ssize_t)
    cdef uint64_t hash(self, Py_ssize_t row, uint64_t seed) noexcept


@cython.final
cdef class HeaderSource(SpanSource):
    cdef BinarySource _names
    cdef BinarySource _values

    @cython.locals(
        first=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t, index=Py_ssize_t, length=Py_ssize_t
    )
    cdef Py_ssize_t field_size(self, Py_ssize_t row) except -1
    @cython.locals(first=Py_ssize_t, count=Py_ssize_t, index=Py_ssize_t)
    cdef Py_ssize_t put(self, Py_ssize_t row, mem.target_t out, Py_ssize_t at) noexcept


@cython.final
cdef class RowSource:
    cdef readonly Py_ssize_t size
    cdef BinarySource _values
    cdef BinarySource _keys
    cdef HeaderSource _headers
    cdef bint _is_timed
    cdef int64_t _timestamp
    cdef object _times_view
    cdef mem.source_t _times

    cdef int64_t timestamp(self, Py_ssize_t row) noexcept
    @cython.locals(total=uint64_t, seed=uint64_t, row=Py_ssize_t)
    cpdef object checksum(self)


@cython.final
cdef class _Router:
    cdef RowSource _rows
    cdef Py_ssize_t _partitions
    cdef object _chosen_view
    cdef mem.source_t _chosen
    cdef Py_ssize_t _groups
    cdef bytearray _found
    cdef bytearray _ends

    @cython.locals(count=Py_ssize_t, row=Py_ssize_t, partition=int32_t)
    cdef Py_ssize_t _count_groups(self) except -1
    @cython.locals(
        size=Py_ssize_t,
        has_choices=bint,
        found=mem.target_t,
        ends=mem.target_t,
        places=mem.target_t,
        order=bytearray,
        row=Py_ssize_t,
        group=Py_ssize_t,
        place=Py_ssize_t,
    )
    cdef object routes(self)
    @cython.locals(keys=BinarySource, at=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _hashed(self, Py_ssize_t row) noexcept
    @cython.locals(
        ends=mem.target_t, parts=list, start=Py_ssize_t, group=Py_ssize_t, count=Py_ssize_t
    )
    cdef list _begin_groups(self)
