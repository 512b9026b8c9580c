cimport cython
from libc.stdint cimport int64_t

from aiokafka.partitioner cimport murmur2
from aiokafka.producer.batches.batch cimport ProducerBatch


cdef class BufferMemory:
    cdef readonly int64_t size
    cdef readonly int64_t free
    cdef readonly int64_t room
    cdef readonly int64_t taken
    cdef readonly bint is_contended
    cdef bint _is_granting
    cdef int64_t _rest
    cdef object _waiters
    cdef object _refusal
    cdef object _loop

    cpdef take(self, int64_t size)
    cpdef give_back(self, int64_t size)


cdef class PartitionQueue:
    cdef readonly object partition
    cdef readonly object waiting
    cdef readonly list in_flight
    cdef readonly ProducerBatch open
    cdef readonly object node
    cdef readonly object in_flight_from
    cdef readonly double retry_at
    cdef readonly object sequence
    cdef object _backoff

    cpdef append(self, ProducerBatch batch)
    cpdef seal(self)


cdef int64_t _TURN_BYTES
cdef int64_t _PER_RECORD
cdef int64_t _AT_MOST


cdef class TopicLanes:
    cdef readonly list queues
    cdef readonly dict by_number
    cdef readonly object sizing
    cdef readonly PartitionQueue sticky
    cdef list _choices
    cdef int64_t _quantum
    cdef int64_t _left

    @cython.locals(choices=list, queue=PartitionQueue, rival=PartitionQueue)
    cpdef PartitionQueue turn(self)

    cpdef PartitionQueue keyed(self, bytes key)


cdef class Appender:
    cdef readonly BufferMemory memory
    cdef readonly dict lanes
    cdef readonly bint is_accepting
    cdef readonly bint is_busy
    cdef int64_t _turn_at
    cdef int64_t _max_record_bytes
    cdef bint _hashes_keys
    cdef double _delivery_timeout
    cdef object _pending
    cdef object _on_batch
    cdef object _loop
    cdef int64_t _last_stamp
    cdef object _stamp

    @cython.locals(seconds=double, stamp=int64_t)
    cdef object now(self)

    @cython.locals(memory=BufferMemory, lanes=TopicLanes, queue=PartitionQueue, need=int64_t)
    cpdef object append(
        self,
        object topic,
        object value,
        object key,
        object partition,
        object timestamp,
        object headers,
        bint is_awaited=*,
    )

    @cython.locals(batch=ProducerBatch, before=int64_t)
    cpdef object place(
        self,
        TopicLanes lanes,
        PartitionQueue queue,
        object timestamp,
        object key,
        object value,
        object headers,
        bint is_awaited=*,
    )

    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, before=int64_t)
    cpdef object spread(
        self,
        TopicLanes lanes,
        object timestamp,
        object value,
        object headers,
        bint is_awaited=*,
    )

    @cython.locals(limit=Py_ssize_t)
    cdef bint _grow(self, TopicLanes lanes, PartitionQueue queue, ProducerBatch batch) except -1

    @cython.locals(batch=ProducerBatch)
    cdef object _begin(
        self,
        TopicLanes lanes,
        PartitionQueue queue,
        object timestamp,
        object key,
        object value,
        object headers,
        bint is_awaited,
    )
