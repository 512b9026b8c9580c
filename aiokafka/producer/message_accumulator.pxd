cimport cython
from libc.stdint cimport int64_t

from aiokafka.partitioner cimport murmur2
from aiokafka.producer.batch cimport ProducerBatch


cdef class BufferMemory:
    cdef readonly int64_t size
    cdef readonly int64_t free
    cdef readonly int64_t allocatable
    cdef readonly int64_t allocated
    cdef readonly bint is_contended
    cdef bint _is_granting
    cdef int64_t _rest
    cdef object _waiters
    cdef object _refusal
    cdef object _loop

    cpdef allocate(self, int64_t size)
    cpdef release(self, int64_t size)


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
    cdef int64_t _sealed_bytes

    cpdef append(self, ProducerBatch batch)

    @cython.locals(batch=ProducerBatch)
    cpdef seal(self)

    @cython.locals(batch=ProducerBatch)
    cpdef bint take(self, object node, object id_state, double now) except -1

    cpdef complete(self, ProducerBatch batch)


cdef int64_t _YIELD_BYTES
cdef double _BUSY_TIME
cdef int64_t _BUSY_SHARE
cdef int64_t _RIVALS
cdef int64_t _SMALL
cdef int64_t _PER_RECORD
cdef int64_t _AT_MOST
cdef int _BATCH_OPEN
cdef int _BATCH_SEALED


cdef class TopicQueues:
    cdef readonly list queues
    cdef readonly dict by_number
    cdef readonly object sizing
    cdef readonly PartitionQueue sticky
    cdef list _choices
    cdef int64_t _quantum
    cdef int64_t _left

    @cython.locals(
        choices=list, queue=PartitionQueue, rival=PartitionQueue, count=Py_ssize_t, at=Py_ssize_t
    )
    cpdef PartitionQueue switch(self)

    cpdef PartitionQueue for_key(self, bytes key)


cdef class MessageAccumulator:
    cdef dict __dict__
    cdef object __weakref__
    cdef readonly BufferMemory memory
    cdef readonly object pending
    cdef readonly dict queues
    cdef readonly bint is_accepting
    cdef readonly bint is_yielding
    cdef dict _topics
    cdef dict _sizing
    cdef int64_t _yielded_at
    cdef int64_t _max_record_bytes
    cdef bint _hashes_keys
    cdef double _delivery_timeout
    cdef object _sender
    cdef object _meter
    cdef object _config
    cdef object _loop
    cdef int64_t _last_stamp
    cdef object _stamp
    cdef double _busy_until

    @cython.locals(seconds=double, stamp=int64_t)
    cdef object _now(self)

    @cython.locals(memory=BufferMemory, topic_queues=TopicQueues, queue=PartitionQueue, need=int64_t)
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
    cpdef object append_to(
        self,
        TopicQueues topic_queues,
        PartitionQueue queue,
        object timestamp,
        object key,
        object value,
        object headers,
        bint is_awaited=*,
    )

    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, before=int64_t, is_busy=bint)
    cpdef object append_sticky(
        self,
        TopicQueues topic_queues,
        object timestamp,
        object value,
        object headers,
        bint is_awaited=*,
    )

    @cython.locals(limit=Py_ssize_t, largest=Py_ssize_t)
    cdef bint _grow(
        self,
        TopicQueues topic_queues,
        PartitionQueue queue,
        ProducerBatch batch,
        Py_ssize_t size=*,
    ) except -1

    cdef PartitionQueue _switch(self, TopicQueues topic_queues)

    cdef object _allocate(self, int64_t size)

    @cython.locals(batch=ProducerBatch)
    cdef object _enqueue(self, PartitionQueue queue, ProducerBatch batch, bint is_awaited=*)

    cpdef object _notify_sender(self, PartitionQueue queue, bint is_awaited=*)

    cdef object _open_batch(
        self,
        TopicQueues topic_queues,
        PartitionQueue queue,
        object timestamp,
        object key,
        object value,
        object headers,
        bint is_awaited,
    )
