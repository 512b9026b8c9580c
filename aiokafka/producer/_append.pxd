cimport cython
from libc.stdint cimport int64_t

from aiokafka.partitioner cimport murmur2
from aiokafka.producer.batch cimport ProducerBatch


cdef int64_t _TURN_BYTES
cdef int64_t _PER_RECORD
cdef int64_t _AT_MOST


cdef class PartitionQueue:
    cdef public object partition
    cdef public object waiting
    cdef public list in_flight
    cdef public ProducerBatch open
    cdef public object node
    cdef public object in_flight_from
    cdef public double retry_at
    cdef public object backoff
    cdef public object sequence

    cpdef seal(self)


cdef class TopicLanes:
    cdef public list queues
    cdef public dict by_number
    cdef public object builder_factory
    cdef public PartitionQueue sticky
    cdef list _choices
    cdef int64_t _quantum
    cdef int64_t _left

    @cython.locals(choices=list, queue=PartitionQueue, rival=PartitionQueue)
    cpdef PartitionQueue turn(self)

    cpdef PartitionQueue keyed(self, bytes key)


cdef class Appender:
    cdef public dict lanes
    cdef public dict incomplete
    cdef public int64_t free
    cdef public bint is_open
    cdef public bint is_busy
    cdef public int64_t since_turn
    cdef public int64_t max_record_bytes
    cdef bint _hashes_keys
    cdef double _delivery_timeout
    cdef object _on_batch
    cdef object _loop
    cdef int64_t _last_stamp
    cdef object _stamp

    @cython.locals(seconds=double, stamp=int64_t)
    cdef object now(self)

    @cython.locals(lanes=TopicLanes, queue=PartitionQueue, need=int64_t)
    cpdef object append(
        self,
        object topic,
        object value,
        object key,
        object partition,
        object timestamp,
        object headers,
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
    )

    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, before=int64_t)
    cpdef object spread(
        self, TopicLanes lanes, object timestamp, object value, object headers
    )

    @cython.locals(batch=ProducerBatch)
    cpdef object begin(
        self,
        TopicLanes lanes,
        PartitionQueue queue,
        object timestamp,
        object key,
        object value,
        object headers,
    )

    cpdef take(self, int64_t size)
