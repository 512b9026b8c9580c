"""One connection to a broker: an asyncio protocol around `Exchange` and `FrameReader`."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar, cast

from aiokafka._log import about
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    RequestTimedOutError,
    renewed,
)
from aiokafka.net._traffic import NodeTraffic
from aiokafka.net.failures import early_close_hint, loss_reason
from aiokafka.protocol.exchange import Exchange
from aiokafka.protocol.framing import FrameReader
from aiokafka.protocol.schema import Request, Response
from aiokafka.protocol.versions import BrokerVersions

__all__ = ["BrokerConnection", "Chunk", "DeadlineTimer", "SendGate"]


# -- Reasons not to send: a full write buffer, a throttle, a re-authentication


# Limit of a throttle in seconds; the field of the responses allows up to 24 days.
_LONGEST_THROTTLE = 60.0


class SendGate:
    """Owns the reasons why a connection may not send now, and the futures of the requests that wait
    until it may."""

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
        """Whether the connection re-authenticates. Brokers serve no other requests meanwhile."""
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
        """Whether a request waits to be sent."""
        return bool(self._waiters)

    @property
    def paused_since(self) -> float:
        """Loop time since when the write buffer has been full without a throttle; infinity if the
        buffer is not full."""
        return max(self._paused_at, self.throttled_until) if self._is_paused else math.inf

    def pause(self) -> float:
        """Close the gate: the write buffer is full. Returns `paused_since`."""
        self._is_paused = True
        self._paused_at = self._loop.time()
        return self.paused_since

    def resume(self) -> None:
        """Open the gate: the write buffer takes bytes again."""
        self._is_paused = False
        self._wake()

    def hold(self) -> None:
        """Close the gate: a re-authentication starts."""
        self.is_held = True

    def release(self) -> None:
        """Open the gate: the re-authentication has succeeded or failed."""
        self.is_held = False
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def throttle(self, seconds: float) -> float:
        """Close the gate for the throttle time of a response, up to a limit; return the seconds."""
        granted = min(seconds, _LONGEST_THROTTLE)
        self.throttled_until = max(self.throttled_until, self._loop.time() + granted)
        return granted

    async def wait(self, limit: float) -> None:
        """Return when a request may be sent.

        Raises RequestTimedOutError after `limit` seconds. The time of throttles does not count,
        including throttles that start during the wait, by responses to in-flight requests.
        """
        now = self._loop.time()
        # A loop, because one reason may begin when another one ends.
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
        """Wake the waiting requests; they find the connection closed."""
        self.throttled_until = 0.0
        self._is_paused = False
        self.release()

    async def _wait_once(self, limit: float) -> None:
        """Wait until a reason ends, at most `limit` seconds."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait((waiter,), timeout=limit)
        finally:
            # Waits usually end by timeout, and would leave their futures behind.
            self._waiters.pop(waiter, None)
            waiter.cancel()


class DeadlineTimer:
    """One timer for the earliest of many deadlines. Arming it for a later deadline costs one
    comparison.

    `on_due` runs in the context variables of the constructor's caller. Otherwise the context of one
    request would be used for the timeouts of others.
    """

    __slots__ = ("_context", "_handle", "_loop", "_on_due", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._context = copy_context()
        self._handle: asyncio.TimerHandle | None = None
        self.at = math.inf
        """Loop time of the next call of `on_due`; infinity when none is due."""

    def arm(self, deadline: float) -> None:
        """Call `on_due` at `deadline`, or at the armed deadline if that is earlier."""
        if deadline >= self.at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.at = deadline
        self._handle = self._loop.call_at(deadline, self._fire, context=self._context)

    def cancel(self) -> None:
        """Cancel the call of `on_due`."""
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

# Smaller chunks are joined: copying them costs less than another system call (or TLS record).
# Larger ones are written one by one, without writelines(): before CPython 3.12 it joins all chunks,
# and in 3.12 and 3.13 it never calls pause_writing(), so there would be no back-pressure.
_JOIN_BELOW = 65536

_API_VERSIONS = 18

# Limit of a response during the handshake, while the peer may be no Kafka broker.
_MAX_HANDSHAKE_BYTES = 1024 * 1024


class BrokerConnection(asyncio.BufferedProtocol):
    """Sends requests and receives responses, in the order of the requests.

    Owns: its `Exchange` (correlation ids, deadlines), its transport and its `SendGate`. Every
    future that it returns gets the response, RequestTimedOutError at its deadline, or
    KafkaConnectionError when the connection ends. A request that times out closes the connection,
    because its response may still come. A *cancelled* request only drops its response; other
    requests are not affected.
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
            uses_tls: Explains an early close in errors, as does `uses_sasl`.
        """
        self._loop = loop = asyncio.get_running_loop()
        self.peer = peer
        self.versions: BrokerVersions | None = None
        self.session_lifetime = 0.0
        """Seconds from an authentication until the broker requires another (KIP-368); 0 = never."""
        self.session_end = math.inf
        """Loop time at which the broker ends the session unless the client re-authenticates."""
        self.user = ""
        """The authenticated user, if the mechanism names one."""
        self.last_used = loop.time()
        self.closed_at = 0.0
        self.error: KafkaError | None = None
        """Why the connection ended; None while it is open."""
        self.is_open = False
        self.gate = SendGate(loop)
        self._exchange: Exchange[asyncio.Future[Any]] = Exchange(client_id)
        self._hooks: dict[asyncio.Future[Any], Callable[[Any], None]] = {}
        self._reader = FrameReader(min(max_response_bytes, _MAX_HANDSHAKE_BYTES))
        self._max_response_bytes = max_response_bytes
        self._timer = DeadlineTimer(loop, self._on_deadline)
        self._transport: asyncio.Transport | None = None
        self._goodbye: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the transport is gone."""
        self.address: tuple[str, int] | None = None
        """Host and port that it leads to, by the metadata at the time of the connect."""
        self.address_checked_at = -1
        """Epoch of the newest metadata snapshot that has this address for the node."""
        self._request_timeout = request_timeout
        self._security = (uses_tls, uses_sasl)
        self.traffic = NodeTraffic()
        """Counts bytes and requests; shared by all connections to a broker once the pool has it."""
        self._sent_at: deque[float] = deque()
        self._heard_at = 0.0
        self.is_retired = False
        """Whether new requests use another connection."""
        self.is_proven = False
        """Whether a request after the handshake got a response."""

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<BrokerConnection {self.peer} {state} in_flight={self.in_flight}>"

    # -- for the callers

    @property
    def in_flight(self) -> int:
        """The number of in-flight requests, including cancelled ones."""
        return len(self._exchange)

    def awaited(self, *but: type[Request[Any]]) -> list[asyncio.Future[Any]]:
        """Return the futures of the in-flight requests, except cancelled ones and the classes in
        `but`."""
        return [future for future in self._exchange.tokens(*but) if not future.done()]

    def awaits(self, *requests: type[Request[Any]]) -> bool:
        """Return whether a request of one of these classes is in flight (maybe cancelled)."""
        return self._exchange.awaits(*requests)

    @property
    def is_ready(self) -> bool:
        """Whether a request may be sent now: the handshake is done and the gate is open."""
        return self.is_open and self.versions is not None and self.gate.is_open

    @property
    def waiting_since(self) -> float:
        """Loop time since when the broker could have sent the next response: the latest of the send
        time of the oldest in-flight request, the last response, and the end of a throttle. Infinity
        without an in-flight request."""
        if not self._exchange:
            return math.inf
        return max(self._sent_at[0], self._heard_at, self.gate.throttled_until)

    def retire(self) -> None:
        """Close the connection as soon as no caller waits for a response on it.

        It still takes requests: a producer keeps using it, for the order of its batches. A
        connection that has carried requests with acks=0 stays open, because the broker may not have
        read all of them yet.
        """
        self.is_retired = True
        self._close_if_left()

    def _close_if_left(self) -> None:
        if not self.is_retired or self._exchange.has_silent:
            return
        if self.is_open and not self.awaited():
            self.close(KafkaConnectionError(f"{self.peer}: closed because it was too slow"))

    def pick(self, request: type[Request[Any]], max_version: int | None = None) -> int:
        """Return the version in which to send `request`.

        Raises UnsupportedVersionError when there is none in common.
        """
        if self.versions is None:
            raise KafkaConnectionError(f"{self.peer}: the handshake has not finished")
        return self.versions.pick(request, max_version)

    def send_nowait(
        self,
        request: Request[R],
        version: int | None = None,
        timeout: float | None = None,
        on_response: Callable[[R], None] | None = None,
    ) -> asyncio.Future[R]:
        """Write `request`; the future gets the response, or None at once if there will be none.

        Accepts the request even while the write buffer is full or the broker throttles (the bytes
        then wait in the write buffer). `timeout` is in seconds, by default `request_timeout`.
        `on_response` is called with the response when it is read, before the tasks that wait for
        the future run, unless the future was cancelled; the future gets an exception that
        `on_response` raises. Raises KafkaConnectionError when closed, NodeNotReadyError while the
        connection re-authenticates, UnsupportedVersionError, and ValueError when the request cannot
        be encoded in this version; then nothing is sent.
        """
        if self.gate.is_held:
            raise NodeNotReadyError(f"{self.peer}: the connection re-authenticates")
        self.last_used = now = self._loop.time()
        future = self._send(request, version, timeout, now)
        if on_response is not None and not future.done():
            self._hooks[future] = on_response
        return future

    def send_through(
        self, request: Request[R], version: int | None = None, timeout: float | None = None
    ) -> asyncio.Future[R]:
        """Do the same as `send_nowait` for a request of an authentication: even at a held gate, and
        without counting as use of the connection."""
        return self._send(request, version, timeout, self._loop.time())

    def _send(
        self, request: Request[R], version: int | None, timeout: float | None, now: float
    ) -> asyncio.Future[R]:
        transport = self._transport
        # A failed transport calls connection_lost() only in the next loop iteration.
        if not self.is_open or transport is None or transport.is_closing():
            raise self.closed_error()
        if version is None:
            version = self.pick(type(request))
        deadline = now + (self._request_timeout if timeout is None else timeout)
        # The broker reads nothing until the end of the throttle.
        if self.gate.throttled_until > now:
            deadline += self.gate.throttled_until - now
        future: asyncio.Future[Any] = self._loop.create_future()
        chunks = self._exchange.send(request, version, deadline, future)
        is_answered = request.expects_response
        # After the encoding, which may raise: then nothing was sent.
        self._count(chunks, now if is_answered else None)
        if len(chunks) == 1:
            transport.write(chunks[0])
        else:
            _write(transport, chunks)
        # With acks=0 there is no response to wait for.
        if not is_answered:
            future.set_result(None)
        elif deadline < self._timer.at:
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
        """Send `request` as soon as the connection may send, and return its response (None with
        acks=0).

        Cancelling the call drops the response and leaves the connection open. Raises as
        `send_nowait`, and RequestTimedOutError after `timeout` seconds; the time of throttles does
        not count.
        """
        if not self.gate.is_open:
            await self.gate.wait(self._request_timeout if timeout is None else timeout)
        return await self.send_nowait(request, version, timeout, on_response)

    def send_raw(self, token: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Write a length-prefixed token outside Kafka's protocol (SaslHandshake v0).

        The future gets the broker's token.
        """
        if not self.is_open or self._transport is None:
            raise self.closed_error()
        future: asyncio.Future[Any] = self._loop.create_future()
        deadline = self._loop.time() + timeout
        chunks = self._exchange.send_raw(token, deadline, future)
        self._count(chunks, self._loop.time())
        _write(self._transport, chunks)
        self._timer.arm(deadline)
        return future

    def _count(self, chunks: Sequence[Chunk], sent_at: float | None) -> None:
        """Count a request; `sent_at` (loop time) is None with acks=0."""
        self.traffic.requests += 1
        self.traffic.bytes_out += sum(map(len, chunks))
        if sent_at is not None:
            self._sent_at.append(sent_at)

    def join(self, traffic: NodeTraffic) -> None:
        """Add the counts so far to `traffic`, and count there from now on."""
        traffic.absorb(self.traffic)
        self.traffic = traffic

    def admit(self) -> None:
        """Raise the limit of responses to the configured length: the handshake is done."""
        self._reader.allow(self._max_response_bytes)

    def begin_session(self, lifetime: float) -> None:
        """Start a session of `lifetime` seconds (0 = unlimited): the credentials were accepted."""
        self.session_lifetime = lifetime
        self.session_end = self._loop.time() + lifetime if lifetime else math.inf

    @property
    def last_deadline(self) -> float:
        """The latest deadline (loop time) of an in-flight request; 0 without one."""
        return self._exchange.last_deadline or 0.0

    async def drain(self, deadline: float) -> None:
        """Return when all currently in-flight requests have ended, or at `deadline` (loop time)."""
        if waits := self.awaited():
            await asyncio.wait(waits, timeout=max(0.0, deadline - self._loop.time()))

    def closed_error(self) -> KafkaError:
        """Return a new exception with the reason why the connection is closed."""
        if self.error is None:
            return KafkaConnectionError(f"{self.peer}: connection is closed")
        return renewed(self.error)

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection: in-flight requests fail at once.

        The bytes in the write buffer are still sent, for at most `request_timeout`.
        """
        self._end(error or KafkaConnectionError(f"{self.peer}: connection closed by this client"))
        if self._transport is None:
            return
        self._transport.close()
        if self._goodbye is None and not self.closed.done():
            # A peer that does not read takes neither the remaining bytes nor the TLS close alert.
            self._goodbye = self._loop.call_later(self._request_timeout, self._transport.abort)

    def abort(self, error: KafkaError | None = None) -> None:
        """Do the same as `close()`, and discard the write buffer."""
        self._end(error or KafkaConnectionError(f"{self.peer}: connection closed by this client"))
        # abort() of an ended asyncio transport raises.
        if self._transport is not None and not self.closed.done():
            self._transport.abort()

    @property
    def remote(self) -> tuple[str, int] | None:
        """IP address and port of the peer, None when not connected."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return None if name is None else (str(name[0]), int(name[1]))

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the connection on the transport. asyncio calls this and the methods below."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Resolve the requests whose responses are complete."""
        # Bytes that arrive after close(): their requests have already failed.
        if not self.is_open:
            return
        self.traffic.bytes_in += nbytes
        try:
            for frame in self._reader.advance(nbytes):
                self._on_frame(frame)
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
            # SystemExit, for example. The program may go on, but the bytes that were read are lost.
            self.abort(self._interrupted(error))
            raise

    def pause_writing(self) -> None:
        """Close the gate: the write buffer is full. A timeout then closes the connection, because
        requests with acks=0 have no deadline of their own."""
        self._timer.arm(self.gate.pause() + self._request_timeout)

    def resume_writing(self) -> None:
        """Open the gate: the write buffer takes bytes again."""
        self.gate.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all in-flight requests: the transport has ended."""
        self._end(self._lost_error(exc))
        if self._transport is not None:
            # Python 3.10 warns about TLS transports that were not closed explicitly.
            self._transport.close()
        if self._goodbye is not None:
            self._goodbye.cancel()
            self._goodbye = None
        if not self.closed.done():
            self.closed.set_result(None)

    # -- inside

    def _on_frame(self, frame: bytes | bytearray) -> None:
        if self._exchange.has_silent and self._exchange.maybe_skip(frame):
            return
        # Removes the request from the queue even if its caller was cancelled: the next response
        # belongs to the next request.
        received = self._exchange.receive(frame)
        # Responses come in the order of the requests, and so do the send times.
        self._heard_at = self._loop.time()
        latency = self._heard_at - self._sent_at.popleft()
        self.traffic.responses += 1
        self.traffic.latency.observe(latency * 1000)
        if received is None:
            return
        if self._exchange.surplus:
            surplus = self._exchange.take_surplus()
            log.debug("%s: not looked at: %s", self.peer, surplus, extra=about(self.peer))
        future, response = received
        try:
            self._resolve(future, response)
        except BaseException as error:
            # The request is no longer in the queue, so closing the connection does not fail it.
            _fail(future, self._interrupted(error))
            raise

    def _resolve(self, future: asyncio.Future[Any], response: Any) -> None:
        self.is_proven = self.versions is not None
        throttle = getattr(response, "throttle_time_ms", 0)
        if throttle > 0:
            self.traffic.throttle_ms += throttle
            self._on_throttle(throttle, response)
        # Also for cancelled requests, whose hooks would accumulate otherwise.
        hook = self._hooks.pop(future, None) if self._hooks else None
        if future.done():
            return
        if hook is not None:
            try:
                hook(response)
            except Exception as error:
                _fail(future, error)
                return
        if not future.done():
            future.set_result(response)

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
            text = f"closed because it took no bytes for {self._request_timeout:g} s"
            self.abort(KafkaConnectionError(f"{self.peer}: {text}"))
            return
        self._timer.arm(stalled if due is None else min(due, stalled))

    def _expire(self, now: float) -> None:
        name = self._exchange.overdue(now)
        # Overdue requests fail with RequestTimedOutError, the others with KafkaConnectionError.
        for future in self._exchange.overdue_tokens(now):
            if not future.done():
                future.set_exception(
                    RequestTimedOutError(f"{self.peer}: {name} got no response in time")
                )
        self.abort(
            KafkaConnectionError(f"{self.peer}: closed because {name} got no response in time")
        )

    def _lost_error(self, exc: Exception | None) -> KafkaConnectionError:
        text, is_explained = loss_reason(exc)
        if not self.is_proven and not is_explained:
            # At most the requests of the handshake got responses.
            hint = early_close_hint(*self._security, is_greeted=self.versions is not None)
            text += f" before it responded; {hint}"
        error = KafkaConnectionError(f"{self.peer}: {text}")
        # Callers may examine the exception, such as a TLS alert.
        error.__cause__ = exc
        return error

    def _end(self, error: KafkaError) -> None:
        """Refuse new requests, and fail each in-flight request with its own exception."""
        if self.error is not None:
            return
        # When either side ends the connection:
        # 1. The first error counts. A timeout aborts the transport, which then calls
        #    connection_lost(); these later calls of _end() return above.
        # 2. New requests are refused at once: the stream may have been cut in the middle of a
        #    request.
        # 3. All in-flight requests fail. The broker may have acted on them; their callers decide
        #    what to do.
        # 4. The requests that wait at the gate are woken last. They find the connection closed (2)
        #    and are refused.
        # 5. The transport ends later. `closed` notifies the pool and the SessionKeeper.
        self.error = error
        self.is_open = False
        self.closed_at = self._loop.time()
        self._timer.cancel()
        for future in self._exchange.drain():
            if not future.done():
                future.set_exception(self.closed_error())
        self._hooks.clear()
        # Free the buffer of an incomplete response: the error kept for `health()` may keep this
        # connection in memory by its traceback.
        self._reader = FrameReader(0)
        self.gate.close()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _write(transport: asyncio.Transport, chunks: Sequence[Chunk]) -> None:
    """Write a request: small chunks joined, large ones as they are."""
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
