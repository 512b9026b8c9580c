"""One connection to a broker: an asyncio protocol around `Exchange` and `FrameReader`."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar, cast

from aiokafka._subject import about
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    RequestTimedOutError,
    UnsupportedVersionError,
    renewed,
)
from aiokafka.net._traffic import NodeTraffic
from aiokafka.net.failures import early_close_hint, loss_reason
from aiokafka.protocol.exchange import Exchange, FrameReader, InFlightRequest
from aiokafka.protocol.schema import Request, Response
from aiokafka.protocol.versions import BrokerVersions

__all__ = ["BrokerConnection", "Chunk", "DeadlineTimer", "SendGate"]


# -- The gate: a full write buffer, a throttle or a re-authentication closes it


# Limit of a throttle in seconds: `throttle_time_ms` in a response may be up to 24 days.
_LONGEST_THROTTLE = 60.0


class SendGate:
    """Open while the connection may send requests. Owns the reasons why the gate is closed, and the
    futures of the requests that wait at the gate."""

    __slots__ = (
        "_is_paused",
        "_loop",
        "_paused_at",
        "_waiters",
        "is_held",
        "throttled_until",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_paused = False
        self._paused_at = 0.0
        self.is_held = False
        """Whether the connection re-authenticates: the broker then serves no other requests."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        self.throttled_until = 0.0
        """Loop time until which the broker reads nothing from this connection (KIP-219)."""

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent now."""
        return not (self._is_paused or self.is_held) and (
            not self.throttled_until or self._loop.time() >= self.throttled_until
        )

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits at the gate."""
        return bool(self._waiters)

    @property
    def paused_since(self) -> float:
        """While the write buffer is full: the loop time at which it became full, or at which a
        throttle ends if that is later. Otherwise infinity."""
        return max(self._paused_at, self.throttled_until) if self._is_paused else math.inf

    def pause(self) -> float:
        """Close the gate because the write buffer is full; return `paused_since`."""
        self._is_paused = True
        self._paused_at = self._loop.time()
        return self.paused_since

    def resume(self) -> None:
        """End the pause, because the write buffer accepts bytes again."""
        self._is_paused = False
        self._wake()

    def hold(self) -> None:
        """Close the gate for a re-authentication."""
        self.is_held = True

    def release(self) -> None:
        """End the hold, because the re-authentication has succeeded or failed."""
        self.is_held = False
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def throttle(self, seconds: float) -> float:
        """Close the gate for the throttle time of a response, at most `_LONGEST_THROTTLE`; return
        the applied seconds."""
        granted = min(seconds, _LONGEST_THROTTLE)
        self.throttled_until = max(self.throttled_until, self._loop.time() + granted)
        return granted

    async def wait(self, limit: float) -> None:
        """Wait until a request may be sent.

        Raises RequestTimedOutError after `limit` seconds. The time of throttles does not count;
        responses to in-flight requests may start a throttle during the wait.
        """
        now = self._loop.time()
        # Check again after each wake-up: the gate may be closed for another reason.
        while not self.is_open:
            is_shut = self._is_paused or self.is_held
            throttled = max(0.0, self.throttled_until - now)
            if is_shut and limit + throttled <= 0:
                raise RequestTimedOutError(f"request not sent in time: {self._cause}")
            await self._wait_once(throttled + (limit if is_shut else 0.0))
            before, now = now, self._loop.time()
            limit -= max(0.0, now - max(before, self.throttled_until))

    @property
    def _cause(self) -> str:
        return "the connection re-authenticates" if self.is_held else "its write buffer is full"

    def close(self) -> None:
        """Wake all waiting requests, which find the connection closed."""
        self.throttled_until = 0.0
        self._is_paused = False
        self.release()

    async def _wait_once(self, limit: float) -> None:
        """Wait for the next `_wake()`, at most `limit` seconds."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait((waiter,), timeout=limit)
        finally:
            # Remove the future after a timeout (the usual end of a throttle) or a cancellation.
            self._waiters.pop(waiter, None)
            waiter.cancel()


class DeadlineTimer:
    """One timer for the earliest of many deadlines. `arm()` with a later deadline costs one
    comparison.

    `on_due` runs with the context variables of the code that created the timer, and not with those
    of the request that armed it: `on_due` handles the timeouts of other requests as well.
    """

    __slots__ = ("_context", "_handle", "_loop", "_on_due", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._context = copy_context()
        self._handle: asyncio.TimerHandle | None = None
        self.at = math.inf
        """The loop time of the next call of `on_due`; infinity without an armed deadline."""

    def arm(self, deadline: float) -> None:
        """Call `on_due` at `deadline`, unless an earlier deadline is armed."""
        if deadline >= self.at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.at = deadline
        self._handle = self._loop.call_at(deadline, self._fire, context=self._context)

    def cancel(self) -> None:
        """Disarm the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.at = math.inf

    def _fire(self) -> None:
        self._handle = None
        self.at = math.inf
        self._on_due()


log = logging.getLogger("aiokafka.conn")

Chunk = bytes | bytearray | memoryview
R = TypeVar("R", bound=Response)

# Chunks below this size are joined: copying costs less than another system call (or TLS record).
# Larger chunks are written one by one, without writelines(): before CPython 3.12 writelines() joins
# all chunks, and in 3.12 and 3.13 it never calls pause_writing(), which causes the back-pressure.
_JOIN_BELOW = 65536

_API_VERSIONS = 18

# Limit of a response during the handshake, because the peer may not be a Kafka broker.
_MAX_HANDSHAKE_BYTES = 1024 * 1024


class BrokerConnection(asyncio.BufferedProtocol):
    """Sends requests and receives responses, in the order of the requests.

    Owns its `Exchange` (correlation ids, deadlines), its transport and its `SendGate`. Every
    future of a request gets the response, RequestTimedOutError at its deadline, or
    KafkaConnectionError when the connection ends. A request that times out closes the connection,
    because no later response can arrive before the missing response. If a future is *cancelled*,
    its response is dropped, and other requests are not affected.
    """

    def __init__(
        self,
        peer: str,
        *,
        client_id: str,
        request_timeout: float,
        max_response_bytes: int,
        uses_tls: bool = False,
        uses_sasl: bool = False,
    ) -> None:
        """Create an unconnected protocol for asyncio.

        Args:
            peer: The broker's name in messages; a `Subject` adds its fields to log lines.
            client_id: The client id in the header of each request.
            request_timeout: The default time limit of a request, in seconds.
            max_response_bytes: The size limit of a response after the handshake.
            uses_tls: Whether the connection uses TLS. If the broker closes the connection early,
                `uses_tls` and `uses_sasl` determine the likely causes in the error text.
            uses_sasl: Whether the connection uses SASL.
        """
        self._loop = loop = asyncio.get_running_loop()
        self.peer = peer
        self.versions: BrokerVersions | None = None
        self.session_lifetime = 0.0
        """Seconds from authentication to the end of the session (KIP-368); 0 for no end."""
        self.session_end = math.inf
        """Loop time of the end of the session: without a re-authentication the broker closes the
        connection."""
        self.user = ""
        """The authenticated user, if the mechanism names one."""
        self.last_used = loop.time()
        self.closed_at = 0.0
        self.error: KafkaError | None = None
        """Why the connection ended; None while it is open."""
        self.is_open = False
        self.gate = SendGate(loop)
        self.waiting_since = math.inf
        """The loop time since which the next response is due: the latest of the send time of the
        oldest in-flight request, the last response, and the end of a throttle. Infinity without an
        in-flight request."""
        # `InFlightRequest.token` is the future of the response.
        self._exchange = Exchange(client_id)
        self._reader = FrameReader(min(max_response_bytes, _MAX_HANDSHAKE_BYTES))
        # asyncio reads into this buffer, and then calls `buffer_updated`.
        self.get_buffer = self._reader.get_buffer  # type: ignore[method-assign]
        self._max_response_bytes = max_response_bytes
        self._timer = DeadlineTimer(loop, self._on_deadline)
        self._transport: asyncio.Transport | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the transport has ended."""
        self.address: tuple[str, int] | None = None
        """The host and port of the node in the metadata at the time of the connect."""
        self.address_checked_at = -1
        """Epoch of the newest metadata snapshot that has this address for the node."""
        self._request_timeout = request_timeout
        self._security = (uses_tls, uses_sasl)
        self.traffic = NodeTraffic()
        """Counts of bytes and requests. After the connect, all connections to a broker share one
        object, see `Traffic.join`."""
        self._picked: dict[tuple[type[Request[Any]], int | None], int] = {}
        self.is_retired = False
        """Whether the pool uses another connection for new requests."""
        self.is_proven = False
        """Whether a request after the handshake got a response."""

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<BrokerConnection {self.peer} {state} in_flight={self.in_flight}>"

    # -- for the callers

    @property
    def in_flight(self) -> int:
        """The number of in-flight requests, including requests whose future was cancelled."""
        return len(self._exchange.in_flight)

    def awaited(self, *but: type[Request[Any]]) -> list[asyncio.Future[Any]]:
        """Return the futures of the in-flight requests, except cancelled futures and requests of
        the classes in `but`."""
        return [
            request.token
            for request in self._exchange.in_flight
            if request.request not in but and not request.token.done()
        ]

    def awaits(self, *requests: type[Request[Any]]) -> bool:
        """Return whether a request of one of these classes is in flight, cancelled or not."""
        # Called before each request: a loop costs less than `any` with a generator.
        for request in self._exchange.in_flight:  # noqa: SIM110
            if request.request in requests:
                return True
        return False

    @property
    def is_ready(self) -> bool:
        """Whether a request may be sent now: the handshake is done and the gate is open."""
        return self.is_open and self.versions is not None and self.gate.is_open

    def retire(self) -> None:
        """Close the connection as soon as no caller waits for a response.

        A retired connection still accepts requests: a producer keeps using it, for the order of its
        batches. A connection that has sent requests with acks=0 stays open, because the broker may
        not have read all of these requests yet.
        """
        self.is_retired = True
        self._close_if_left()

    def _close_if_left(self) -> None:
        if self.is_open and not self._exchange.has_silent and not self.awaited():
            self.close(
                KafkaConnectionError(f"{self.peer}: closed because the broker responded too slowly")
            )

    def pick(self, request: type[Request[Any]], max_version: int | None = None) -> int:
        """Return the newest version of `request`, up to `max_version`, that the client and the
        broker support.

        Raises UnsupportedVersionError without a common version, KafkaConnectionError before the end
        of the handshake.
        """
        version = self._picked.get((request, max_version))
        if version is None:
            if self.versions is None:
                raise KafkaConnectionError(f"{self.peer}: the handshake has not finished")
            try:
                version = self.versions.pick(request, max_version)
            except UnsupportedVersionError as error:
                raise UnsupportedVersionError(f"{self.peer}: {error.args[0]}") from None
            self._picked[request, max_version] = version
        return version

    def send_nowait(
        self,
        request: Request[R],
        version: int | None = None,
        timeout: float | None = None,
        on_response: Callable[[R], None] | None = None,
        *,
        authenticates: bool = False,
    ) -> asyncio.Future[R]:
        """Write `request`; return a future of the response. For acks=0 its result is None at once.

        The request is accepted even while the write buffer is full or the broker throttles (its
        bytes then wait in the write buffer). `timeout` is in seconds, by default `request_timeout`.
        Unless the future was cancelled, `on_response` is called with the response when it is read,
        before the tasks that wait for the future run; an Exception of `on_response` is set on the
        future. With `authenticates` the request is sent even during a re-authentication, and does
        not update `last_used`.

        Raises KafkaConnectionError on a closed connection, NodeNotReadyError while the connection
        re-authenticates, UnsupportedVersionError, and ValueError for a request that cannot be
        encoded in this version. A call that raises has sent nothing.
        """
        if self.gate.is_held and not authenticates:
            raise NodeNotReadyError(f"{self.peer}: the connection re-authenticates")
        transport = self._transport
        # A failed transport calls connection_lost() only in the next loop iteration.
        if not self.is_open or transport is None or transport.is_closing():
            raise self.closed_error()
        if version is None:
            version = self.pick(type(request))
        now = self._loop.time()
        deadline = now + (self._request_timeout if timeout is None else timeout)
        # Extend the deadline: the broker reads nothing until the end of the throttle.
        if self.gate.throttled_until > now:
            deadline += self.gate.throttled_until - now
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        expected = None
        if request.expects_response:
            expected = InFlightRequest(future, deadline, now, on_response)
        chunks = self._exchange.send(request, version, expected)
        # Count the request only after encoding, which may raise before anything is sent.
        if not authenticates:
            self.last_used = now
        self.traffic.requests += 1
        if len(chunks) == 1:
            self.traffic.bytes_out += len(chunks[0])
            transport.write(chunks[0])
        else:
            self.traffic.bytes_out += sum(map(len, chunks))
            _write(transport, chunks)
        if expected is None:
            # With acks=0 there is no response to wait for.
            future.set_result(None)
            return future
        if self.waiting_since == math.inf:
            throttled_until = self.gate.throttled_until
            self.waiting_since = throttled_until if throttled_until > now else now
        if deadline < self._timer.at:
            self._timer.arm(deadline)
        return future

    async def request(
        self,
        request: Request[R],
        *,
        version: int | None = None,
        timeout: float | None = None,
        on_response: Callable[[R], None] | None = None,
    ) -> R:
        """Wait until the gate is open, send `request`, and return its response (None with acks=0).

        Cancelling the call drops the response and leaves the connection open. Raises the errors of
        `send_nowait`, and RequestTimedOutError if the request waits at the gate, or for its
        response, longer than `timeout` seconds; the time of throttles does not count.
        """
        if not self.gate.is_open:
            await self.gate.wait(self._request_timeout if timeout is None else timeout)
        return await self.send_nowait(request, version, timeout, on_response)

    def send_raw(self, token: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Write a length-prefixed SASL token without a Kafka request (after SaslHandshake v0);
        return a future of the broker's token. `timeout` is in seconds. Raises KafkaConnectionError
        on a closed connection.
        """
        if not self.is_open or self._transport is None:
            raise self.closed_error()
        future: asyncio.Future[Any] = self._loop.create_future()
        now = self._loop.time()
        expected = InFlightRequest(future, now + timeout, now)
        chunks = self._exchange.send_raw(token, expected)
        self.traffic.requests += 1
        self.traffic.bytes_out += sum(map(len, chunks))
        if self.waiting_since == math.inf:
            self.waiting_since = max(now, self.gate.throttled_until)
        _write(self._transport, chunks)
        self._timer.arm(expected.deadline)
        return future

    def admit(self) -> None:
        """Increase the size limit of responses to `max_response_bytes`, because the peer is
        authenticated, or is accepted without authentication. Until then the limit is small, so that
        an unknown peer cannot make the client allocate much memory."""
        self._reader.allow(self._max_response_bytes)

    def begin_session(self, lifetime: float) -> None:
        """Set the end of the session after an authentication: in `lifetime` seconds; 0 means that
        the session has no end (KIP-368)."""
        self.session_lifetime = lifetime
        self.session_end = self._loop.time() + lifetime if lifetime else math.inf

    @property
    def last_deadline(self) -> float:
        """The latest deadline (loop time) of an in-flight request; 0 without one."""
        return self._exchange.last_deadline or 0.0

    async def drain(self, deadline: float) -> None:
        """Wait for the responses to the requests that are in flight now, at most until `deadline`
        (loop time)."""
        if waits := self.awaited():
            await asyncio.wait(waits, timeout=max(0.0, deadline - self._loop.time()))

    def closed_error(self) -> KafkaError:
        """Return a new exception with the reason why the connection is closed."""
        if self.error is None:
            return KafkaConnectionError(f"{self.peer}: connection is closed")
        return renewed(self.error)

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection. In-flight requests fail at once with `error`, by default a
        KafkaConnectionError.

        The bytes in the write buffer are still sent, for at most `request_timeout`.
        """
        self._end(error or KafkaConnectionError(f"{self.peer}: connection closed by this client"))
        # Close the transport once: after a second close() of a TLS transport, its abort() has no
        # effect.
        if self._transport is None or self._abort_timer is not None or self.closed.done():
            return
        self._transport.close()
        # A peer that does not read would keep the transport open: the remaining bytes and the TLS
        # close alert could not be sent.
        self._abort_timer = self._loop.call_later(self._request_timeout, self._transport.abort)

    def abort(self, error: KafkaError | None = None) -> None:
        """Close the connection as `close()` does, but discard the write buffer."""
        self._end(error or KafkaConnectionError(f"{self.peer}: connection closed by this client"))
        # abort() of an ended asyncio transport raises.
        if self._transport is not None and not self.closed.done():
            self._transport.abort()

    @property
    def remote(self) -> tuple[str, int] | None:
        """The IP address and port of the peer; None without a connection, and for a socket of
        another address family than IP."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to use `transport`. asyncio calls this method and the methods below."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def buffer_updated(self, nbytes: int) -> None:
        """Process the `nbytes` that asyncio has read: resolve the futures of requests whose
        responses are complete now. Abort the connection if the bytes are invalid."""
        # Ignore bytes that arrive after close(): their requests have already failed.
        if not self.is_open:
            return
        self.traffic.bytes_in += nbytes
        try:
            for frame in self._reader.advance(nbytes):
                if self._exchange.has_silent and self._exchange.maybe_skip(frame):
                    continue
                # `receive` removes the oldest in-flight request even if its future was cancelled:
                # the frame is the response to that request.
                self._on_response(*self._exchange.receive(frame))
            if self.is_retired:
                self._close_if_left()
        except KafkaError as error:
            failure = KafkaConnectionError(f"{self.peer}: {error}")
            failure.__cause__ = error
            self.abort(failure)
        except Exception as error:
            # asyncio would only log the error, and the requests would wait until their deadlines.
            log.exception("%s: unexpected error while reading", self.peer, extra=about(self.peer))
            self.abort(KafkaConnectionError(f"{self.peer}: unexpected {error!r} while reading"))
        except BaseException as error:
            # For example SystemExit in an `on_response`. Responses after this one may have been
            # read and are lost, so abort the connection in case the program continues.
            self.abort(self._interrupted(error))
            raise

    def pause_writing(self) -> None:
        """Close the gate, because the write buffer is full.

        Abort the connection if the buffer stays full for `request_timeout`: requests with acks=0
        have no deadline that would abort the connection.
        """
        self._timer.arm(self.gate.pause() + self._request_timeout)

    def resume_writing(self) -> None:
        """Open the gate, because the write buffer accepts bytes again."""
        self.gate.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all in-flight requests, because the transport has ended."""
        self._end(self._lost_error(exc))
        if self._transport is not None:
            # Python 3.10 warns about TLS transports that were not closed explicitly.
            self._transport.close()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        if not self.closed.done():
            self.closed.set_result(None)

    # -- inside

    def _on_response(self, request: InFlightRequest, response: Any) -> None:
        now = self._loop.time()
        self.traffic.responses += 1
        self.traffic.latency.observe((now - request.sent_at) * 1000)
        if self._exchange.surplus:
            surplus = self._exchange.take_surplus()
            log.debug("%s: ignored in a response: %s", self.peer, surplus, extra=about(self.peer))
        future: asyncio.Future[Any] = request.token
        try:
            self.is_proven = self.versions is not None
            throttle = getattr(response, "throttle_time_ms", 0)
            if throttle > 0:
                self.traffic.throttle_ms += throttle
                self._on_throttle(throttle, response)
            if self._exchange.in_flight:
                self.waiting_since = max(now, self.gate.throttled_until)
            else:
                self.waiting_since = math.inf
            if request.on_response is not None and not future.done():
                try:
                    request.on_response(response)
                except Exception as error:
                    _fail(future, error)
            if not future.done():
                future.set_result(response)
        except BaseException as error:
            # The request has left `_exchange`, so closing the connection would not fail its future.
            _fail(future, self._interrupted(error))
            raise

    def _interrupted(self, error: BaseException) -> KafkaConnectionError:
        return KafkaConnectionError(f"{self.peer}: {error!r} while a response was read")

    def _on_throttle(self, throttle_time_ms: int, response: Any) -> None:
        # KIP-219: since Kafka 2.0 (ApiVersions v2) the broker responds first and then stops reading
        # for this time. Older brokers delayed the response instead.
        if self.versions is not None:
            newest = self.versions.api_versions.get(_API_VERSIONS, (0, 0))[1]
        else:
            keys = getattr(response, "api_keys", ())
            newest = max((k.max_version for k in keys if k.api_key == _API_VERSIONS), default=0)
        if newest >= 2:
            text = "%s: throttled for %d ms"
            log.debug(text, self.peer, throttle_time_ms, extra=about(self.peer))
            self._exchange.postpone(self.gate.throttle(throttle_time_ms / 1000))

    def _on_deadline(self) -> None:
        if not self.is_open:
            return
        now = self._loop.time()
        due = self._exchange.next_deadline
        if due is not None and due <= now:
            self._expire(now)
            return
        stalled = self.gate.paused_since + self._request_timeout
        if stalled <= now:
            text = f"closed because the broker read no bytes for {self._request_timeout:g} s"
            self.abort(KafkaConnectionError(f"{self.peer}: {text}"))
            return
        self._timer.arm(stalled if due is None else min(due, stalled))

    def _expire(self, now: float) -> None:
        overdue = self._exchange.overdue(now)
        what = f"{overdue[0].name} got no response in time"
        # Overdue requests fail with RequestTimedOutError, the others with KafkaConnectionError.
        for request in overdue:
            _fail(request.token, RequestTimedOutError(f"{self.peer}: {what}"))
        self.abort(KafkaConnectionError(f"{self.peer}: closed because {what}"))

    def _lost_error(self, exc: Exception | None) -> KafkaConnectionError:
        text, is_explained = loss_reason(exc)
        if not self.is_proven and not is_explained:
            # No request after the handshake got a response.
            hint = early_close_hint(*self._security, has_versions=self.versions is not None)
            text += f" before it responded; {hint}"
        error = KafkaConnectionError(f"{self.peer}: {text}")
        # Callers may examine the cause, such as a TLS alert.
        error.__cause__ = exc
        return error

    def _end(self, error: KafkaError) -> None:
        """Refuse new requests, and fail each in-flight request with its own exception."""
        if self.error is not None:
            return
        # When either side ends the connection:
        # 1. The first error is kept. For example, a timeout aborts the transport, which then calls
        #    connection_lost(): this second call of _end() returns above.
        # 2. New requests are refused at once: the stream may have been cut in the middle of a
        #    request.
        # 3. All in-flight requests fail. The broker may have processed them; the callers decide
        #    whether to retry.
        # 4. The requests that wait at the gate are woken last. They find the connection closed
        #    (step 2) and are refused.
        # 5. The transport ends later. `closed` notifies the pool and the SessionKeeper.
        self.error = error
        self.is_open = False
        self.closed_at = self._loop.time()
        self._timer.cancel()
        for request in self._exchange.drain():
            if not request.token.done():
                request.token.set_exception(self.closed_error())
        self.waiting_since = math.inf
        # Free the buffer of an incomplete response: the error kept for `health()` may keep this
        # connection in memory by its traceback.
        self._reader.clear()
        self.gate.close()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _write(transport: asyncio.Transport, chunks: Sequence[Chunk]) -> None:
    """Write the chunks of a request; adjacent chunks below `_JOIN_BELOW` bytes are joined."""
    small: list[Chunk] = []
    for chunk in chunks:
        if len(chunk) < _JOIN_BELOW:
            small.append(chunk)
            continue
        if small:
            transport.write(b"".join(small))
            small.clear()
        transport.write(chunk)
    if small:
        transport.write(b"".join(small))
