cimport cython
from libc.stdint cimport int64_t

from aiokafka.producer.batch cimport ProducerBatch
from aiokafka.producer.batch_completion cimport BatchCompletion
from aiokafka.producer.message_accumulator cimport MessageAccumulator, PartitionQueue


cdef double _GATHER_TIME
cdef double _BUSY_GATHER_TIME
cdef double _GATHER_SHARE
cdef double _LONGEST_GATHER_TIME


cdef class NodeSender


@cython.final
@cython.auto_pickle(False)
cdef class ProduceInFlight:
    cdef readonly object request
    cdef readonly object response
    cdef readonly list batches
    cdef readonly double sent_at
    cdef readonly int64_t size
    cdef int64_t total
    cdef Py_ssize_t count


@cython.final
@cython.auto_pickle(False)
cdef class InFlightRequests:
    cdef object _requests
    cdef object _due
    cdef object _health
    cdef BatchCompletion _completion
    cdef NodeSender _node
    cdef object _loop
    cdef object _context
    cdef readonly int64_t size
    cdef readonly int64_t window
    cdef int64_t _least_window
    cdef readonly Py_ssize_t limit
    cdef Py_ssize_t _most
    cdef double _good_time
    cdef double _answered_at
    cdef double _duration
    cdef double _duration_before
    cdef double _pace
    cdef double _pace_before

    cdef object add(self, ProduceInFlight sent)

    @cython.locals(sent=ProduceInFlight)
    cpdef object on_response(self, object request, object response)

    cdef object _succeed(self, ProduceInFlight sent, object response)

    @cython.locals(now=double)
    cdef object _fail(self, ProduceInFlight sent, object error)

    @cython.locals(duration=double, pace=double)
    cdef double time_for(self, int64_t size, double now) except? -1

    @cython.locals(good=double, limit=double, window=double)
    cdef object _set_window(self, ProduceInFlight sent, double duration)


@cython.final
@cython.auto_pickle(False)
cdef class BatchCompression:
    cdef readonly bint is_used
    cdef readonly bint has_more
    cdef readonly object queues
    cdef MessageAccumulator _accumulator
    cdef NodeSender _node
    cdef object _per_turn
    cdef object _request_size
    cdef object _bytes
    cdef double _begun_at
    cdef object _left


@cython.final
@cython.auto_pickle(False)
cdef class NodeSender:
    cdef readonly object node_id
    cdef readonly object health
    cdef readonly InFlightRequests requests
    cdef object _sender
    cdef BatchCompletion _completion
    cdef object _client
    cdef object _config
    cdef double _linger
    cdef Py_ssize_t _max_request_size
    cdef MessageAccumulator _accumulator
    cdef object _log
    cdef object _loop
    cdef int _codec
    cdef dict _ready
    cdef object _lingering
    cdef dict _backing_off
    cdef double _retry_at
    cdef object _connection
    cdef object _version
    cdef object _wake
    cdef object _turn
    cdef bint _is_pumping
    cdef bint _sent_lone
    cdef object _context
    cdef object _timer
    cdef double _gather_until
    cdef BatchCompression _compression
    cdef bint _is_retired

    @cython.locals(batch=ProducerBatch)
    cpdef object add(self, PartitionQueue queue, bint is_awaited=*)

    cpdef object discard(self, PartitionQueue queue)

    cpdef object _pump_soon(self)

    cpdef object send(self)

    @cython.locals(start=double, now=double, gather_time=double, is_ready=bint, batches=list)
    cdef object _pump(self, object connection)

    @cython.locals(
        batches=list, left=Py_ssize_t, size=Py_ssize_t, queue=PartitionQueue, batch=ProducerBatch
    )
    cdef list _collect(self, double now)

    @cython.locals(late=double)
    cdef tuple _due_queues(self, double now)

    cdef bint _compress(self, double now) except -1

    @cython.locals(batch=ProducerBatch)
    cpdef object seal_next(self, PartitionQueue queue, double now)

    cdef object _back_off(self, PartitionQueue queue)

    @cython.locals(queue=PartitionQueue, oldest=ProducerBatch)
    cdef bint _may_send_open(self, double now) except -1

    @cython.locals(batch=ProducerBatch)
    cdef ProducerBatch _next_batch(self, PartitionQueue queue, double now)

    @cython.locals(first=ProducerBatch)
    cdef bint _may_follow(self, PartitionQueue queue) except -1

    @cython.locals(lone=ProducerBatch, batch=ProducerBatch, size=int64_t)
    cdef double _dispatch(self, object connection, list batches, double now) except? -1

    @cython.locals(topics=dict, added=list, queue=PartitionQueue, batch=ProducerBatch)
    cdef list _fill(self, object request, list batches, int version)
