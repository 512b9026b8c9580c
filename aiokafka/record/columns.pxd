cimport cython
from libc.stdint cimport int64_t

cimport aiokafka.record._native as mem
from aiokafka.record.cursor cimport BatchCursor

cdef int64_t _MAX_INT64
cdef int64_t _MIN_INT64
cdef int64_t _MAX_DATA


@cython.final
cdef class BinaryBuilder:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size
    cdef bytearray _offsets
    cdef bytearray _data
    cdef bytearray _validity
    cdef Py_ssize_t _nulls
    cdef Py_ssize_t _room
    cdef mem.target_t _offsets_at
    cdef mem.target_t _data_at
    cdef mem.target_t _bits_at
    cdef Py_ssize_t _mark_count
    cdef Py_ssize_t _mark_size
    cdef Py_ssize_t _mark_nulls

    cdef int _aim(self) except -1
    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t size, Py_ssize_t outlook) except -1
    @cython.locals(old=Py_ssize_t, room=Py_ssize_t, index=Py_ssize_t, bits=mem.target_t)
    cdef void _reserve_rows(self, Py_ssize_t rows) except *
    @cython.locals(row=Py_ssize_t)
    cdef void add(self, mem.source_t data, Py_ssize_t at, Py_ssize_t size) noexcept
    cdef void mark(self) noexcept
    @cython.locals(row=Py_ssize_t, bits=mem.target_t)
    cdef void roll_back(self) noexcept
    cdef object finish(self)


@cython.final
cdef class ColumnReader(BatchCursor):
    cdef Py_ssize_t _rows
    cdef Py_ssize_t _room
    cdef bytearray _offsets
    cdef bytearray _timestamps
    cdef bytearray _types
    cdef BinaryBuilder _keys
    cdef BinaryBuilder _values
    cdef bytearray _header_offsets
    cdef BinaryBuilder _names
    cdef BinaryBuilder _contents
    cdef mem.target_t _offsets_at
    cdef mem.target_t _timestamps_at
    cdef mem.target_t _types_at
    cdef mem.target_t _header_offsets_at

    cdef int _clear(self) except -1
    @cython.locals(start=int64_t, limit=Py_ssize_t)
    cpdef object read(self, object max_rows=*)
    @cython.locals(size=Py_ssize_t, rows=Py_ssize_t, outlook=Py_ssize_t, room=Py_ssize_t)
    cdef bint _reserve(self, Py_ssize_t limit) except -1
    cdef int _aim(self) except -1
    @cython.locals(behind=double, most=double)
    cdef Py_ssize_t _outlook(self, double size, Py_ssize_t rows) except -1
    cdef Py_ssize_t _rest_size(self) except -1
    @cython.locals(
        data=mem.source_t,
        span=int64_t,
        size=int64_t,
        at=Py_ssize_t,
        stop=Py_ssize_t,
        timestamp=int64_t,
        delta=int64_t,
    )
    cdef int _add_records(self, Py_ssize_t limit) except -1
    @cython.locals(
        data=mem.source_t,
        key_size=int64_t,
        key_at=Py_ssize_t,
        value_size=int64_t,
        value_at=Py_ssize_t,
        base=int64_t,
    )
    cdef int _add_record(
        self, Py_ssize_t at, Py_ssize_t stop, int64_t timestamp, int64_t offset
    ) except -1
    @cython.locals(row=Py_ssize_t)
    cdef void _add_row(self, int64_t offset, int64_t timestamp, int timestamp_type) noexcept
    @cython.locals(
        names=BinaryBuilder, contents=BinaryBuilder, data=mem.source_t, count=int64_t
    )
    cdef int _add_headers(self, Py_ssize_t at, Py_ssize_t stop) except -1
    @cython.locals(data=mem.source_t, size=int64_t, start=Py_ssize_t)
    cdef Py_ssize_t _add_header(self, Py_ssize_t at, Py_ssize_t stop) except -1
    cdef int _add_messages(self, Py_ssize_t limit) except -1
    cdef object _finish(self)


cdef int _add_bytes(BinaryBuilder column, object content) except -1
