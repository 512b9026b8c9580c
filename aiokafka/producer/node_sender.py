"""Send the batches of one broker: which batches, in which requests, and the requests in flight."""

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
from aiokafka.record.compression import GZIP, LZ4, SNAPPY, ZSTD, codec_id
from aiokafka.record.contents import down_convert

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

    Owns whether that may differ from the order of their batches. A queue is added late if an older
    batch of it had to be sent first, or if it comes from the sender of another broker.
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
        """Return the queues, the one with the oldest batch first."""
        if self._is_mixed:
            self._is_mixed = False
            ordered = sorted(self, key=_created)
            self.clear()
            self.update(dict.fromkeys(ordered))
        return tuple(self)

    def pop_created_before(self, time: float) -> dict[PartitionQueue, None]:
        """Remove and return the first queues, up to one whose oldest batch was created at `time`
        (loop time) or later. Older batches behind that one follow once it has left, or is as old.
        """
        old = dict.fromkeys(takewhile(lambda queue: _created(queue) < time, self))
        for queue in old:
            del self[queue]
        return old


def _created(queue: PartitionQueue) -> float:
    return queue.waiting[0].created if queue.waiting else 0.0


# -- Requests in flight to one broker


_REPLICATION_TIME = 4.0
"""Seconds that a broker may take to replicate before a missing response counts as an outage."""


class ProduceInFlight:
    """A request without a response, and its batches."""

    __slots__ = ("batches", "request", "response", "sent_at")

    def __init__(
        self,
        request: ProduceRequest,
        response: asyncio.Future[ProduceResponse | None],
        batches: Batches,
        sent_at: float,
    ) -> None:
        """`response` resolves with the response, with None if acks=0. `sent_at` is loop time."""
        self.request = request
        self.response = response
        self.batches = batches
        self.sent_at = sent_at


class InFlightRequests:
    """The requests in flight to one broker, oldest first; completes them in this order.

    Owns: these requests, and the time by which the oldest should have a response. No task waits for
    the responses. A request is completed as its response is read, so that the tasks that wait for
    its records run in the next iteration of the event loop.
    """

    def __init__(self, health: NodeHealth, completion: BatchCompletion, node: NodeSender) -> None:
        self._health = health
        self._completion = completion
        self._node = node
        self._requests: deque[ProduceInFlight] = deque()
        self._due: Due | None = None

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def responses(self) -> list[asyncio.Future[Any]]:
        """The futures of the responses to the requests in flight now."""
        return [sent.response for sent in self._requests]

    def add(self, sent: ProduceInFlight) -> None:
        """Add a request that was just sent. If it could not be sent, its response has failed."""
        self._requests.append(sent)
        sent.response.add_done_callback(self._on_done)
        if len(self._requests) == 1:
            self._expect_oldest()

    def abandon(self) -> None:
        """Forget all requests, whose batches have failed, and release the memory of the batches."""
        for sent in self._requests:
            for _, batch in sent.batches:
                self._completion.accumulator.memory.release(batch.release())
        self._requests.clear()
        self._expect_oldest()

    def on_response(self, request: ProduceRequest, response: ProduceResponse) -> None:
        """Complete `request` while its response is read, unless an older request comes first.

        1. Request 1 is in flight. Request 2 cannot be sent; it has failed, and keeps its place.
        2. Request 3 is sent. The responses to 1 and 3 are read together, and 1 is completed.
        3. Request 2 is the oldest now, and its batches must be requeued before those of 3 complete.
           So 3 is left to `_on_done`, which runs in the next iteration of the event loop for 1, and
           completes both.
        """
        if not self._requests or self._requests[0].request is not request:
            return
        try:
            self._succeed(self._requests.popleft(), response)
            self._node.send_more()
        except BaseException as error:
            self._node.on_bug(error)

    def _on_done(self, response: asyncio.Future[Any]) -> None:
        """Complete requests that failed, or that had to wait for an older request."""
        # asyncio would log an exception that was never retrieved, as when the producer has stopped.
        response.exception()
        if not self._requests or not self._requests[0].response.done():
            return
        try:
            while self._requests and self._requests[0].response.done():
                sent = self._requests.popleft()
                failure = sent.response.exception()
                if failure is None:
                    self._succeed(sent, sent.response.result())
                elif isinstance(failure, KafkaError):
                    self._fail(sent, failure)
                else:
                    raise failure
            self._node.send_more()
        except BaseException as error:
            self._node.on_bug(error)

    # Both take a request that was removed before: completing its batches may send the next ones,
    # which need its place in flight.

    def _succeed(self, sent: ProduceInFlight, response: ProduceResponse | None) -> None:
        self._expect_oldest()
        self._health.succeed()
        self._completion.on_response(sent, response)

    def _fail(self, sent: ProduceInFlight, error: KafkaError) -> None:
        # In this order: an outage counts from the time when the response was due, which
        # `_expect_oldest` forgets.
        self._health.note(error)
        self._expect_oldest()
        self._completion.on_failure(sent, error)

    def _expect_oldest(self) -> None:
        """Expect the response to the oldest request, from now on."""
        if self._due is not None:
            self._health.forgive(self._due)
        self._due = self._health.expect("Produce", _REPLICATION_TIME) if self._requests else None


# -- Compression, without blocking the event loop for long


_PER_TURN = {GZIP: 65_536, SNAPPY: 524_288, LZ4: 524_288, ZSTD: 262_144}
"""Bytes of records that a codec compresses in a millisecond or less, at its default level."""

_PER_TURN_HARD = 32_768
"""The same for levels above `_EASY_LEVEL`."""

_EASY_LEVEL = {GZIP: 6, LZ4: 2, ZSTD: 3}

_PATIENCE = 0.02
"""Seconds after which more is compressed in one iteration of the event loop: twice as much after
twice the time, and so on. A busy application may send more in each of its long iterations than was
compressed otherwise, and its records would wait behind everything that fits into the buffer memory.
"""


class BatchCompression:
    """Compresses the batches of one broker for one request at a time.

    Owns: how many bytes of records were compressed in this iteration of the event loop, the queues
    whose batch is still to be compressed for the next request, and when that request was begun.
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
        self._queues: deque[PartitionQueue] = deque()
        self._begun_at = 0.0
        self._left = 0
        """Bytes that still fit into the request."""
        self.has_more = False
        """Whether the event loop has to run `NodeSender` again: some batches did not fit into the
        request, or are compressed in a later iteration."""

    def begin_turn(self) -> None:
        """Count the compressed bytes from zero: this is another iteration of the event loop."""
        self._bytes = 0

    @property
    def has_begun(self) -> bool:
        """Whether batches of the next request are still to be compressed."""
        return bool(self._queues)

    def begin(self, queues: Iterable[PartitionQueue], now: float) -> None:
        """Begin another request, with batches from `queues`.

        Later batches are for the request after it, so that an application that goes on sending
        cannot delay this one for ever.
        """
        self._queues.extend(queues)
        self._begun_at = now
        self.has_more = False
        self._left = self._request_size

    def compress(self, now: float) -> bool:
        """Compress batches until the request is full; return False if some of them are left to
        another iteration of the event loop, which would be blocked otherwise.
        """
        limit = self._per_turn * max(1.0, (now - self._begun_at) / _PATIENCE)
        while self._queues and self._left > 0:
            if self._bytes >= limit:
                self.has_more = True
                return False
            batch = self._node.seal_next(self._queues.popleft(), now)
            # A batch that was compressed before may have to wait, so it does not count.
            if batch is not None and not batch.builder.compressed_size:
                self._left -= self._compress(batch)
        if self._queues:
            self.has_more = True
            self._queues.clear()
        return True

    def _compress(self, batch: ProducerBatch) -> int:
        """Compress a sealed batch; return its size."""
        builder = batch.builder
        builder.build()
        self._bytes += builder.size
        sizing = self._accumulator.sizing(batch.partition.topic)
        sizing.learn(builder.size, builder.compressed_size)
        return builder.compressed_size


# -- The sender of one broker


_GATHER_TIME = 0.005
"""Seconds that a batch which is not full waits for more records while requests are in flight.

With nothing in flight it is sent at once. Under load it would be one of many requests with a record
or two each, which cost more than they save: it is sent after the next response, or this time.
"""

_BUSY_GATHER_TIME = 0.04
"""The same while the application sends without a pause: it does not await a result yet, and with a
thousand partitions every iteration would otherwise send a record or two to each.
"""

_GATHER_SHARE = 4
"""The time to gather records, in multiples of the time to send requests, if that is longer than
`_GATHER_TIME`: sending must not take all the CPU time."""

_LONGEST_GATHER_TIME = 0.2
"""Seconds beyond the linger time after which a batch that is not full is sent in turn with the full
ones. Otherwise these would overtake it for as long as they fill the requests."""

NAMED_TOPICS_VERSION = 12
"""The last version of ProduceRequest that names topics; later ones have topic ids (KIP-516)."""

CLIENT_ADDS_VERSION = 11
"""The last version with which the client adds partitions to a transaction. With later versions the
leader does (KIP-890)."""

_FIRST_V2_BATCH = 3
_FIRST_TIMESTAMPED = 2
_FIRST_ZSTD = 7


class NodeSender:
    """Sends the batches of the partitions that one broker leads.

    Owns: which of their queues have a batch to send (`_ready`), which may wait for more records
    (`_lingering`), and which wait for the backoff after a failure (`_backing_off`).

    While its connection accepts requests, it needs no task: batches are sent in the event loop's
    iteration after the one in which they were opened (`_on_turn`), or after a response
    (`send_more`). The task, `run`, connects, and waits for a connection that accepts no requests.
    All of them send through `_pump`, which never waits. A partition's batches are in flight on one
    connection at a time, so they arrive in order. After a failure they are sent again one by one,
    oldest first.
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
        """The first loop time at which the backoff of a queue ends."""
        self._connection: BrokerConnection | None = None
        self._wake = asyncio.Event()
        self._turn: asyncio.Handle | None = None
        self._context = copy_context()
        """The context variables of `start()`, for callbacks."""
        self._timer = DeadlineTimer(self._loop, self._pump_soon)
        self._gather_until = 0.0
        self._compression = BatchCompression(self._config, self._accumulator, self)
        self._is_retired = False

    def __repr__(self) -> str:
        return f"<NodeSender {self.node_id} in_flight={len(self.requests)}>"

    # -- the queues

    def add(self, queue: PartitionQueue) -> None:
        """Send the oldest batch of `queue`, which may be new, sealed, or requeued."""
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
            # With more requests in flight, `send_more` sends after the next response.
            if len(self.requests) < self._config.max_in_flight_requests:
                self._pump_soon()

    def discard(self, queue: PartitionQueue) -> None:
        """Send nothing more from `queue`: its leader is another broker, or it is empty."""
        self._ready.pop(queue, None)
        self._lingering.pop(queue, None)
        self._backing_off.pop(queue, None)

    def close(self) -> None:
        """Stop the timer, and abandon the requests in flight. The owner of the task ends that."""
        self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self.requests.abandon()

    def retire(self) -> None:
        """End the task: there is nothing to send, and nothing in flight."""
        self._is_retired = True
        self._wake.set()
        self.close()

    def on_bug(self, error: BaseException) -> None:
        """End the producer, because a callback of this sender has raised `error`."""
        self._sender.on_bug(f"sender-{self.node_id}", error)

    # -- the task, and the callbacks

    async def run(self) -> None:
        """Connect, and wait until the connection accepts requests, whenever there is something to
        send.
        """
        while not self._is_retired:
            await self._wake.wait()
            self._wake.clear()
            if self._has_work and await self._connect():
                self._compression.begin_turn()
                self._take_turn()

    def _pump_soon(self) -> None:
        """Send in the next iteration of the event loop, with everything that this one adds."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._on_turn, context=self._context)

    def _on_turn(self) -> None:
        self._turn = None
        self._compression.begin_turn()
        if not self._has_work:
            return
        if self._connection is None or not self._connection.is_ready:
            self._wake.set()
            return
        try:
            self._take_turn()
        except BaseException as error:
            self.on_bug(error)

    def _take_turn(self) -> None:
        """Send, on a connection that accepts requests."""
        self._accumulator.note_yield()
        self._pump()
        if self._lingering and not self.requests and self._accumulator.is_yielding:
            # No response and no timer leads to the next attempt once the application pauses.
            self._pump_soon()

    def send_more(self) -> None:
        """Send further requests, after responses have made room for them."""
        if self._has_work:
            if self._connection is not None and self._connection.is_ready:
                self._take_turn()
                return
            self._wake.set()
        self._accumulator.note_yield()

    @property
    def is_busy(self) -> bool:
        """Whether there is something to send, or a request in flight."""
        return bool(self.requests) or self._has_work

    @property
    def _has_work(self) -> bool:
        return bool(self._ready or self._lingering or self._backing_off)

    async def _connect(self) -> bool:
        """Connect unless connected, and wait until the connection accepts requests; return whether
        it does."""
        connection = self._connection
        if connection is not None and connection.is_ready:
            return True
        try:
            # Another connection would overtake requests that wait on this one: in the write buffer,
            # or at the broker.
            if connection is None or not connection.is_open:
                connection = await self._client.connection(self.node_id)
            if self._config.acks == 0 and connection is not self._connection:
                # With acks=0 a broker can only close the connection if it does not lead a
                # partition.
                why = f"node {self.node_id} has closed the connection of a producer with acks=0"
                connection.closed.add_done_callback(lambda _: self._client.doubt_metadata(why))
            self._connection = connection
            if not connection.is_ready:
                await connection.gate.wait(self._config.client.request_timeout)
            if not connection.is_ready:
                # It has closed meanwhile: connect again.
                self._wake.set()
            return connection.is_ready
        except IncompatibleBrokerVersion as error:
            self.health.fail(error)
            for queue in (*self._ready, *self._lingering, *self._backing_off):
                self._completion.fail_waiting(queue, error)
        except KafkaError as error:
            # Also for refused credentials: they were accepted when the client started. While they
            # are changed, or the identity provider is down, brokers may refuse them for a moment.
            self.health.note(error)
            self._client.request_metadata(f"no connection to node {self.node_id}: {error}")
            for queue in (*self._ready, *self._lingering, *self._backing_off):
                queue.set_error(error)
        # Without a connection no event leads to the next attempt.
        self._timer.arm(self._loop.time() + self._config.client.retry_backoff)
        return False

    # -- sending

    def _pump(self) -> None:
        """Send as many requests as there are batches to send, and the connection accepts.

        Which event leads to a request, and why no batch is forgotten:

        1. A batch is opened with nothing in flight. `add` puts its queue into `_lingering` and
           schedules `_on_turn`, which sends it: the lone record does not wait.
        2. More batches are opened while the request is in flight. `add` arms the timer for
           `_gather_until`; their records collect.
        3. The response comes first: the request completes, and `send_more` pumps. With nothing else
           in flight all batches are sent, in one request.
        4. Or the timer fires first: it schedules `_on_turn`, which pumps, with the next response
           still to come.
        5. A batch is full. `add` moves its queue to `_ready` and schedules `_on_turn`, unless as
           many requests as allowed are in flight: then step 3 sends it.
        6. The connection accepts nothing (lost, throttled, or its write buffer is full). The pump
           wakes `run`, which waits in `_connect`; until then responses still come by step 3.
        7. A batch is requeued after a failure. Its queue waits in `_backing_off` until `retry_at`;
           the timer, or any pump after that, moves it to `_ready` (`_end_backoffs`).
        8. `assign_sequence` refuses a number: batches in flight come first, or a producer id, or
           the coordinator. The queue stays in `_ready`; every response, `Sender.resume` and
           `Sender._renew_producer_id` lead to the next attempt.
        9. The application sends without a pause, so batches that are not full stay, also in step 3.
           With a request in flight the timer is armed. With none, `_take_turn` schedules another
           `_on_turn` after each of these.
        10. Compressing a request's batches takes several iterations of the event loop. `_compress`
            schedules each of them.

        So a queue with a waiting batch is in one of the three collections, and each of them has an
        event to come: a response, the timer, `_on_turn`, or `_wake`.
        """
        connection = self._connection
        assert connection is not None
        start = now = self._loop.time()
        limit = self._config.max_in_flight_requests
        is_ready = True
        while len(self.requests) < limit and (self._has_work or self._compression.has_begun):
            if not is_ready and not connection.is_ready:
                # Lost, throttled, or the write buffer is full: `run` waits for it.
                self._wake.set()
                return
            is_ready = False  # until it is checked again, as a request follows
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
                # Wait for the rest of this iteration only, and then for a response.
                self._timer.arm(now)

    def _collect(self, now: float) -> Batches:
        """Move batches into one request: ready ones in turn, then those that have lingered."""
        batches: Batches = []
        left = self._config.max_request_size
        if self._backing_off and now >= self._retry_at:
            self._end_backoffs(now)
        elif self._backing_off:
            # The timer may have fired for an earlier time.
            self._timer.arm(self._retry_at)
        late = now - self._config.linger - _LONGEST_GATHER_TIME
        self._ready.update(self._lingering.pop_created_before(late))
        if not self._compression.is_used:
            queues = (*self._ready, *self._lingered(now))
        elif self._compress(now):
            queues = tuple(self._ready)
        else:
            return batches
        for queue in queues:
            batch = self._next_batch(queue, now)
            if batch is None:
                continue
            size = batch.builder.size
            if self._compression.is_used:
                size = batch.builder.compressed_size
                if not size:
                    continue  # for the next request
            if size > self._config.max_request_size and self._completion.split_unsent(queue, batch):
                self._wake.set()
                continue
            if batches and size > left:
                # It is first in the next request. If this one were filled up, smaller batches
                # would overtake it for as long as they come.
                return batches
            if self._take(queue, batch):
                left -= size
                batches.append((queue, batch))
        return batches

    def _compress(self, now: float) -> bool:
        """Compress batches for the next request; return False if the event loop must run first."""
        if not self._compression.has_begun:
            self._compression.begin((*self._ready, *self._lingered(now)), now)
        is_done = self._compression.compress(now)
        if self._compression.has_more:
            self._pump_soon()
        return is_done

    def seal_next(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Seal and return the batch of `queue` for the next request, None if it has to wait."""
        if queue not in self._ready and queue not in self._lingering:
            return None
        batch = self._next_batch(queue, now)
        if batch is not None and queue in self._lingering:
            # It is sent with the others, however long their compression takes.
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
        """Return whether batches that are not full are sent now, without a linger time."""
        if self.requests and now < self._gather_until:
            return False
        if not self._accumulator.is_yielding:
            return True
        oldest = next(iter(self._lingering)).waiting
        return not oldest or now >= oldest[0].created + _BUSY_GATHER_TIME

    def _next_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Return the oldest batch of `queue` if it may be sent now, None if it has to wait."""
        if not queue.waiting:
            self.discard(queue)
            return None
        if queue.retry_at > now:
            self._back_off(queue)
            return None
        batch = queue.waiting[0]
        # A retry goes alone, so that the order cannot change once more.
        if queue.in_flight and (batch.goes_alone or not self._may_follow(queue)):
            return None
        if batch is queue.open:
            queue.seal()
        return batch

    def _may_follow(self, queue: PartitionQueue) -> bool:
        """Return whether a new batch may be sent behind those of `queue` that are in flight.

        Not without sequence numbers: a failed batch would be retried behind the new one. (With
        acks=0 no batch is retried.) And not behind a retry, as leaders recognize only the last five
        batches:

        1. Five batches are sent. All are written, but the response to the first is an error.
        2. It is sent again, and a sixth before the response comes.
        3. The sixth is written; the response to the first is an error once more.
        4. Sent for the third time, the first batch is unknown to the leader, which reports a gap:
           under a new epoch it would be written twice.
        """
        is_pipelined = self._completion.id_state is not None or self._config.acks == 0
        return is_pipelined and queue.in_flight_from is self and not queue.in_flight[0].goes_alone

    def _take(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Move `batch` from `queue` into flight; return False if it has to wait."""
        id_state = self._completion.id_state
        if id_state is not None and not id_state.assign_sequence(queue, batch, self._loop.time()):
            self._completion.request_identity()
            self._lingering.pop(queue, None)
            self._ready[queue] = None
            return False
        queue.take(self)
        self.discard(queue)  # and add it at the end, so that every partition has its turn
        if queue.waiting:
            if _is_filling(queue.waiting[0]):
                self._lingering.add(queue)
            else:
                self._ready[queue] = None
        return True

    def _dispatch(self, connection: BrokerConnection, batches: Batches) -> None:
        """Send one request."""
        config = self._config
        request = ProduceRequest(
            transactional_id=config.transactional_id,
            acks=config.acks,
            timeout_ms=int(config.client.request_timeout * 1000),
            topic_data=[],
        )
        response: asyncio.Future[Any]
        try:
            version = connection.pick(ProduceRequest, self._max_version)
            _check_version(version, self._codec)
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
        """Add the batches to `request`; fail those that this version cannot encode, and return the
        others."""
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
    """Return the id of every topic; {} if one of them is unknown."""
    ids: dict[str, bytes] = {}
    for queue, _ in batches:
        topic = queue.partition.topic
        if topic not in ids:
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                return {}
            ids[topic] = topic_id
    return ids
