cimport cython

from aiokafka.producer.batch cimport ProducerBatch
from aiokafka.producer.message_accumulator cimport MessageAccumulator, PartitionQueue


cdef int _BATCH_SETTLED
cdef tuple _WRITTEN_CODES


@cython.final
@cython.auto_pickle(False)
cdef class BatchCompletion:
    cdef readonly object client
    cdef readonly object config
    cdef readonly MessageAccumulator accumulator
    cdef readonly object pending
    cdef readonly object meter
    cdef readonly object id_state
    cdef readonly object marker_pause
    cdef readonly object identity_wanted
    cdef readonly object coordinator_wanted
    cdef readonly object delivered_at
    cdef readonly object last_error
    cdef object _sender
    cdef object _loop
    cdef object _log

    @cython.locals(queue=PartitionQueue, batch=ProducerBatch)
    cpdef object on_response(self, object sent, object response, double now)

    @cython.locals(was_done=bint)
    cdef object _succeed(
        self, PartitionQueue queue, ProducerBatch batch, object result, double now
    )


@cython.locals(names=dict, results=dict)
cdef dict _results_of(object request, object response)
