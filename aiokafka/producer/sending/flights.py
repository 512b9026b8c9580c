"""Settle the requests that are in flight to one broker, in the order in which they were sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from aiokafka._vitals import Contact, Due
from aiokafka.errors import KafkaError
from aiokafka.producer.sending.delivery import Delivery
from aiokafka.producer.sending.flight import Flight
from aiokafka.protocol.messages.produce import ProduceRequest, ProduceResponse

__all__ = ["Flights"]

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
        contact: Contact,
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
