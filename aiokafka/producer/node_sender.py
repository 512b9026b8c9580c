"""Send the batches for one broker: choose them, compress them, and complete Produce requests.

The module is compiled if possible (node_sender.pxd), because it runs for every record if a program
awaits each `send_and_wait` before the next one.
"""

from __future__ import annotations

import asyncio
import logging
import math
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
from aiokafka.producer.batch import ProducerBatch
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

    Owns `_is_mixed`: whether this order may differ from the order by age of the batches. The
    orders differ if a queue is added long after its batch was opened: an older batch of the queue
    had to be sent first, or the queue was moved here from the NodeSender of another broker.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_mixed = False

    def add(self, queue: PartitionQueue) -> None:
        """Add `queue`, unless it is present."""
        if queue not in self:
            if self:
                last = next(reversed(self))
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
        """Remove queues from the front while their oldest batch was created before `time` (loop
        time), and return them. Queues behind a younger batch are left for a later call.
        """
        old = dict.fromkeys(takewhile(lambda queue: _created(queue) < time, self))
        for queue in old:
            del self[queue]
        return old


def _created(queue: PartitionQueue) -> float:
    return queue.waiting[0].created if queue.waiting else 0.0


# -- Requests in flight to one broker


_REPLICATION_TIME = 4.0
"""Seconds that replication may take, before a missing response counts as an outage."""

_FIRST_WINDOW = 262_144
"""`InFlightRequests.window` before the first response."""

_WINDOW_SHARE = 5
"""The window is the number of bytes that the broker acknowledges in 1/5 of `request_timeout_ms`."""

_LEAST_RATE = 3000
"""Bytes per second that even a slow network is assumed to transmit. The window is at least the
bytes that this network transmits in `request_timeout_ms`."""


class ProduceInFlight:
    """An in-flight Produce request and its batches."""

    def __init__(
        self,
        request: ProduceRequest,
        response: asyncio.Future[ProduceResponse | None],
        batches: Batches,
        sent_at: float,
        size: int,
    ) -> None:
        """The result of `response` is None with acks=0. `sent_at` is loop time, `size` the bytes of
        the batches."""
        self.request = request
        self.response = response
        self.batches = batches
        self.sent_at = sent_at
        self.size = size
        self.total = size
        """The bytes of the batches of all requests that were in flight when this one was sent,
        including this one."""
        self.count = 1
        """The number of requests that were in flight when this one was sent, including this one."""


class InFlightRequests:
    """The in-flight requests to one broker, oldest first; completes them in this order.

    Owns: these requests, the time at which the response to the oldest one is due, `window` (maximum
    of the bytes in flight), and `limit` (maximum number of requests). No task waits for the
    responses: a request is completed in the callback that reads its response, so that tasks that
    wait for its records run in the next iteration of the event loop.

    The window keeps requests from exceeding their timeout on a slow network:

    1. A network transmits 20 KB per second, and an application sends more. Batches wait, and grow
       to 1 MB. The first request would need 50 seconds, and the requests behind it even more: each
       exceeds `request_timeout_ms`, is sent again, and exceeds it again.
    2. So before the first response, no batch grows beyond `_FIRST_WINDOW`, and at most this number
       of bytes is in flight.
    3. Each response shows how many bytes the broker acknowledges per second. If that is less than
       the window in `_WINDOW_SHARE` of the timeout, the window becomes smaller, otherwise larger:
       the first large request on a fast network opens it beyond the size of any request.
    4. A small request gets a fast response. It shows few bytes per second, but not that the network
       is slow. So the window stays the same.
    5. Another case: a broker processes one request after the other, and takes two seconds for each,
       whatever its size. In a window of many small requests, few bytes would be acknowledged per
       second, and the window would become smaller and smaller. So if responses are late, fewer
       requests are in flight (`limit`), each of them fills the window, and a response in time at
       least doubles the window.
    6. The oldest batches time out while they wait, and the next batches are about to time out. If
       the next batches were sent, the broker would write records whose futures fail before the
       response. So a batch whose deadline is before the expected response (`time_for`) is not sent.
       The network transmits only batches that are acknowledged in time.
    7. Another case: the network is fast, but the broker pauses for a while. The responses after the
       pause come all at once: only the first one is late. So `time_for` uses the faster one of the
       last two responses.
    """

    def __init__(self, health: NodeHealth, completion: BatchCompletion, node: NodeSender) -> None:
        config = completion.config
        self.size = 0
        """The bytes of the batches in flight."""
        self._least_window = max(
            int(config.client.request_timeout * _LEAST_RATE), config.max_batch_size
        )
        self.window = max(_FIRST_WINDOW, self._least_window)
        """The maximum of `size`: the bytes that the broker acknowledges in good time. `size` may be
        larger, because each request has at least one batch, however large."""
        self._most: int = config.max_in_flight_requests
        self.limit = self._most
        """The maximum number of requests in flight; below `max_in_flight_requests` while responses
        are late."""
        self._good_time = config.client.request_timeout / _WINDOW_SHARE
        self._answered_at = 0.0
        """The loop time of the last response."""
        self._duration = self._duration_before = 0.0
        """Seconds from sending to the response, for the last two requests with a response."""
        self._pace = self._pace_before = 0.0
        """Seconds per byte, for the same requests. If a request was sent before the response to the
        previous request, its time counts from that response."""
        self._requests: deque[ProduceInFlight] = deque()
        self._due = Due(math.inf, "Produce", _REPLICATION_TIME)
        health.follow(self._due)
        self._health = health
        self._completion = completion
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[ProduceInFlight]:
        return iter(self._requests)

    def add(self, sent: ProduceInFlight) -> None:
        """Add a request that was just sent; `sent.response` has failed if sending failed."""
        if not self._requests:
            self._due.restart(sent.sent_at)
        self._requests.append(sent)
        self.size += sent.size
        sent.total = self.size
        sent.count = len(self._requests)
        # Do not use the context variables of the running task: `NodeSender.add` may have been
        # called by a task of the application, for its own record.
        sent.response.add_done_callback(self._on_done, context=self._context)

    def abandon(self) -> None:
        """Forget all requests, and release the memory of their batches, which have failed."""
        for sent in self._requests:
            for _, batch in sent.batches:
                self._completion.accumulator.memory.release(batch.release())
        self._requests.clear()
        self.size = 0
        self._due.restart(math.inf)

    def on_response(self, request: ProduceRequest, response: ProduceResponse) -> None:
        """Complete `request`, called when its response is read. If an older request is not
        complete, do nothing: `_on_done` completes `request` later.

        1. Request 1 is in flight. Sending request 2 fails; request 2 stays in the queue, between
           requests 1 and 3.
        2. Request 3 is sent. The responses to 1 and 3 are read together, and 1 is completed.
        3. Request 2 is the oldest now. Its batches must be requeued before the batches of request 3
           complete. So `_on_done`, which runs in the next iteration of the event loop, completes
           requests 2 and 3.
        """
        requests = self._requests
        if not requests:
            return
        sent = requests[0]
        if sent.request is not request:
            return
        try:
            requests.popleft()
            self._succeed(sent, response)
            self._node.send()
            if not (requests and requests[0].response.done()):
                # `_on_done` is for requests whose response was read before (step 3). There is none,
                # so save the call.
                sent.response.remove_done_callback(self._on_done)
        except BaseException as error:
            self._node.on_bug(error)

    def _on_done(self, response: asyncio.Future[Any]) -> None:
        """Complete the requests at the front that have a response or have failed."""
        # Mark the exception as retrieved. Otherwise asyncio would log it, for example after
        # `abandon`.
        response.exception()
        requests = self._requests
        if not requests or not requests[0].response.done():
            return
        try:
            while requests and requests[0].response.done():
                sent = requests.popleft()
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
    # send another request, and then the completed request must not count toward
    # `max_in_flight_requests`.

    def _succeed(self, sent: ProduceInFlight, response: ProduceResponse | None) -> None:
        now = self._loop.time()
        self.size -= sent.size
        self._answered_at = now
        self._duration_before, self._pace_before = self._duration, self._pace
        self._duration = now - sent.sent_at
        self._pace = (now - max(sent.sent_at, self._due.asked_at)) / max(1, sent.size)
        self._set_window(sent, self._duration)
        # The broker responds in order: the time limit of the next request begins now.
        self._due.restart(now if self._requests else math.inf)
        self._health.succeed(now)
        if response is not None:
            self._completion.meter.responded(now - sent.sent_at, response.throttle_time_ms)
        self._completion.on_response(sent, response, now)
        self._completion.accumulator.note_yield()

    def _fail(self, sent: ProduceInFlight, error: KafkaError) -> None:
        # Report the error before `asked_at` is reset: an outage counts from the time at which the
        # response was due.
        self._health.note(error)
        now = self._loop.time()
        self.size -= sent.size
        if now - sent.sent_at > self._good_time:
            self._set_window(sent, now - sent.sent_at)
        self._due.restart(now if self._requests else math.inf)
        self._completion.on_failure(sent, error)
        self._completion.accumulator.note_yield()

    def time_for(self, size: int, now: float) -> float:
        """Estimate the seconds until the response to a request of `size` bytes that is sent now.

        The estimate is the time for `size` and all bytes in flight, at the pace of the faster one
        of the last two responses. It is at most the duration of the slower one. Return 0 if the
        pace is unknown, because no request is in flight and the last response is old."""
        if not self.size and now > self._answered_at + _LONGEST_GATHER_TIME:
            return 0.0
        duration = max(self._duration, self._duration_before)
        pace = min(self._pace, self._pace_before)
        return min(duration, pace * (self.size + size))

    def _set_window(self, sent: ProduceInFlight, duration: float) -> None:
        """Adjust window and limit to the throughput. The bytes up to and including `sent` were
        acknowledged after `duration` seconds. If `sent` failed, they were not acknowledged by
        then."""
        good = self._good_time / max(duration, 0.001)
        limit = sent.count * good / 2
        self.limit = self._most if limit >= self._most else max(1, int(limit))
        if good < 1.0:
            self.window = max(int(sent.total * good), self._least_window)
        else:
            window = sent.total * max(2.0, good)
            if window > self.window:
                self.window = int(window)


# -- Compression, without blocking the event loop for long


_PER_TURN = {GZIP: 65_536, SNAPPY: 524_288, LZ4: 524_288, ZSTD: 262_144}
"""Bytes of records to compress per iteration of the event loop, by codec: at its default level, the
codec takes a millisecond or less for them."""

_PER_TURN_HIGH_LEVEL = 32_768
"""`_PER_TURN` for levels above `_HIGHEST_FAST_LEVEL`, which compress more slowly."""

_HIGHEST_FAST_LEVEL = {GZIP: 6, LZ4: 2, ZSTD: 3}

_LIMIT_GROWTH_TIME = 0.02
"""Seconds after `BatchCompression.begin` from which the limit per iteration of the event loop
grows: twice the bytes after twice this time, and so on. With a constant limit, the batches of a
busy application, which may send more bytes in each iteration, would fill the buffer memory.
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
        is_slow = level is not None and level > _HIGHEST_FAST_LEVEL.get(codec, level)
        self._per_turn = _PER_TURN_HIGH_LEVEL if is_slow else _PER_TURN.get(codec, 0)
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
        """Compress batches until the request is full or all are compressed, and return True. Return
        False at the limit for this iteration of the event loop: other batches are compressed in the
        next one.
        """
        limit = self._per_turn * max(1.0, (now - self._begun_at) / _LIMIT_GROWTH_TIME)
        while self.queues and self._left > 0:
            if self._bytes >= limit:
                self.has_more = True
                return False
            batch = self._node.seal_next(self.queues.popleft(), now)
            # Do not count a batch that is compressed already: it may not become part of this
            # request, for example because its partition backs off.
            if batch is not None and not batch.builder.compressed_size:
                self._left -= self._compress(batch)
        if self.queues:
            self.has_more = True
            self.queues.clear()
        return True

    def _compress(self, batch: ProducerBatch) -> int:
        """Compress a sealed batch; return its compressed size."""
        builder = batch.builder
        builder.pack()
        self._bytes += builder.size
        sizing = self._accumulator.sizing(batch.partition.topic)
        sizing.learn(builder.size, builder.compressed_size)
        return builder.compressed_size


# -- The sender of one broker


_GATHER_TIME = 0.005
"""Seconds that an open batch waits for more records while requests are in flight, without linger.

If no request is in flight, the batch is sent at once. While requests are in flight, that would
cause many requests with one or two records each. So then the batch is sent after the next response,
or after this time.
"""

_BUSY_GATHER_TIME = 0.04
"""Seconds that an open batch waits for more records while the application sends without a pause.
Without this wait, each iteration of the event loop would send one or two records to each of a
thousand partitions.
"""

_GATHER_SHARE = 4
"""Shortest time to gather records, as a multiple of the CPU time that sending the last requests has
taken: otherwise sending could use all the CPU time."""

_LONGEST_GATHER_TIME = 0.2
"""An open batch counts as ready this many seconds after its linger time. Without this limit, ready
batches that fill all requests could overtake the open batch for ever."""

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
    of the event loop after the batch was opened, or `send`, after a response. `add` sends a lone
    record itself. The task `run` connects, and waits while the connection accepts no requests. The
    callbacks and the task send by `_pump`, which never waits. The batches of a partition are in
    flight on one connection at a time, so they arrive in order. After a failure the batches of the
    partition are sent again one by one, oldest first.
    """

    def __init__(self, node_id: int, sender: Sender) -> None:
        self.node_id = node_id
        self._sender = sender
        self._completion = completion = sender.completion
        self._client = completion.client
        self._config = completion.config
        self._accumulator = completion.accumulator
        self._linger: float = self._config.linger
        self._max_request_size: int = self._config.max_request_size
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
        self._is_pumping = False
        """Whether `_pump` runs. A callback of the application may then send a record, which must
        not overtake batches that `_pump` has removed from their queues and not sent yet."""
        self._sent_lone = False
        """Whether the last request had a single record."""
        self._context = copy_context()
        """The context variables of the producer's `start()`, for callbacks."""
        self._timer = DeadlineTimer(self._loop, self._pump_soon)
        self._gather_until = 0.0
        self._compression = BatchCompression(self._config, self._accumulator, self)
        self._is_retired = False

    def __repr__(self) -> str:
        return f"<NodeSender {self.node_id} in_flight={len(self.requests)}>"

    # -- the queues

    def add(self, queue: PartitionQueue, is_awaited: bool = False) -> None:
        """Add `queue` to `_ready`, or to `_lingering` if its oldest batch may wait for more
        records, and schedule the next attempt to send. Do nothing if no batch waits.

        `is_awaited`: the batch is new, and the running task awaits its record next. If the last
        request had a single record, too, no request is in flight, and `linger_ms` is 0, `add` sends
        the batch at once: a task that awaits each of its records has no more for this request.
        """
        if not queue.waiting:
            return
        batch = queue.waiting[0]
        if self.health.failing_since is not None and not self.is_busy:
            self.health.forget()
        if batch.is_filling:
            if queue not in self._ready:
                self._lingering.add(queue)
            if self._linger:
                self._pump_soon()
            elif self.requests:
                self._timer.arm(self._gather_until)
            elif is_awaited and self._sent_lone and self._turn is None and not self._is_pumping:
                self._context.run(self._on_turn)
            else:
                self._pump_soon()
        else:
            self._lingering.pop(queue, None)
            self._ready[queue] = None
            # At the limit of in-flight requests, `send` is called after the next response.
            if len(self.requests) < self.requests.limit:
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
            if (self._ready or self._lingering or self._backing_off) and await self._connect():
                self._compression.begin_turn()
                self.send()

    def _pump_soon(self) -> None:
        """Schedule `send` for the next iteration of the event loop, so that a request contains all
        batches that are opened in this iteration."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._on_turn, context=self._context)

    def _on_turn(self) -> None:
        self._turn = None
        if self._compression.is_used:
            self._compression.begin_turn()
        try:
            self.send()
        except BaseException as error:
            self.on_bug(error)

    def send(self) -> None:
        """Send waiting batches, if any; wake `run` if the connection accepts no requests."""
        if not (self._ready or self._lingering or self._backing_off):
            return
        connection = self._connection
        if connection is None or not connection.is_ready:
            self._wake.set()
            return
        self._accumulator.note_yield()
        self._is_pumping = True
        try:
            self._pump(connection)
        finally:
            self._is_pumping = False
        if self._lingering and not self.requests and self._accumulator.is_yielding:
            # The application is still sending records: its task has only yielded. Check again in
            # the next iteration of the event loop, and send the open batches as soon as the
            # application no longer sends. (No request is in flight and no timer is armed, so no
            # other event leads to `send`.)
            self._pump_soon()

    @property
    def is_busy(self) -> bool:
        """Whether a batch waits to be sent, or a request is in flight."""
        return bool(self.requests or self._ready or self._lingering or self._backing_off)

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
                # With acks=0 there is no response. A broker that is not the leader of a partition
                # in the request closes the connection, so then request metadata.
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
            # Retry even if the credentials were rejected: they were accepted when the client
            # started, and may be rejected for a while, during a rotation or an outage of the
            # identity provider.
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
           schedules `_on_turn`, which sends the batch: a lone record does not wait. `add` calls
           `_on_turn` itself for the record of a task that waits for each of its records.
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
           a request in flight, the timer is armed. Without a request in flight, `send` schedules
           another `_on_turn` in each iteration.
        10. Compressing the batches of a request takes several iterations of the event loop.
            `_compress` schedules each iteration.
        11. The batches of a transaction wait for the end of its `MarkerPause`. The timer is armed.

        So a queue with a waiting batch is in one of the three collections, and each collection has
        a pending event: a response, the timer, `_on_turn`, or `_wake`.
        """
        start = now = self._loop.time()
        pause = self._completion.marker_pause
        if pause is not None and now < pause.until:
            self._timer.arm(pause.until)
            return
        is_ready = True
        while (
            (self._ready or self._lingering or self._backing_off or self._compression.queues)
            and len(self.requests) < self.requests.limit
            and self.requests.size < self.requests.window
        ):
            if not is_ready and not connection.is_ready:
                # The connection is lost, throttled, or its write buffer is full: wake `run`, which
                # waits for a connection.
                self._wake.set()
                return
            is_ready = False  # the caller has checked `is_ready` before the first request only
            batches = self._collect(now)
            if not batches:
                break
            now = self._dispatch(connection, batches, now)
            gather_time = _GATHER_SHARE * (now - start)
            self._gather_until = now + (gather_time if gather_time > _GATHER_TIME else _GATHER_TIME)
        if self._lingering and self.requests and not self._linger:
            if now < self._gather_until:
                self._timer.arm(self._gather_until)
            elif self._accumulator.is_yielding:
                # The application is still sending records: its task has only yielded. Check again
                # in the next iteration of the event loop, and send the open batches as soon as the
                # application no longer sends.
                self._timer.arm(now)

    def _collect(self, now: float) -> Batches:
        """Move batches into flight for one request, and return these batches: first one batch of
        each ready queue, then open batches that have lingered."""
        batches: Batches = []
        left = min(self._max_request_size, self.requests.window - self.requests.size)
        for queue in self._due_queues(now):
            batch = self._next_batch(queue, now)
            if batch is None:
                continue
            size = batch.builder.size
            if self._compression.is_used:
                size = batch.builder.compressed_size
                if not size:
                    continue  # the batch is compressed for the next request
            if size > self._max_request_size and self._completion.split_unsent(queue, batch):
                self._wake.set()
                continue
            if batches and size > left:
                # End the request here, so that this batch is the first of the next request. If
                # smaller batches filled the request, they could overtake this batch for ever.
                return batches
            if not queue.take(self, self._completion.id_state, now):
                self._completion.request_identity()
                self._lingering.pop(queue, None)
                self._ready[queue] = None
                continue
            left -= size
            batches.append((queue, batch))
            # Add the queue at the end again, so that partitions take turns.
            if queue in self._ready:
                del self._ready[queue]
            if queue in self._lingering:
                del self._lingering[queue]
            if queue.waiting:
                if queue.waiting[0].is_filling:
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
            # Arm the timer again: it may have fired before `_retry_at`, for another purpose.
            self._timer.arm(self._retry_at)
        if not self._compression.is_used and not self._linger and not self._ready:
            return tuple(self._lingering) if self._may_send_open(now) else ()
        late = now - self._linger - _LONGEST_GATHER_TIME
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
            # A sealed batch does not linger, however long the compression takes.
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
        linger = self._linger
        if not linger:
            if self._may_send_open(now):
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
        """Return whether to send open batches now, if the linger time is 0. While a request is in
        flight, or the application is sending, open batches gather records for a limited time."""
        if not self._lingering or (self.requests and now < self._gather_until):
            return False
        if not self._accumulator.is_yielding:
            return True
        queue = next(iter(self._lingering))
        if not queue.waiting:
            return True
        oldest = queue.waiting[0]
        return now >= oldest.created + _BUSY_GATHER_TIME

    def _next_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Seal and return the oldest batch of `queue`. Return None if there is no batch, the queue
        backs off, or the batch must not be in flight together with other batches. Fail batches that
        the broker would acknowledge too late."""
        if not queue.waiting:
            self.discard(queue)
            return None
        if queue.retry_at > now:
            self._back_off(queue)
            return None
        batch = queue.waiting[0]
        while (
            not batch.attempts
            and now + self.requests.time_for(batch.builder.size, now) > batch.deadline
        ):
            self._completion.expire(queue, batch)
            if not queue.waiting:
                return None
            batch = queue.waiting[0]
        # Send a retried batch only when no other batch of the partition is in flight; otherwise
        # another failure could reorder the batches.
        if queue.in_flight and (batch.goes_alone or not self._may_follow(queue)):
            return None
        if batch is queue.open:
            queue.seal()
        return batch

    def _may_follow(self, queue: PartitionQueue) -> bool:
        """Return whether a new batch may be sent while other batches of `queue` are in flight.

        Without sequence numbers the new batch must wait: otherwise a failed batch would be retried
        after the new batch. (With acks=0 no batch is retried.) A new batch also waits for a retried
        batch, because leaders recognize only the last five batches of a producer:

        1. Five batches are sent. All are written, but the response to batch 1 is an error.
        2. Batch 1 is sent again, and batch 6 is sent before the response comes.
        3. Batch 6 is written; the response to batch 1 is an error again.
        4. Batch 1 is sent for the third time. The leader no longer recognizes it, and responds with
           OUT_OF_ORDER_SEQUENCE_NUMBER. With a new epoch batch 1 would be written twice.
        """
        is_pipelined = self._completion.id_state is not None or self._config.acks == 0
        first = queue.in_flight[0]
        return is_pipelined and queue.in_flight_from is self and not first.goes_alone

    def _dispatch(self, connection: BrokerConnection, batches: Batches, now: float) -> float:
        """Send one Produce request with `batches`, and add it to the in-flight requests. If it
        cannot be sent, add it as a failed request. `now` is the loop time of the call; return the
        loop time of its end."""
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
            batches = self._fill(request, batches, version)
            if not batches:
                return self._loop.time()
            if version > NAMED_TOPICS_VERSION and not _name_by_id(request, self._client.cluster):
                version = NAMED_TOPICS_VERSION
            self._completion.meter.dispatched(batches, now)
            response = connection.send_nowait(
                request, version, on_response=partial(self.requests.on_response, request)
            )
        except KafkaError as error:
            response = self._loop.create_future()
            response.set_exception(error)
        self._sent_lone = False
        if len(batches) == 1:
            lone = batches[0][1]
            self._sent_lone = lone.builder.record_count == 1
        size = 0
        for _, batch in batches:
            size += batch.builder.compressed_size or batch.builder.size
        now = self._loop.time()
        self.requests.add(ProduceInFlight(request, response, batches, now, size))
        return now

    @property
    def _max_version(self) -> int | None:
        """The newest version of ProduceRequest that may be used, None for no limit."""
        id_state = self._completion.id_state
        transaction = None if id_state is None else id_state.transaction
        if transaction is None or transaction.is_version_2:
            return None
        return CLIENT_ADDS_VERSION

    def _fill(self, request: ProduceRequest, batches: Batches, version: int) -> Batches:
        """Add batches to `request`, and return them; fail batches that cannot be encoded."""
        topics: dict[str, TopicProduceData] = {}
        added = []
        for queue, batch in batches:
            try:
                records: bytes | bytearray | memoryview = batch.builder.build(
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    self._config.transactional_id is not None,
                )
                if version < _FIRST_V2_BATCH:
                    records = self._down_convert(records, version)
            except KafkaError as error:
                self._completion.fail(queue, batch, error)
                continue
            name, number = queue.partition
            data = PartitionProduceData(index=number, records=records)
            if name in topics:
                topics[name].partition_data.append(data)
            else:
                topic = TopicProduceData(name=name, topic_id=ZERO_UUID, partition_data=[data])
                topics[name] = topic
                request.topic_data.append(topic)
            added.append((queue, batch))
        return added

    def _down_convert(self, records: bytes | bytearray | memoryview, version: int) -> bytes:
        """Return the records as a message set of the older format that ProduceRequest `version`
        contains, for brokers before Kafka 0.11.

        Raises IllegalArgumentError if that format cannot encode the records.
        """
        magic = 1 if version >= _FIRST_TIMESTAMPED else 0
        return down_convert(records, magic, self._codec, self._config.compression_level)


def _check_version(version: int, codec: int) -> None:
    """Raise IncompatibleBrokerVersion if the broker cannot decompress `codec` (KIP-110)."""
    if codec == ZSTD and version < _FIRST_ZSTD:
        raise IncompatibleBrokerVersion(
            "compression_type='zstd' needs Kafka 2.1 or later; this broker speaks Produce "
            f"up to version {version}: use another compression_type"
        )


def _name_by_id(request: ProduceRequest, cluster: ClusterMetadata) -> bool:
    """Set the topic ids of `request`; return False if the id of a topic is unknown."""
    for topic in request.topic_data:
        topic_id = cluster.topic_id(topic.name)
        if topic_id is None:
            return False
        topic.topic_id = topic_id
    return True
