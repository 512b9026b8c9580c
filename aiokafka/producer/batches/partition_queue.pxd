from aiokafka.producer.batches.batch cimport ProducerBatch


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
