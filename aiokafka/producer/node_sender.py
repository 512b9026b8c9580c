"""Send the batches for one broker: choose them, compress them, and complete Produce requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextvars import copy_context
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from aiokafka._health import Due, NodeHealth, broker_health
from aiokafka._log import SubjectLog
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.net.connection import DeadlineTimer
from aiokafka.producer.batch import BatchState, ProducerBatch
from aiokafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.record.batch import down_convert
from aiokafka.record.compression import GZIP, LZ4, SNAPPY, ZSTD, codec_id

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.producer.batch_completion import BatchCompletion
    from aiokafka.producer.message_accumulator import MessageAccumulator, PartitionQueue
    from aiokafka.producer.sender import Sender

    Batches = list[tuple[PartitionQueue, ProducerBatch]]
    """The batches of one request: at most one of each partition."""

__all__ = ["InFlightRequests", "NodeSender", "OpenBatches", "ProduceInFlight"]

log = logging.getLogger("aiokafka.producer.producer")


# -- The queues of a broker whose open batch may wait for more records


class OpenBatches(dict["PartitionQueue", None]):
    """The queues whose open batch may wait for more records, in the order in which they were added.

    Owns whether this order may differ from the age of their batches (`_is_mixed`): a queue is added
    late if an older batch of the queue had to be sent first, or if the queue comes from the
    NodeSender of another broker.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_mixed = False

    def add(self, queue: PartitionQueue) -> None:
        """Add `queue`, unless it is present."""
        if queue not in self:
            last = next(reversed(self), queue)
            self._is_mixed |= _created(queue) < _created(last)
            self[queue] = None

    def by_age(self) -> tuple[PartitionQueue, ...]:
        """Return the queues, ordered by the age of their oldest batch, the oldest first."""
        if self._is_mixed:
            self._is_mixed = False
            ordered = sorted(self, key=_created)
            self.clear()
            self.update(dict.fromkeys(ordered))
        return tuple(self)

    def pop_created_before(self, time: float) -> dict[PartitionQueue, None]:
        """Remove and return the queues before the first one whose oldest batch was created at
        `time` (loop time) or later. An older batch behind that queue is returned by a later call.
        """
        old = dict.fromkeys(takewhile(lambda queue: _created(queue) < time, self))
        for queue in old:
            del self[queue]
        return old


def _created(queue: PartitionQueue) -> float:
    return queue.waiting[0].created if queue.waiting else 0.0


# -- Requests in flight to one broker


_REPLICATION_TIME = 4.0
"""Seconds for replication before a missing response counts as an outage."""


class ProduceInFlight:
    """A Produce request without a response, and its batches."""

    __slots__ = ("batches", "request", "response", "sent_at")

    def __init__(
        self,
        request: ProduceRequest,
        response: asyncio.Future[ProduceResponse | None],
        batches: Batches,
        sent_at: float,
    ) -> None:
        """The result of `response` is None with acks=0. `sent_at` is loop time."""
        self.request = request
        self.response = response
        self.batches = batches
        self.sent_at = sent_at


class InFlightRequests(deque[ProduceInFlight]):
    """The in-flight requests to one broker, oldest first; completes them in this order.

    Owns: these requests, and the time by which the oldest request should have a response. No task
    waits for the responses: a request is completed while its response is read, so that tasks that
    wait for its records run in the next iteration of the event loop.
    """

    def __init__(self, health: NodeHealth, completion: BatchCompletion, node: NodeSender) -> None:
        super().__init__()
        self._health = health
        self._completion = completion
        self._node = node
        self._due: Due | None = None

    def add(self, sent: ProduceInFlight) -> None:
        """Add a request that was just sent; `sent.response` has failed if sending failed."""
        self.append(sent)
        sent.response.add_done_callback(self._on_done)
        if len(self) == 1:
            self._expect_oldest()

    def abandon(self) -> None:
        """Forget all requests, and release the memory of their batches, which have failed."""
        for sent in self:
            for _, batch in sent.batches:
                self._completion.accumulator.memory.release(batch.release())
        self.clear()
        self._expect_oldest()

    def on_response(self, request: ProduceRequest, response: ProduceResponse) -> None:
        """Complete `request` while its response is read, unless an older request comes first.

        1. Request 1 is in flight. Sending request 2 fails; request 2 keeps its place in the queue.
        2. Request 3 is sent. The responses to 1 and 3 are read together, and 1 is completed.
        3. Request 2 is the oldest now. Its batches must be requeued before those of 3 complete. So
           `_on_done`, which runs for request 1 in the next iteration of the event loop, completes
           requests 2 and 3.
        """
        if not self or self[0].request is not request:
            return
        try:
            self._succeed(self.popleft(), response)
            self._node.send()
        except BaseException as error:
            self._node.on_bug(error)

    def _on_done(self, response: asyncio.Future[Any]) -> None:
        """Complete requests that failed, or that had to wait for an older request."""
        # Mark the exception as retrieved: asyncio would log it, for example after `abandon`.
        response.exception()
        if not self or not self[0].response.done():
            return
        try:
            while self and self[0].response.done():
                sent = self.popleft()
                failure = sent.response.exception()
                if failure is None:
                    self._succeed(sent, sent.response.result())
                elif isinstance(failure, KafkaError):
                    self._fail(sent, failure)
                else:
                    raise failure
            self._node.send()
        except BaseException as error:
            self._node.on_bug(error)

    # The caller of `_succeed` and `_fail` removes the request first: completing its batches may
    # send another request, which counts toward `max_in_flight_requests`.

    def _succeed(self, sent: ProduceInFlight, response: ProduceResponse | None) -> None:
        self._expect_oldest()
        self._health.succeed()
        if response is not None:
            self._completion.meter.responded(sent.sent_at, response.throttle_time_ms)
        self._completion.on_response(sent, response)
        self._completion.accumulator.note_yield()

    def _fail(self, sent: ProduceInFlight, error: KafkaError) -> None:
        # Note the error first: an outage counts from the time at which the response was due, which
        # `_expect_oldest` resets.
        self._health.note(error)
        self._expect_oldest()
        self._completion.on_failure(sent, error)
        self._completion.accumulator.note_yield()

    def _expect_oldest(self) -> None:
        """Expect the response to the request that is the oldest now; time the wait from now on."""
        if self._due is not None:
            self._health.forgive(self._due)
        self._due = self._health.expect("Produce", _REPLICATION_TIME) if self else None


# -- Compression, without blocking the event loop for long


_PER_TURN = {GZIP: 65_536, SNAPPY: 524_288, LZ4: 524_288, ZSTD: 262_144}
"""Bytes of records that a codec compresses in a millisecond or less, at its default level."""

_PER_TURN_HARD = 32_768
"""`_PER_TURN` for levels above `_EASY_LEVEL`, which compress more slowly."""

_EASY_LEVEL = {GZIP: 6, LZ4: 2, ZSTD: 3}

_PATIENCE = 0.02
"""Seconds after which the limit per iteration of the event loop grows: twice the bytes after twice
this time, and so on. In long iterations a busy application may send more bytes than the limit, so
that its batches would fill the buffer memory.
"""


class BatchCompression:
    """Compresses the batches of one broker, for one request at a time.

    Owns: the bytes of records compressed in this iteration of the event loop, the queues whose
    batch is to be compressed for the next request, and the time at which that request was begun.
    """

    def __init__(
        self, config: ProducerConfig, accumulator: MessageAccumulator, node: NodeSender
    ) -> None:
        codec, level = codec_id(config.compression_type), config.compression_level
        self.is_used = bool(codec)
        self._accumulator = accumulator
        self._node = node
        is_hard = level is not None and level > _EASY_LEVEL.get(codec, level)
        self._per_turn = _PER_TURN_HARD if is_hard else _PER_TURN.get(codec, 0)
        self._request_size = config.max_request_size
        self._bytes = 0
        self.queues: deque[PartitionQueue] = deque()
        """The queues whose batch is still to be compressed for the next request."""
        self._begun_at = 0.0
        self._left = 0
        """The free bytes of the next request."""
        self.has_more = False
        """Whether NodeSender must run again in the next iteration of the event loop, for batches
        that did not fit into the request, or that are not compressed yet."""

    def begin_turn(self) -> None:
        """Restart the count of compressed bytes in a new iteration of the event loop."""
        self._bytes = 0

    def begin(self, queues: Iterable[PartitionQueue], now: float) -> None:
        """Begin another request, with batches from `queues`.

        Batches that are opened later are for a later request, so that an application that sends
        without a pause cannot delay this request for ever.
        """
        self.queues.extend(queues)
        self._begun_at = now
        self.has_more = False
        self._left = self._request_size

    def compress(self, now: float) -> bool:
        """Compress batches until the request is full. Return False if batches are left for the next
        iteration of the event loop, so that the loop is not blocked.
        """
        limit = self._per_turn * max(1.0, (now - self._begun_at) / _PATIENCE)
        while self.queues and self._left > 0:
            if self._bytes >= limit:
                self.has_more = True
                return False
            batch = self._node.seal_next(self.queues.popleft(), now)
            # A batch that was compressed before may have to wait, so its size does not count.
            if batch is not None and not batch.builder.compressed_size:
                self._left -= self._compress(batch)
        if self.queues:
            self.has_more = True
            self.queues.clear()
        return True

    def _compress(self, batch: ProducerBatch) -> int:
        """Compress a sealed batch; return its compressed size."""
        builder = batch.builder
        builder.build()
        self._bytes += builder.size
        sizing = self._accumulator.sizing(batch.partition.topic)
        sizing.learn(builder.size, builder.compressed_size)
        return builder.compressed_size


# -- The sender of one broker


_GATHER_TIME = 0.005
"""Seconds that an open batch waits for more records while requests are in flight, without linger.

Without in-flight requests the batch is sent at once. Under load, sending at once would cause many
requests with one or two records each; so the batch is sent after the next response, or after this
time.
"""

_BUSY_GATHER_TIME = 0.04
"""Seconds that an open batch waits for more records while the application sends without a pause.
With a thousand partitions, each iteration of the event loop would else send one or two records to
each partition.
"""

_GATHER_SHARE = 4
"""The least time to gather records, in multiples of the CPU time of sending requests, so that
sending does not take all the CPU time."""

_LONGEST_GATHER_TIME = 0.2
"""Seconds beyond the linger time after which an open batch takes its turn among the ready batches.
Without this limit, ready batches that fill the requests would always overtake the open batch."""

NAMED_TOPICS_VERSION = 12
"""The last version of ProduceRequest with topic names; later versions have topic ids (KIP-516)."""

CLIENT_ADDS_VERSION = 11
"""The last version with which the client adds partitions to a transaction. With later versions the
leader does (KIP-890)."""

_FIRST_V2_BATCH = 3
_FIRST_TIMESTAMPED = 2
_FIRST_ZSTD = 7


class NodeSender:
    """Sends the batches of the partitions that one broker leads.

    Owns: the queues with a batch to send (`_ready`), the queues whose open batch may wait for more
    records (`_lingering`), and the queues in the backoff after a failure (`_backing_off`).

    While the connection accepts requests, callbacks send the batches: `_on_turn`, in the iteration
    of the event loop after the batch was opened, or `send`, after a response. The task, `run`,
    connects, and waits while the connection accepts no requests. The callbacks and the task send
    through `_pump`, which never waits. The batches of a partition are in flight on one connection
    at a time, so they arrive in order. After a failure the batches of the partition are sent again
    one by one, oldest first.
    """

    def __init__(self, node_id: int, sender: Sender) -> None:
        self.node_id = node_id
        self._sender = sender
        self._completion = completion = sender.completion
        self._client = completion.client
        self._config = completion.config
        self._accumulator = completion.accumulator
        self._log = SubjectLog(log, self._config.subject)
        self.health = broker_health(self._client, node_id, self._log, sender.health.look)
        self.requests = InFlightRequests(self.health, completion, self)
        self._loop = asyncio.get_running_loop()
        self._codec = codec_id(self._config.compression_type)
        self._ready: dict[PartitionQueue, None] = {}
        self._lingering = OpenBatches()
        self._backing_off: dict[PartitionQueue, None] = {}
        self._retry_at = 0.0
        """The loop time at which the first backoff of a queue in `_backing_off` ends."""
        self._connection: BrokerConnection | None = None
        self._version: int | None = None
        """The version of the last request on `_connection`; None before the first request."""
        self._wake = asyncio.Event()
        self._turn: asyncio.Handle | None = None
        self._context = copy_context()
        """The context variables of the producer's `start()`, for callbacks."""
        self._timer = DeadlineTimer(self._loop, self._pump_soon)
        self._gather_until = 0.0
        self._compression = BatchCompression(self._config, self._accumulator, self)
        self._is_retired = False

    def __repr__(self) -> str:
        return f"<NodeSender {self.node_id} in_flight={len(self.requests)}>"

    # -- the queues

    def add(self, queue: PartitionQueue) -> None:
        """Schedule the oldest batch of `queue`, which may be new, sealed, or requeued."""
        if not queue.waiting:
            return
        if self.health.failing_since is not None and not self.is_busy:
            self.health.forget()
        if _is_filling(queue.waiting[0]):
            if queue not in self._ready:
                self._lingering.add(queue)
            if not self.requests or self._config.linger:
                self._pump_soon()
            else:
                self._timer.arm(self._gather_until)
        else:
            self._lingering.pop(queue, None)
            self._ready[queue] = None
            # At the limit of in-flight requests, `send` is called after the next response.
            if len(self.requests) < self._config.max_in_flight_requests:
                self._pump_soon()

    def discard(self, queue: PartitionQueue) -> None:
        """Remove `queue`, because its leader is another broker, or no batch waits in the queue."""
        self._ready.pop(queue, None)
        self._lingering.pop(queue, None)
        self._backing_off.pop(queue, None)

    def close(self) -> None:
        """Stop timer and callbacks; abandon the in-flight requests. The caller stops the task."""
        self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self.requests.abandon()

    def retire(self) -> None:
        """End the task and close. The caller has checked that no batch waits or is in flight."""
        self._is_retired = True
        self._wake.set()
        self.close()

    def on_bug(self, error: BaseException) -> None:
        """Fail the producer, because a callback of this sender has raised `error`."""
        self._sender.on_bug(f"sender-{self.node_id}", error)

    # -- the task, and the callbacks

    async def run(self) -> None:
        """Whenever batches wait, but the connection accepts no requests: connect, wait until the
        connection accepts requests, and send the batches.
        """
        while not self._is_retired:
            await self._wake.wait()
            self._wake.clear()
            if self._has_work and await self._connect():
                self._compression.begin_turn()
                self.send()

    def _pump_soon(self) -> None:
        """Send in the next iteration of the event loop, with all batches of this iteration."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._on_turn, context=self._context)

    def _on_turn(self) -> None:
        self._turn = None
        self._compression.begin_turn()
        try:
            self.send()
        except BaseException as error:
            self.on_bug(error)

    def send(self) -> None:
        """Send waiting batches, if any; wake `run` if the connection accepts no requests."""
        if not self._has_work:
            return
        connection = self._connection
        if connection is None or not connection.is_ready:
            self._wake.set()
            return
        self._accumulator.note_yield()
        self._pump(connection)
        if self._lingering and not self.requests and self._accumulator.is_yielding:
            # No response and no timer would send the open batches once the application pauses.
            self._pump_soon()

    @property
    def is_busy(self) -> bool:
        """Whether a batch waits to be sent, or a request is in flight."""
        return bool(self.requests) or self._has_work

    @property
    def _has_work(self) -> bool:
        return bool(self._ready or self._lingering or self._backing_off)

    async def _connect(self) -> bool:
        """Connect unless connected, and wait until the connection accepts requests; return whether
        it accepts requests."""
        connection = self._connection
        if connection is not None and connection.is_ready:
            return True
        try:
            # Keep an open connection: requests on another connection would overtake requests in the
            # write buffer of this connection, or at the broker.
            if connection is None or not connection.is_open:
                connection = await self._client.connection(self.node_id)
            if self._config.acks == 0 and connection is not self._connection:
                # With acks=0 there is no response: a broker that does not lead a partition of the
                # request closes the connection.
                why = f"node {self.node_id} has closed the connection of a producer with acks=0"
                connection.closed.add_done_callback(lambda _: self._client.doubt_metadata(why))
            if connection is not self._connection:
                self._connection, self._version = connection, None
            if not connection.is_ready:
                await connection.gate.wait(self._config.client.request_timeout)
            if not connection.is_ready:
                # The connection has closed or is still not writable: try again.
                self._wake.set()
            return connection.is_ready
        except IncompatibleBrokerVersion as error:
            self.health.fail(error)
            for queue in (*self._ready, *self._lingering, *self._backing_off):
                self._completion.fail_waiting(queue, error)
        except KafkaError as error:
            # Retry even after refused credentials, which were accepted when the client started:
            # while they are rotated, or during an outage of the identity provider, brokers may
            # refuse them temporarily.
            self.health.note(error)
            self._client.request_metadata(f"no connection to node {self.node_id}: {error}")
            for queue in (*self._ready, *self._lingering, *self._backing_off):
                queue.set_error(error)
        # Only this timer leads to the next attempt to connect.
        self._timer.arm(self._loop.time() + self._config.client.retry_backoff)
        return False

    # -- sending

    def _pump(self, connection: BrokerConnection) -> None:
        """Send requests while batches are to be sent, and the connection accepts requests.

        Which event leads to a request, and why no batch is forgotten:

        1. A batch is opened while no request is in flight. `add` adds its queue to `_lingering` and
           schedules `_on_turn`, which sends the batch: a lone record does not wait.
        2. More batches are opened while the request is in flight. `add` arms the timer for
           `_gather_until`; the batches gather records.
        3. If the response comes first, the request completes, and `send` calls `_pump`. If no
           other request is in flight, all batches are sent in one request.
        4. If the timer fires first, it schedules `_on_turn`, which calls `_pump` before the
           response.
        5. A batch is full. `add` moves its queue to `_ready` and schedules `_on_turn`, unless the
           limit of in-flight requests is reached: then step 3 sends the batch.
        6. The connection accepts no requests (lost, throttled, or the write buffer is full).
           `_pump` wakes `run`, which waits in `_connect`; responses still complete by step 3.
        7. A batch is requeued after a failure. Its queue waits in `_backing_off` until `retry_at`;
           the timer, or any later `_pump`, moves the queue to `_ready` (`_end_backoffs`).
        8. `assign_sequence` returns False: the batch waits for in-flight batches, for a producer
           id, or for the coordinator. The queue stays in `_ready`; every response, `Sender.resume`
           and `Sender._renew_producer_id` lead to the next attempt.
        9. The application sends without a pause, so open batches are not sent, even in step 3. With
           a request in flight, the timer is armed. Without one, `send` schedules another
           `_on_turn` in each iteration.
        10. Compressing the batches of a request takes several iterations of the event loop.
            `_compress` schedules each iteration.

        So a queue with a waiting batch is in one of the three collections, and each collection has
        a pending event: a response, the timer, `_on_turn`, or `_wake`.
        """
        start = now = self._loop.time()
        limit = self._config.max_in_flight_requests
        is_ready = True
        while len(self.requests) < limit and (
            self._ready or self._lingering or self._backing_off or self._compression.queues
        ):
            if not is_ready and not connection.is_ready:
                # The connection is lost, throttled, or its write buffer is full: wake `run`, which
                # waits for a connection.
                self._wake.set()
                return
            is_ready = False  # check `connection.is_ready` again before another request
            batches = self._collect(now)
            if not batches:
                break
            self._dispatch(connection, batches)
            now = self._loop.time()
            self._gather_until = now + max(_GATHER_TIME, _GATHER_SHARE * (now - start))
        if self._lingering and self.requests and not self._config.linger:
            if now < self._gather_until:
                self._timer.arm(self._gather_until)
            elif self._accumulator.is_yielding:
                # Try again in the next iteration of the event loop, when the application may pause.
                self._timer.arm(now)

    def _collect(self, now: float) -> Batches:
        """Move batches into flight for one request, and return them: first batches of ready queues,
        in turn, then open batches that have lingered."""
        batches: Batches = []
        left = self._config.max_request_size
        for queue in self._due_queues(now):
            batch = self._next_batch(queue, now)
            if batch is None:
                continue
            size = batch.builder.size
            if self._compression.is_used:
                size = batch.builder.compressed_size
                if not size:
                    continue  # the batch is compressed for the next request
            if size > self._config.max_request_size and self._completion.split_unsent(queue, batch):
                self._wake.set()
                continue
            if batches and size > left:
                # Send the request now, so that this batch is the first of the next request. If the
                # request were filled up, smaller batches could overtake this batch for ever.
                return batches
            if not queue.take(self, self._completion.id_state, now):
                self._completion.request_identity()
                self._lingering.pop(queue, None)
                self._ready[queue] = None
                continue
            left -= size
            batches.append((queue, batch))
            self.discard(queue)  # added at the end below, so that every partition has its turn
            if queue.waiting:
                if _is_filling(queue.waiting[0]):
                    self._lingering.add(queue)
                else:
                    self._ready[queue] = None
        return batches

    def _due_queues(self, now: float) -> tuple[PartitionQueue, ...]:
        """Return the queues whose oldest batch is sent now, ready queues first.

        With compression, return no queue until the batches of the next request are compressed.
        """
        if self._backing_off and now >= self._retry_at:
            self._end_backoffs(now)
        elif self._backing_off:
            # Arm the timer again, because it may have fired for another purpose before `_retry_at`.
            self._timer.arm(self._retry_at)
        late = now - self._config.linger - _LONGEST_GATHER_TIME
        self._ready.update(self._lingering.pop_created_before(late))
        if not self._compression.is_used:
            return (*self._ready, *self._lingered(now))
        return tuple(self._ready) if self._compress(now) else ()

    def _compress(self, now: float) -> bool:
        """Compress batches for the next request; return False if compression continues in the next
        iteration of the event loop."""
        if not self._compression.queues:
            self._compression.begin((*self._ready, *self._lingered(now)), now)
        is_done = self._compression.compress(now)
        if self._compression.has_more:
            self._pump_soon()
        return is_done

    def seal_next(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Seal and return the oldest batch of `queue`; None if the batch has to wait."""
        if queue not in self._ready and queue not in self._lingering:
            return None
        batch = self._next_batch(queue, now)
        if batch is not None and queue in self._lingering:
            # The sealed batch must not linger, however long the compression takes.
            del self._lingering[queue]
            self._ready[queue] = None
        return batch

    def _back_off(self, queue: PartitionQueue) -> None:
        self.discard(queue)
        if not self._backing_off or queue.retry_at < self._retry_at:
            self._retry_at = queue.retry_at
        self._backing_off[queue] = None
        self._timer.arm(self._retry_at)

    def _end_backoffs(self, now: float) -> None:
        for queue in tuple(self._backing_off):
            if queue.retry_at <= now:
                del self._backing_off[queue]
                self._ready[queue] = None
        if self._backing_off:
            self._retry_at = min(queue.retry_at for queue in self._backing_off)
            self._timer.arm(self._retry_at)

    def _lingered(self, now: float) -> Iterator[PartitionQueue]:
        """Yield the queues whose open batch has waited long enough for more records."""
        linger = self._config.linger
        if not linger:
            if self._lingering and self._may_send_open(now):
                yield from tuple(self._lingering)
            return
        if self._accumulator.memory.has_waiters:
            linger = 0.0
        for queue in self._lingering.by_age():
            due = queue.waiting[0].created + linger
            if due > now:
                self._timer.arm(due)
                return
            yield queue

    def _may_send_open(self, now: float) -> bool:
        """Return whether open batches are sent now, if the linger time is 0."""
        if self.requests and now < self._gather_until:
            return False
        if not self._accumulator.is_yielding:
            return True
        oldest = next(iter(self._lingering)).waiting
        return not oldest or now >= oldest[0].created + _BUSY_GATHER_TIME

    def _next_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Return the oldest batch of `queue`, sealed; None if the batch has to wait."""
        if not queue.waiting:
            self.discard(queue)
            return None
        if queue.retry_at > now:
            self._back_off(queue)
            return None
        batch = queue.waiting[0]
        # Send a retried batch only when no other batch of the partition is in flight; otherwise
        # another failure could reorder them.
        if queue.in_flight and (batch.goes_alone or not self._may_follow(queue)):
            return None
        if batch is queue.open:
            queue.seal()
        return batch

    def _may_follow(self, queue: PartitionQueue) -> bool:
        """Return whether a new batch may be sent while other batches of `queue` are in flight.

        Without sequence numbers it must wait: a failed batch would be retried behind the new batch.
        (With acks=0 no batch is retried.) A new batch also waits for a retried batch, because
        leaders recognize only the last five batches of a producer:

        1. Five batches are sent. All are written, but the response to batch 1 is an error.
        2. Batch 1 is sent again, and batch 6 is sent before the response comes.
        3. Batch 6 is written; the response to batch 1 is an error again.
        4. Batch 1 is sent for the third time. The leader no longer recognizes it, and reports a
           gap. Under a new epoch batch 1 would be written twice.
        """
        is_pipelined = self._completion.id_state is not None or self._config.acks == 0
        return is_pipelined and queue.in_flight_from is self and not queue.in_flight[0].goes_alone

    def _dispatch(self, connection: BrokerConnection, batches: Batches) -> None:
        """Send one Produce request with `batches`."""
        config = self._config
        request = ProduceRequest(
            transactional_id=config.transactional_id,
            acks=config.acks,
            timeout_ms=int(config.client.request_timeout * 1000),
            topic_data=[],
        )
        response: asyncio.Future[Any]
        try:
            version = self._version
            if version is None or config.transactional_id is not None:
                version = connection.pick(ProduceRequest, self._max_version)
                _check_version(version, self._codec)
                self._version = version
            topic_ids: dict[str, bytes] = {}
            if version > NAMED_TOPICS_VERSION:
                topic_ids = _ids_of_topics(self._client.cluster, batches)
                if not topic_ids:
                    version = NAMED_TOPICS_VERSION
            batches = self._fill(request, batches, version, topic_ids)
            if not batches:
                return
            self._completion.meter.dispatched(batches)
            response = connection.send_nowait(
                request, version, on_response=partial(self.requests.on_response, request)
            )
        except KafkaError as error:
            response = self._loop.create_future()
            response.set_exception(error)
        self.requests.add(ProduceInFlight(request, response, batches, self._loop.time()))

    @property
    def _max_version(self) -> int | None:
        """The newest version of ProduceRequest that may be used, None for no limit."""
        id_state = self._completion.id_state
        transaction = None if id_state is None else id_state.transaction
        if transaction is None or transaction.is_version_2:
            return None
        return CLIENT_ADDS_VERSION

    def _fill(
        self, request: ProduceRequest, batches: Batches, version: int, topic_ids: dict[str, bytes]
    ) -> Batches:
        """Add batches to `request`, and return them; fail batches that it cannot encode."""
        topics: dict[str, TopicProduceData] = {}
        added = []
        for queue, batch in batches:
            try:
                records = self._encode(batch, version)
            except KafkaError as error:
                self._completion.fail(queue, batch, error)
                continue
            name, number = queue.partition
            topic = topics.get(name)
            if topic is None:
                topic_id = topic_ids.get(name, ZERO_UUID)
                topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
                topics[name] = topic
            topic.partition_data.append(PartitionProduceData(index=number, records=records))
            added.append((queue, batch))
        request.topic_data = list(topics.values())
        return added

    def _encode(self, batch: ProducerBatch, version: int) -> bytes | bytearray | memoryview:
        """Return the bytes of `batch` for this version; brokers before Kafka 0.11 get the older
        formats.

        Raises IllegalArgumentError if those formats cannot encode the records.
        """
        records = batch.builder.build(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            self._config.transactional_id is not None,
        )
        if version >= _FIRST_V2_BATCH:
            return records
        magic = 1 if version >= _FIRST_TIMESTAMPED else 0
        return down_convert(records, magic, self._codec, self._config.compression_level)


def _is_filling(batch: ProducerBatch) -> bool:
    """Return whether `batch` may wait for more records."""
    return batch.state == BatchState.OPEN and not batch.has_grown


def _check_version(version: int, codec: int) -> None:
    """Raise IncompatibleBrokerVersion if the broker cannot decompress `codec` (KIP-110)."""
    if codec == ZSTD and version < _FIRST_ZSTD:
        raise IncompatibleBrokerVersion(
            "compression_type='zstd' needs Kafka 2.1 or later; this broker speaks Produce "
            f"up to version {version}: use another compression_type"
        )


def _ids_of_topics(cluster: ClusterMetadata, batches: Batches) -> dict[str, bytes]:
    """Return the topic ids of `batches` by topic; {} if the id of a topic is unknown."""
    ids: dict[str, bytes] = {}
    for queue, _ in batches:
        topic = queue.partition.topic
        if topic not in ids:
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                return {}
            ids[topic] = topic_id
    return ids
