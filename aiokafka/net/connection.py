"""One stream to one broker: an asyncio transport on one side, `Exchange` and `FrameReader` on the
other."""

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


# -- When a connection may send: not with a full write buffer, a throttle, or while it


# A longer throttle is not believed (the field allows up to 24 days).
_LONGEST_THROTTLE = 60.0


class SendGate:
    """Owns the three reasons not to send, and the futures of the requests that wait for their
    end."""

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
        """Whether the connection re-authenticates: a broker serves nothing else then."""
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
        """Loop time since when the write buffer is full, though the broker does read; infinity if
        it is not."""
        return max(self._paused_at, self.throttled_until) if self._is_paused else math.inf

    def pause(self) -> float:
        """Close the gate: the write buffer is full. Return the loop time since when it counts."""
        self._is_paused = True
        self._paused_at = self._loop.time()
        return self.paused_since

    def resume(self) -> None:
        """Open the gate: the write buffer has room again."""
        self._is_paused = False
        self._wake()

    def hold(self) -> None:
        """Close the gate: an authentication begins on the open connection."""
        self.is_held = True

    def release(self) -> None:
        """Open the gate: the authentication is over, or failed."""
        self.is_held = False
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def throttle(self, seconds: float) -> float:
        """Close the gate for the `seconds` that the broker asked for; return how many are
        granted."""
        granted = min(seconds, _LONGEST_THROTTLE)
        self.throttled_until = max(self.throttled_until, self._loop.time() + granted)
        return granted

    async def wait(self, limit: float) -> None:
        """Return once a request may be sent.

        Raises RequestTimedOutError after `limit` seconds, to which the time of all throttles is
        added: also of those that begin meanwhile, with responses to requests in flight.
        """
        now = self._loop.time()
        # There are three reasons, and one may begin when another ends.
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
        """Wake the requests that wait: nothing will ever be sent again."""
        self.throttled_until = 0.0
        self._is_paused = False
        self.release()

    async def _wait_once(self, limit: float) -> None:
        """Wait for a reason to end, for so many seconds at most."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait((waiter,), timeout=limit)
        finally:
            # Most waits end by timeout: without this each would leave its future here.
            self._waiters.pop(waiter, None)
            waiter.cancel()


class DeadlineTimer:
    """One timer for the earliest of many deadlines. Arming it for a later one costs a comparison.

    `on_due` runs in the context variables of the constructor's call: those of the calls that arm it
    would pass from one deadline to the next.
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
        """Call `on_due` at `deadline`, or earlier if that is already planned."""
        if deadline >= self.at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.at = deadline
        self._handle = self._loop.call_at(deadline, self._fire, context=self._context)

    def cancel(self) -> None:
        """Cancel the planned call."""
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

# Smaller chunks are joined: copying them costs less than one more system call (or TLS record).
# Larger ones are written one by one and not by writelines(): before CPython 3.12 that joins
# everything, and in 3.12 and 3.13 it never calls pause_writing(), so callers would never wait.
_JOIN_BELOW = 65536

_API_VERSIONS = 18

# The longest response of a broker before the handshake, when it has not proved anything.
_MAX_HANDSHAKE_BYTES = 1024 * 1024


class BrokerConnection(asyncio.BufferedProtocol):
    """Sends requests and receives responses, in the order of the requests.

    Owns: its `Exchange` (correlation, deadlines), its transport and its `SendGate`. Every future
    that it returns resolves: with the response, with RequestTimedOutError at its deadline, or with
    KafkaConnectionError when the stream ends. A request that times out closes the connection,
    because its stream cannot be trusted any more. A *cancelled* one only drops its response, so its
    neighbours are not affected.
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

        `peer` names the broker in messages, and is a `Subject` where lines of the log are to have
        fields. Security settings explain an early close.
        """
        self._loop = loop = asyncio.get_running_loop()
        self.peer = peer
        self.versions: BrokerVersions | None = None
        self.session_lifetime = 0.0
        """Seconds from an authentication until the broker requires another (KIP-368); 0 = never."""
        self.session_end = math.inf
        """Loop time at which the broker stops to serve this connection."""
        self.user = ""
        """The authenticated user, as far as this side knows the name."""
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
        """What it carries; those of its broker once the pool has it."""
        self._sent_at: deque[float] = deque()
        self._heard_at = 0.0
        self.is_retired = False
        """Whether new requests are to take another connection."""
        self.is_proven = False
        """Whether a request after the handshake got a response."""

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<BrokerConnection {self.peer} {state} in_flight={self.in_flight}>"

    # -- for the callers

    @property
    def in_flight(self) -> int:
        """Requests in flight, cancelled ones included."""
        return len(self._exchange)

    def awaited(self, *but: type[Request[Any]]) -> list[asyncio.Future[Any]]:
        """Return the futures of the requests in flight that are neither cancelled nor of a class in
        `but`."""
        return [future for future in self._exchange.tokens(*but) if not future.done()]

    def awaits(self, *requests: type[Request[Any]]) -> bool:
        """Return whether a request of one of these classes is in flight, cancelled or not."""
        return self._exchange.awaits(*requests)

    @property
    def is_ready(self) -> bool:
        """Whether a request may be sent now: the handshake is done, and the gate open."""
        return self.is_open and self.versions is not None and self.gate.is_open

    @property
    def waiting_since(self) -> float:
        """Loop time since when the broker owes the oldest response, but not before its last
        response or the end of a throttle; infinity without a request in flight."""
        if not self._exchange:
            return math.inf
        return max(self._sent_at[0], self._heard_at, self.gate.throttled_until)

    def retire(self) -> None:
        """Leave the connection to those that use it, and close it once none waits for a response.

        It still takes requests: a producer keeps the order of its batches by one connection. With
        acks=0 nothing waits for a response, and the broker may still have to read some of them, so
        that connection stays open.
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

        Accepts it even while the write buffer is full or the broker throttles (the bytes then wait
        in the write buffer). `timeout` is in seconds, by default `request_timeout`. `on_response`
        is called with the response when it is read, before any task runs that waits for it, unless
        the future was cancelled; the future gets what it raises. Raises
        KafkaConnectionError when closed, NodeNotReadyError while the connection re-authenticates,
        UnsupportedVersionError, and ValueError when the request cannot be encoded in this version;
        nothing is sent then.
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
        """Do the same as `send_nowait`, past a held gate and without counting as use.

        For the authentication itself.
        """
        return self._send(request, version, timeout, self._loop.time())

    def _send(
        self, request: Request[R], version: int | None, timeout: float | None, now: float
    ) -> asyncio.Future[R]:
        transport = self._transport
        # A transport that has failed reports it only in the next turn of the loop.
        if not self.is_open or transport is None or transport.is_closing():
            raise self.closed_error()
        if version is None:
            version = self.pick(type(request))
        deadline = now + (self._request_timeout if timeout is None else timeout)
        # The broker reads nothing until then, which is no fault of the request.
        if self.gate.throttled_until > now:
            deadline += self.gate.throttled_until - now
        future: asyncio.Future[Any] = self._loop.create_future()
        chunks = self._exchange.send(request, version, deadline, future)
        is_answered = request.expects_response
        # After the encoding, which may refuse the request: what was not sent has no place in the
        # queue.
        self._count(chunks, now if is_answered else None)
        if len(chunks) == 1:
            transport.write(chunks[0])
        else:
            _write(transport, chunks)
        # With acks=0 there will be no response, so there is nothing to wait for.
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
        """Send `request` once the connection may send, and return its response (None if it has
        none).

        Cancelling the call drops the response and leaves the connection as it is. Raises as
        `send_nowait`, and RequestTimedOutError after `timeout` seconds; time spent throttled is
        added to it.
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
        """Count a request; `sent_at` (loop time) is None if it gets no response."""
        self.traffic.requests += 1
        self.traffic.bytes_out += sum(map(len, chunks))
        if sent_at is not None:
            self._sent_at.append(sent_at)

    def join(self, traffic: NodeTraffic) -> None:
        """Count from now on, and what was counted before, for the broker that this leads to."""
        traffic.absorb(self.traffic)
        self.traffic = traffic

    def admit(self) -> None:
        """Allow responses of the configured length: the handshake is over."""
        self._reader.allow(self._max_response_bytes)

    def begin_session(self, lifetime: float) -> None:
        """Begin a session of `lifetime` seconds (0 = for ever): the credentials were accepted."""
        self.session_lifetime = lifetime
        self.session_end = self._loop.time() + lifetime if lifetime else math.inf

    @property
    def last_deadline(self) -> float:
        """Loop time until which a request in flight may wait for its response; 0 without any."""
        return self._exchange.last_deadline or 0.0

    async def drain(self, deadline: float) -> None:
        """Return when every request in flight now has ended, or at `deadline` (loop time)."""
        if waits := self.awaited():
            await asyncio.wait(waits, timeout=max(0.0, deadline - self._loop.time()))

    def closed_error(self) -> KafkaError:
        """Return a new error that says why nothing can be sent."""
        if self.error is None:
            return KafkaConnectionError(f"{self.peer}: connection is closed")
        return renewed(self.error)

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection: requests in flight fail at once.

        Bytes that were written before are still sent if that is possible within `request_timeout`.
        """
        self._end(error or KafkaConnectionError(f"{self.peer}: connection closed by this client"))
        if self._transport is None:
            return
        self._transport.close()
        if self._goodbye is None and not self.closed.done():
            # A silent peer takes neither the rest of the bytes nor TLS' good-bye.
            self._goodbye = self._loop.call_later(self._request_timeout, self._transport.abort)

    def abort(self, error: KafkaError | None = None) -> None:
        """Do the same as `close()`, without sending what waits in the write buffer."""
        self._end(error or KafkaConnectionError(f"{self.peer}: connection closed by this client"))
        # asyncio's transports fail when they are aborted after they have ended.
        if self._transport is not None and not self.closed.done():
            self._transport.abort()

    @property
    def remote(self) -> tuple[str, int] | None:
        """IP address and port of the other side, None when not connected."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return None if name is None else (str(name[0]), int(name[1]))

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. Called by asyncio, like the methods below."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Give the responses that are complete to their requests."""
        # Closed by us, with bytes still coming: their requests have failed already.
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
            # asyncio would only log it, and the waiters would never learn of it.
            log.exception("%s: unexpected error while reading", self.peer, extra=about(self.peer))
            self.abort(KafkaConnectionError(f"{self.peer}: unexpected {error!r} while reading"))
        except BaseException as error:
            # The program is told to end, and may go on all the same. What was read is lost.
            self.abort(self._interrupted(error))
            raise

    def pause_writing(self) -> None:
        """Close the gate: the write buffer is full. A request without a response has no deadline, a
        full buffer has one: a broker that takes no bytes is gone."""
        self._timer.arm(self.gate.pause() + self._request_timeout)

    def resume_writing(self) -> None:
        """Open the gate: the write buffer has room again."""
        self.gate.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail everything in flight: the transport has ended."""
        self._end(self._lost_error(exc))
        if self._transport is not None:
            # Python 3.10 warns of TLS transports that have ended by themselves, or were aborted.
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
        # Out of the queue first, also if its caller is gone: the next response belongs to the next
        # request.
        received = self._exchange.receive(frame)
        # In the order of the requests, as the responses come.
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
            # It is in flight no more, so it does not fail with the connection.
            _fail(future, self._interrupted(error))
            raise

    def _resolve(self, future: asyncio.Future[Any], response: Any) -> None:
        self.is_proven = self.versions is not None
        throttle = getattr(response, "throttle_time_ms", 0)
        if throttle > 0:
            self.traffic.throttle_ms += throttle
            self._on_throttle(throttle, response)
        # Taken out even if nothing waits any more, or the hooks of cancelled requests would add up.
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
        # KIP-219: since Kafka 2.0 (ApiVersions v2) the broker responds first and then reads nothing
        # for that long; older brokers waited before they responded.
        if self.versions is not None:
            newest = self.versions.api_versions.get(_API_VERSIONS, (0, 0))[1]
        else:
            told = getattr(response, "api_keys", ())
            newest = max((k.max_version for k in told if k.api_key == _API_VERSIONS), default=0)
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
        # These hear that they were late. Those behind them were not, and fail because the
        # connection ends.
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
            # Only the handshake got responses, if anything.
            hint = early_close_hint(*self._security, is_greeted=self.versions is not None)
            text += f" before it responded; {hint}"
        error = KafkaConnectionError(f"{self.peer}: {text}")
        # A TLS alert, for example: those who handle it want more than its text.
        error.__cause__ = exc
        return error

    def _end(self, error: KafkaError) -> None:
        """Refuse new requests and fail those in flight, each with an exception of its own."""
        if self.error is not None:
            return
        # What happens to requests when a connection ends, whichever end began it:
        # 1. The first reason counts. What follows from it (a timeout leads to an abort, that to the
        #    loss of the transport) comes here again, and changes nothing.
        # 2. It is closed for new requests at once: they are refused with the reason, and nothing is
        #    written to a stream that may have been cut in the middle of a request.
        # 3. All requests in flight fail, each with an exception of its own. Whether the broker has
        #    acted on them is not known, and their callers decide what that means.
        # 4. Those that wait at the gate are woken last. They find it closed by 2, and are refused.
        # 5. The transport ends later, by itself or cut. `closed` tells the pool and the
        #    SessionKeeper.
        self.error = error
        self.is_open = False
        self.closed_at = self._loop.time()
        self._timer.cancel()
        for future in self._exchange.drain():
            if not future.done():
                future.set_exception(self.closed_error())
        self._hooks.clear()
        # The half of a large response goes now: the error that is kept for `health()` may refer to
        # this connection by its traceback, for as long as there is no other error.
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
