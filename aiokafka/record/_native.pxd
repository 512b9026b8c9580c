# The C form of aiokafka/record/_memory.py, inlined into the modules that cimport it. Only `varint`
# checks bounds; callers of the other functions have to check them before they read or write.

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from aiokafka.partitioner cimport murmur2_at

cdef extern from "Python.h":
    ctypedef struct Py_buffer:
        void* buf
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    int PyByteArray_Resize(object buffer, Py_ssize_t size) except -1
    void PyObject_GC_UnTrack(object thing)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

ctypedef const uint8_t* source_t
ctypedef uint8_t* target_t


# -- reading

cdef inline source_t source(object view) noexcept:
    return <source_t> PyMemoryView_GET_BUFFER(view).buf


cdef inline bytes cut(source_t data, Py_ssize_t start, Py_ssize_t stop):
    return PyBytes_FromStringAndSize(<const char*> data + start, stop - start)


cdef inline str text(source_t data, Py_ssize_t start, Py_ssize_t stop):
    return PyUnicode_DecodeUTF8(<const char*> data + start, stop - start, "replace")


cdef inline str text_like(
    source_t data, Py_ssize_t start, Py_ssize_t stop, str previous
):
    cdef Py_ssize_t size = 0
    cdef const char* known = PyUnicode_AsUTF8AndSize(previous, &size)
    if size == stop - start and memcmp(known, data + start, size) == 0:
        return previous
    return text(data, start, stop)


cdef inline bytes cut_like(
    source_t data, Py_ssize_t start, Py_ssize_t stop, bytes previous
):
    if (
        previous is not None
        and len(previous) == stop - start
        and memcmp(PyBytes_AS_STRING(previous), data + start, stop - start) == 0
    ):
        return previous
    return cut(data, start, stop)


cdef inline tuple leaf(tuple items):
    PyObject_GC_UnTrack(items)
    return items


cdef inline int i16(source_t data, Py_ssize_t at) noexcept:
    return <int16_t> ((<uint32_t> data[at] << 8) | data[at + 1])


cdef inline uint32_t u32(source_t data, Py_ssize_t at) noexcept:
    return (
        (<uint32_t> data[at] << 24)
        | (<uint32_t> data[at + 1] << 16)
        | (<uint32_t> data[at + 2] << 8)
        | data[at + 3]
    )


cdef inline int32_t i32(source_t data, Py_ssize_t at) noexcept:
    return <int32_t> u32(data, at)


cdef inline int64_t i64(source_t data, Py_ssize_t at) noexcept:
    return <int64_t> ((<uint64_t> u32(data, at) << 32) | u32(data, at + 4))


cdef inline (int64_t, Py_ssize_t) varint(
    source_t data, Py_ssize_t at, Py_ssize_t end
) noexcept:
    cdef uint64_t raw
    cdef uint8_t byte
    cdef int shift
    if at < 0 or at >= end:
        return 0, -1
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -<int64_t> (byte & 1), at
    raw = byte & 0x7F
    if at < end and data[at] < 0x80:  # most longer varints have two bytes
        raw |= <uint64_t> data[at] << 7
        return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1), at + 1
    shift = 7
    while at < end:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        raw |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1), at
        shift += 7
        if shift > 63:
            return 0, -1
    return 0, -1


cdef inline int32_t get_i32(source_t data, Py_ssize_t index) noexcept:
    cdef int32_t number
    memcpy(&number, data + 4 * index, 4)  # arrays of other libraries may be unaligned
    return number


cdef inline int64_t get_i64(source_t data, Py_ssize_t index) noexcept:
    cdef int64_t number
    memcpy(&number, data + 8 * index, 8)
    return number


cdef inline uint32_t murmur2(source_t data, Py_ssize_t at, Py_ssize_t size) noexcept:
    return murmur2_at(data, at, size)


cdef inline uint64_t little(source_t data, Py_ssize_t size) noexcept:
    cdef uint64_t word = 0
    cdef Py_ssize_t index
    for index in range(size):
        word |= <uint64_t> data[index] << (8 * index)
    return word


cdef inline uint64_t hash64(
    source_t data, Py_ssize_t at, Py_ssize_t size, uint64_t seed
) noexcept:
    cdef uint64_t factor = (<uint64_t> 0xC6A4A793 << 32) | 0x5BD1E995
    cdef uint64_t state = seed ^ (<uint64_t> size * factor)
    cdef uint64_t word
    cdef source_t end
    data += at
    end = data + (size & ~7)
    while data < end:
        word = little(data, 8) * factor
        word = (word ^ (word >> 47)) * factor
        state = (state ^ word) * factor
        data += 8
    if size & 7:
        state = (state ^ little(data, size & 7)) * factor
    state = (state ^ (state >> 47)) * factor
    return state ^ (state >> 47)


# -- writing

cdef inline target_t target(bytearray buffer) noexcept:
    return <target_t> PyByteArray_AS_STRING(buffer)


cdef inline int resize(bytearray buffer, Py_ssize_t size) except -1:
    return PyByteArray_Resize(buffer, size)


cdef inline Py_ssize_t varint_size(int64_t value) noexcept:
    cdef uint64_t raw = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    cdef Py_ssize_t size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline Py_ssize_t put_varint(target_t out, Py_ssize_t at, int64_t value) noexcept:
    cdef uint64_t raw = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    while raw >= 0x80:
        out[at] = <uint8_t> (raw | 0x80)
        raw >>= 7
        at += 1
    out[at] = <uint8_t> raw
    return at + 1


cdef inline Py_ssize_t put_bytes(target_t out, Py_ssize_t at, bytes data) noexcept:
    memcpy(out + at, PyBytes_AS_STRING(data), len(data))
    return at + len(data)


cdef inline Py_ssize_t field_size(Py_ssize_t size) noexcept:
    return varint_size(size) + size


cdef inline Py_ssize_t put_field(target_t out, Py_ssize_t at, bytes data) noexcept:
    if data is None:
        return put_varint(out, at, -1)
    return put_bytes(out, put_varint(out, at, len(data)), data)


cdef inline void put_i32(target_t out, Py_ssize_t index, int32_t value) noexcept:
    (<int32_t*> out)[index] = value


cdef inline void put_i64(target_t out, Py_ssize_t index, int64_t value) noexcept:
    (<int64_t*> out)[index] = value


cdef inline void copy(
    target_t out, Py_ssize_t at, source_t data, Py_ssize_t start, Py_ssize_t size
) noexcept:
    memcpy(out + at, data + start, size)


cdef inline Py_ssize_t text_size(str value) except -1:
    cdef Py_ssize_t size = 0
    PyUnicode_AsUTF8AndSize(value, &size)
    return size


cdef inline Py_ssize_t put_text(target_t out, Py_ssize_t at, str value) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* data = PyUnicode_AsUTF8AndSize(value, &size)
    memcpy(out + at, data, size)
    return at + size
