"""Send the batches of the partitions that one broker leads, and receive its responses."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from aiokafka._health import Due, NodeHealth, broker_health
from aiokafka._log import SubjectLog
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.net.connection import DeadlineTimer
from aiokafka.producer.batches.appender import PartitionQueue
from aiokafka.producer.batches.batch import BatchState, ProducerBatch
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.sending.delivery import Delivery
from aiokafka.producer.sending.requests import (
    NAMED_TOPICS_VERSION,
    Cargo,
    Flight,
    Payload,
    check_version,
    group_by_topic,
    ids_of_topics,
    wire_form,
)
from aiokafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from aiokafka.record.compression import GZIP, LZ4, SNAPPY, ZSTD, codec_id

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.net.connection import BrokerConnection

__all__ = ["Compressing", "Flights", "Lingering", "NodeSender"]


# -- The queues of a broker whose open batch waits for more records


class Lingering(dict[PartitionQueue, None]):
    """The queues whose open batch may wait for more records, in the order of coming.

    Owns whether that may be another order than that of their batches: one comes late if a batch
    before it had to be sent first, or if it comes from another broker's sender.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_mixed = False

    def join(self, queue: PartitionQueue) -> None:
        """Add `queue`, unless it is there."""
        if queue not in self:
            last = next(reversed(self), queue)
            self._is_mixed |= _begun(queue) < _begun(last)
            self[queue] = None

    def by_age(self) -> tuple[PartitionQueue, ...]:
        """Return the queues, that with the oldest batch first."""
        if self._is_mixed:
            self._is_mixed = False
            line = sorted(self, key=_begun)
            self.clear()
            self.update(dict.fromkeys(line))
        return tuple(self)

    def pop_begun_before(self, time: float) -> dict[PartitionQueue, None]:
        """Take out the first queues, up to one whose oldest batch was begun at `time` (loop time)
        or later, and return them. An older one behind it comes when that has left, or is as old.
        """
        old = dict.fromkeys(takewhile(lambda queue: _begun(queue) < time, self))
        for queue in old:
            del self[queue]
        return old


def _begun(queue: PartitionQueue) -> float:
    return queue.waiting[0].created if queue.waiting else 0.0


# -- Settle the requests that are in flight to one broker, in the order in which they were sent


_LANDING_TIME = 4.0
"""Seconds that a broker may take to replicate before its silence means anything."""


class Flights:
    """The requests in flight to one broker, oldest first.

    Owns: that row, and by when the oldest request should be answered. No task waits for the
    responses: one is settled as it is read, so that the tasks which wait for its records run in the
    next turn of the event loop.
    """

    def __init__(
        self,
        contact: NodeHealth,
        delivery: Delivery,
        on_room: Callable[[], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        """Begin with nothing in flight.

        `on_room()` is called when responses have made room. What it or `delivery` raises is a bug,
        and goes to `on_bug(error)`: callbacks have no caller that would learn of it.
        """
        self._contact = contact
        self._delivery = delivery
        self._on_room = on_room
        self._on_bug = on_bug
        self._row: deque[Flight] = deque()
        self._due: Due | None = None

    def __len__(self) -> int:
        return len(self._row)

    @property
    def answers(self) -> list[asyncio.Future[Any]]:
        """What resolves when the requests of this moment are answered, or will not be."""
        return [flight.answer for flight in self._row]

    def add(self, flight: Flight) -> None:
        """Take a request that was just sent, with `land` to be called with its response.

        One that could not be sent has failed already.
        """
        self._row.append(flight)
        flight.answer.add_done_callback(self._on_answer)
        if len(self._row) == 1:
            self._expect_oldest()

    def give_up(self) -> None:
        """Forget all requests: their batches have failed, and their memory is free again."""
        for flight in self._row:
            for _, batch in flight.cargo:
                self._delivery.accumulator.release(batch)
        self._row.clear()
        self._expect_oldest()

    def land(self, request: ProduceRequest, response: ProduceResponse) -> None:
        """Settle `request` while its response is read, unless an older one comes first.

        1. Request 1 is in flight. Request 2 cannot be sent; it has failed, and keeps its place.
        2. Request 3 is sent. The responses to 1 and 3 are read together, and 1 is settled.
        3. Request 2 is the oldest now, and its batches go back before those of 3 are settled: 3 is
           left to `_on_answer`, which runs in the next turn of the event loop for 1 and takes both.
        """
        if not self._row or self._row[0].request is not request:
            return
        try:
            self._succeed(self._row.popleft(), response)
            self._on_room()
        except BaseException as error:
            self._on_bug(error)

    def _on_answer(self, answer: asyncio.Future[Any]) -> None:
        """Settle what has ended without a response, or had to wait for an older request."""
        # asyncio would log a failure that nothing looked at, as when the producer has stopped.
        answer.exception()
        if not self._row or not self._row[0].answer.done():
            return
        try:
            while self._row and self._row[0].answer.done():
                flight = self._row.popleft()
                failure = flight.answer.exception()
                if failure is None:
                    self._succeed(flight, flight.answer.result())
                elif isinstance(failure, KafkaError):
                    self._fail(flight, failure)
                else:
                    raise failure
            self._on_room()
        except BaseException as error:
            self._on_bug(error)

    # Both take a flight that has left the row: what is settled may find more to send, and needs the
    # room.

    def _succeed(self, flight: Flight, response: ProduceResponse | None) -> None:
        self._expect_oldest()
        self._contact.succeed()
        self._delivery.on_response(flight, response)

    def _fail(self, flight: Flight, error: KafkaError) -> None:
        # A failure counts from when its response was due, so that is forgotten afterwards.
        self._contact.note(error)
        self._expect_oldest()
        self._delivery.on_failure(flight, error)

    def _expect_oldest(self) -> None:
        """Count the time of the oldest request from now on."""
        if self._due is not None:
            self._contact.forgive(self._due)
        self._due = self._contact.expect("Produce", _LANDING_TIME) if self._row else None


# -- Compress batches, not so many in one turn that the event loop stands still


_PER_TURN = {GZIP: 65_536, SNAPPY: 524_288, LZ4: 524_288, ZSTD: 262_144}
"""Bytes of records that a codec packs in a millisecond or less, by its default level."""

_HARD = 32_768
"""... and at the levels above `_EASY`."""

_EASY = {GZIP: 6, LZ4: 2, ZSTD: 3}

_PATIENCE = 0.02
"""Seconds after which a turn does more: twice as much after twice as long, and so on. A busy
application may bring more in its long turns than is compressed otherwise, and its records would
wait behind all that has room in the buffer memory.
"""


class Compressing:
    """Compresses the batches of one broker, a request's at a time.

    Owns how many bytes of records were compressed in this turn of the event loop, which queues have
    a batch that is still to be compressed for the next request, and when that was begun.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: MessageAccumulator,
        seal: Callable[[PartitionQueue, float], ProducerBatch | None],
    ) -> None:
        """Begin without a request. `seal(queue, now)` returns the batch of a queue that leaves
        with the next request, or None.
        """
        codec, level = codec_id(config.compression_type), config.compression_level
        self.is_used = bool(codec)
        self._accumulator = accumulator
        self._seal = seal
        is_hard = level is not None and level > _EASY.get(codec, level)
        self._per_turn = _HARD if is_hard else _PER_TURN.get(codec, 0)
        self._request_size = config.max_request_size
        self._bytes = 0
        self._line: deque[PartitionQueue] = deque()
        self._begun_at = 0.0
        self._room = 0
        self.has_rest = False
        """Whether another turn has to look for more: there was no room in this request, or time has
        passed since it was begun.
        """

    def begin_turn(self) -> None:
        """Begin to count again: this is another turn of the event loop."""
        self._bytes = 0

    @property
    def has_begun(self) -> bool:
        """Whether a request is still to be compressed."""
        return bool(self._line)

    def begin(self, line: Iterable[PartitionQueue], now: float) -> None:
        """Begin with another request, of batches from the queues in `line`.

        What comes later is for the request after it, so that an application which goes on sending
        cannot keep this one from leaving.
        """
        self._line.extend(line)
        self._begun_at = now
        self.has_rest = False
        self._room = self._request_size

    def go_on(self, now: float) -> bool:
        """Compress what fills the request; return False if the rest has to wait for another turn
        of the event loop, which would stand still otherwise.
        """
        limit = self._per_turn * max(1.0, (now - self._begun_at) / _PATIENCE)
        while self._line and self._room > 0:
            if self._bytes >= limit:
                self.has_rest = True
                return False
            batch = self._seal(self._line.popleft(), now)
            # What was compressed before may wait for something else, and takes no room.
            if batch is not None and not batch.builder.compressed_size:
                self._room -= self._compress(batch)
        if self._line:
            self.has_rest = True
            self._line.clear()
        return True

    def _compress(self, batch: ProducerBatch) -> int:
        """Return the bytes that a sealed batch has now."""
        builder = batch.builder
        builder.build()
        self._bytes += builder.size
        sizing = self._accumulator.sizing(batch.partition.topic)
        sizing.learn(builder.size, builder.compressed_size)
        return builder.compressed_size


log = logging.getLogger("aiokafka.producer.producer")

_COMPANY = 0.005
"""Seconds that a batch which is not full waits for more records while requests are in flight.

With nothing in flight it leaves at once. Under load it would be one of many requests with a record
or two each, which cost more than they save: it leaves with the next response, or after this time.
"""

_BUSY_COMPANY = 0.04
"""... or this long, while the application sends without a pause: it does not wait for a result yet,
and with a thousand partitions every turn would otherwise send a record or two to each.
"""

_SHARE = 4
"""... or as many times what it takes to send, if longer: that must not take all the time."""

_LONGEST_COMPANY = 0.2
"""Seconds beyond the linger time after which a batch that is not full stands in line with those
that are: they would pass it for as long as they fill the requests."""


class NodeSender:
    """Sends the batches of the partitions that one broker leads.

    Owns: which of their queues have a batch that should leave (`_urgent`), which may wait for more
    records (`_patient`), and which pause after a failure (`_delayed`).

    While its connection takes requests it needs no task: batches leave in the turn of the event
    loop behind the one that brought them (`_on_turn`), or when a response has made room
    (`_on_room`). The task, `run`, connects, and waits for a connection that takes nothing. All of
    them send through `_pump`, which never waits. A partition's batches are in flight on one
    connection at a time, so they arrive in order; after a failure they are sent again one by one,
    oldest first.
    """

    def __init__(
        self,
        node_id: int,
        delivery: Delivery,
        on_change: Callable[[], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        """Begin without queues. `on_change()` is called when the broker no longer responds, and
        when it responds again; `on_bug(error)` with what a callback of the event loop has raised.
        """
        self.node_id = node_id
        told = SubjectLog(log, delivery.config.subject)
        self.contact = broker_health(delivery.client, node_id, told, on_change)
        self._delivery = delivery
        self._client = delivery.client
        self._config = delivery.config
        self._appender = delivery.accumulator.appender
        self._loop = asyncio.get_running_loop()
        self._urgent: dict[PartitionQueue, None] = {}
        self._patient = Lingering()
        self._delayed: dict[PartitionQueue, None] = {}
        self._delayed_until = 0.0
        self._on_bug = on_bug
        self._flights = Flights(self.contact, delivery, self._on_room, on_bug)
        self._connection: BrokerConnection | None = None
        self._wake = asyncio.Event()
        self._turn: asyncio.Handle | None = None
        self._context = copy_context()
        """For what runs without a task: that of the producer's start."""
        self._timer = DeadlineTimer(self._loop, self._pump_soon)
        self._company_until = 0.0
        self._compressing = Compressing(self._config, delivery.accumulator, self._sealed)
        self._is_retired = False

    def __repr__(self) -> str:
        return f"<NodeSender {self.node_id} in_flight={len(self._flights)}>"

    # -- the queues

    def add(self, queue: PartitionQueue) -> None:
        """Look after `queue`, whose oldest batch may be new, sealed, or back from a failure."""
        if not queue.waiting:
            return
        if self.contact.failing_since is not None and not self.is_busy:
            self.contact.forget()
        if _is_filling(queue.waiting[0]):
            if queue not in self._urgent:
                self._patient.join(queue)
            if not self._flights or self._config.linger:
                self._pump_soon()
            else:
                self._timer.arm(self._company_until)
        else:
            self._patient.pop(queue, None)
            self._urgent[queue] = None
            # Otherwise a response comes before anything can be sent, and pumps.
            if len(self._flights) < self._config.max_in_flight_requests:
                self._pump_soon()

    def discard(self, queue: PartitionQueue) -> None:
        """Do not look after `queue` any more: its leader is another broker."""
        self._urgent.pop(queue, None)
        self._patient.pop(queue, None)
        self._delayed.pop(queue, None)

    def close(self) -> None:
        """Stop the timer and give up the requests in flight; the task is ended by its owner."""
        self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._flights.give_up()

    def retire(self) -> None:
        """End the task: there is nothing to send, and no response to come."""
        self._is_retired = True
        self._wake.set()
        self.close()

    # -- the task, and what needs none

    async def run(self) -> None:
        """Connect, and wait until the connection takes requests, whenever there is something to
        send.
        """
        while not self._is_retired:
            await self._wake.wait()
            self._wake.clear()
            if self._has_work and await self._make_ready():
                self._compressing.begin_turn()
                self._take_turn()

    def _pump_soon(self) -> None:
        """Send in the next turn of the event loop, together with what this turn still brings."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._on_turn, context=self._context)

    def _on_turn(self) -> None:
        self._turn = None
        self._compressing.begin_turn()
        if not self._has_work:
            return
        if self._connection is None or not self._connection.is_ready:
            self._wake.set()
            return
        try:
            self._take_turn()
        except BaseException as error:
            self._on_bug(error)

    def _take_turn(self) -> None:
        self._appender.note_turn()
        self._pump()
        if self._patient and not self._flights and self._appender.is_busy:
            # Nothing else would lead to the next attempt when the application pauses.
            self._pump_soon()

    @property
    def in_flight(self) -> int:
        """How many requests were not answered yet."""
        return len(self._flights)

    @property
    def answers(self) -> list[asyncio.Future[Any]]:
        """What resolves when the requests of this moment are answered, or will not be."""
        return self._flights.answers

    @property
    def is_busy(self) -> bool:
        """Whether it has something to send, or waits for a response."""
        return bool(self._flights) or self._has_work

    @property
    def _has_work(self) -> bool:
        return bool(self._urgent or self._patient or self._delayed)

    async def _make_ready(self) -> bool:
        """Connect if need be, wait until the connection takes requests; return whether it does."""
        connection = self._connection
        if connection is not None and connection.is_ready:
            return True
        try:
            # Another one would overtake what waits on this: in the write buffer, or at the broker.
            if connection is None or not connection.is_open:
                connection = await self._client.connection(self.node_id)
            if self._config.acks == 0 and connection is not self._connection:
                # All that a broker can say of records which it does not lead.
                why = f"node {self.node_id} has closed the connection of a producer with acks=0"
                connection.closed.add_done_callback(lambda _: self._client.doubt_metadata(why))
            self._connection = connection
            if not connection.is_ready:
                await connection.gate.wait(self._config.client.request_timeout)
            if not connection.is_ready:
                # The connection closed while we waited: wake up to make another.
                self._wake.set()
            return connection.is_ready
        except IncompatibleBrokerVersion as error:
            self.contact.fail(error)
            for queue in (*self._urgent, *self._patient, *self._delayed):
                self._delivery.fail_waiting(queue, error)
        except KafkaError as error:
            # Refused credentials as well: the client had good ones when it started. While they are
            # changed, or the identity provider is away, brokers may refuse them for a moment.
            self.contact.note(error)
            self._client.request_metadata(f"no connection to node {self.node_id}: {error}")
            for queue in (*self._urgent, *self._patient, *self._delayed):
                queue.note_error(error)
        # No event comes from a connection that there is not.
        self._timer.arm(self._loop.time() + self._config.client.retry_backoff)
        return False

    def _on_room(self) -> None:
        """Send what there is, now that responses have made room."""
        if self._has_work:
            self._take_turn()
        else:
            self._appender.note_turn()

    # -- sending

    def _pump(self) -> None:
        """Send as many requests as there are batches to send, and room for on the connection.

        Which event leads to a request, and why no batch is forgotten:

        1. A batch is opened with nothing in flight. `add` puts its queue into `_patient` and asks
           for the next turn, which sends it: the lone record does not wait.
        2. More batches are opened while the request is in flight. `add` arms the timer for
           `_company_until`; their records collect.
        3. The response comes first: it is settled, and `_on_room` pumps. With nothing in flight any
           more everything leaves, in one request.
        4. Or the time is up first: the timer asks for a turn, which pumps. The next response comes
           when it comes.
        5. A batch is full. `add` moves its queue to `_urgent` and asks for the next turn, unless as
           many requests as allowed are in flight: then step 3 sends it.
        6. The connection takes nothing (lost, throttled, or its write buffer is full). The pump
           wakes `run`, which waits in `_make_ready`; until then responses still come by step 3.
        7. A batch comes back from a failure. Its queue pauses in `_delayed` until `retry_at`; the
           timer, or any pump after that, takes it up again (`_revive`).
        8. `identify` refuses a number: batches in flight come first, or a producer id, or the
           coordinator. The queue stays in `_urgent`; every response, `Sender.resume` and
           `Sender._renew_producer_id` lead to the next attempt.
        9. The application is busy, so what is not full stays, also in step 3. With a request in
           flight the timer is armed; with none `_take_turn` asks for a turn after each of the busy
           ones.
        10. Compressing a request's batches takes several turns. `_compress` asks for each of them.

        So a queue with a batch that waits is in one of the three lines, and for each line there is
        an event to come: a response, the timer, the next turn, or `_wake`.
        """
        connection = self._connection
        start = now = self._loop.time()
        while len(self._flights) < self._config.max_in_flight_requests:
            if connection is None or not connection.is_ready:
                # Lost, throttled, or the write buffer is full: `run` knows how to wait.
                self._wake.set()
                return
            cargo = self._load(now)
            if not cargo:
                break
            self._dispatch(connection, cargo)
            now = self._loop.time()
            self._company_until = now + max(_COMPANY, _SHARE * (now - start))
        if self._patient and self._flights and not self._config.linger:
            if now < self._company_until:
                self._timer.arm(self._company_until)
            elif self._appender.is_busy:
                # Wait for the rest of this turn only, and then for a response.
                self._timer.arm(now)

    def _load(self, now: float) -> Cargo:
        """Take batches for one request: urgent ones in turn, then those that have waited enough."""
        cargo: Cargo = []
        room = self._config.max_request_size
        if self._delayed and now >= self._delayed_until:
            self._revive(now)
        elif self._delayed:
            # The timer may have rung for something that was due earlier.
            self._timer.arm(self._delayed_until)
        late = now - self._config.linger - _LONGEST_COMPANY
        self._urgent.update(self._patient.pop_begun_before(late))
        if not self._compressing.is_used:
            line = (*self._urgent, *self._due(now))
        elif self._compress(now):
            line = tuple(self._urgent)
        else:
            return cargo
        for queue in line:
            batch = self._next_of(queue, now)
            if batch is None:
                continue
            size = batch.builder.compressed_size
            if not size:
                if self._compressing.is_used:
                    continue  # in the next request
                size = batch.builder.size
            if size > self._config.max_request_size and self._delivery.split_unsent(queue, batch):
                self._wake.set()
                continue
            if cargo and size > room:
                # It begins the next: in this one, smaller ones would pass it as long as they come.
                return cargo
            if self._take(queue, batch):
                room -= size
                cargo.append((queue, batch))
        return cargo

    def _compress(self, now: float) -> bool:
        """Compress what the next request takes; return False if the event loop has a turn first."""
        if not self._compressing.has_begun:
            self._compressing.begin((*self._urgent, *self._due(now)), now)
        is_done = self._compressing.go_on(now)
        if self._compressing.has_rest:
            self._pump_soon()
        return is_done

    def _sealed(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Return the batch of `queue` that leaves with the next request, None if it has to wait."""
        if queue not in self._urgent and queue not in self._patient:
            return None
        batch = self._next_of(queue, now)
        if batch is not None and queue in self._patient:
            # It leaves with the others, however long these take to be compressed.
            del self._patient[queue]
            self._urgent[queue] = None
        return batch

    def _delay(self, queue: PartitionQueue) -> None:
        """Put `queue` aside until the pause after its failure is over."""
        self.discard(queue)
        if not self._delayed or queue.retry_at < self._delayed_until:
            self._delayed_until = queue.retry_at
        self._delayed[queue] = None
        self._timer.arm(self._delayed_until)

    def _revive(self, now: float) -> None:
        """Take up the queues whose pause is over."""
        for queue in tuple(self._delayed):
            if queue.retry_at <= now:
                del self._delayed[queue]
                self._urgent[queue] = None
        if self._delayed:
            self._delayed_until = min(queue.retry_at for queue in self._delayed)
            self._timer.arm(self._delayed_until)

    def _due(self, now: float) -> Iterator[PartitionQueue]:
        """Yield the queues whose open batch has waited long enough."""
        linger = self._config.linger
        if not linger:
            if self._patient and self._may_leave(now):
                yield from tuple(self._patient)
            return
        if self._delivery.accumulator.memory.has_waiters:
            linger = 0.0
        for queue in self._patient.by_age():
            due = queue.waiting[0].created + linger
            if due > now:
                self._timer.arm(due)
                return
            yield queue

    def _may_leave(self, now: float) -> bool:
        """Return whether batches that are not full leave now, without a linger time."""
        if self._flights and now < self._company_until:
            return False
        if not self._appender.is_busy:
            return True
        oldest = next(iter(self._patient)).waiting
        return not oldest or now >= oldest[0].created + _BUSY_COMPANY

    def _next_of(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """Return the batch of `queue` that may leave now, None if it has to wait."""
        if not queue.waiting:
            self.discard(queue)
            return None
        if queue.retry_at > now:
            self._delay(queue)
            return None
        batch = queue.waiting[0]
        # One that is sent again goes alone, so that the order cannot change once more.
        if queue.in_flight and (batch.goes_alone or not self._may_follow(queue)):
            return None
        if batch is queue.open:
            queue.seal()
        return batch

    def _may_follow(self, queue: PartitionQueue) -> bool:
        """Return whether a new batch may be sent behind those of `queue` that are in flight.

        Not behind one that is sent again, as leaders recognize only the last five batches:

        1. Five batches are sent. All are written, but the first is answered with an error.
        2. It is sent again, and a sixth before the response comes.
        3. The sixth is written; the first is answered with an error once more.
        4. Sent for the third time the first is unknown to the leader, which takes it for a gap:
           under a new epoch it would be written twice.
        """
        return (
            self._delivery.is_pipelined
            and queue.in_flight_from is self
            and not queue.in_flight[0].goes_alone
        )

    def _take(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Move `batch` from `queue` into flight; return False if it has to wait."""
        if not self._delivery.identify(queue, batch):
            self._patient.pop(queue, None)
            self._urgent[queue] = None
            return False
        queue.take(self)
        self.discard(queue)  # to the end of the line, so that every partition has its turn
        if queue.waiting:
            if _is_filling(queue.waiting[0]):
                self._patient.join(queue)
            else:
                self._urgent[queue] = None
        return True

    def _dispatch(self, connection: BrokerConnection, cargo: Cargo) -> None:
        """Send one request."""
        config = self._config
        request = ProduceRequest(
            transactional_id=config.transactional_id,
            acks=config.acks,
            timeout_ms=int(config.client.request_timeout * 1000),
            topic_data=[],
        )
        answer: asyncio.Future[Any]
        try:
            version = connection.pick(ProduceRequest, self._delivery.max_version)
            check_version(version, self._delivery.codec)
            topic_ids: dict[str, bytes] = {}
            if version > NAMED_TOPICS_VERSION:
                partitions = (queue.partition for queue, _ in cargo)
                topic_ids = ids_of_topics(self._client.cluster, partitions)
                if not topic_ids:
                    version = NAMED_TOPICS_VERSION
            cargo, payloads = self._payloads(cargo, version)
            if not cargo:
                return
            request.topic_data = group_by_topic(payloads, topic_ids)
            self._delivery.meter.dispatched(cargo)
            answer = connection.send_nowait(
                request, version, on_response=partial(self._flights.land, request)
            )
        except KafkaError as error:
            answer = self._loop.create_future()
            answer.set_exception(error)
        self._flights.add(Flight(request, answer, cargo, self._loop.time()))

    def _payloads(self, cargo: Cargo, version: int) -> tuple[Cargo, list[Payload]]:
        """Return the batches and their bytes, without those that this version has no room for."""
        able = []
        payloads = []
        for queue, batch in cargo:
            try:
                records = wire_form(
                    batch,
                    version,
                    self._delivery.codec,
                    self._config.compression_level,
                    self._config.transactional_id is not None,
                )
            except KafkaError as error:
                self._delivery.fail(queue, batch, error)
                continue
            able.append((queue, batch))
            payloads.append(Payload(queue.partition, records))
        return able, payloads


def _is_filling(batch: ProducerBatch) -> bool:
    """Return whether `batch` may wait for more records."""
    return batch.state == BatchState.OPEN and not batch.has_grown
