"""The bytes of one connection: frames, headers, and responses matched to in-flight requests.

Does no I/O and reads no clock. A broker responds to the requests of a connection in order, so the
in-flight requests are a queue. A response that does not belong to the head of the queue is a
protocol error.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokafka import _cpython
from aiokafka.errors import CorrelationIdError, KafkaProtocolError
from aiokafka.protocol.compiler import MALFORMED, UNENCODABLE, codec, explain
from aiokafka.protocol.primitives import skip_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.protocol.compiler import Codec
    from aiokafka.protocol.schema import Request

# -- The headers of requests and responses

# The header of a request has version 1, the header of a response version 0. In flexible versions of
# an API these are versions 2 and 1, which have tagged fields.


API_VERSIONS_KEY = 18

_REQUEST = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")


class RequestHeader:
    """The header of a request; the body follows at `body_offset` of the frame."""

    __slots__ = ("api_key", "api_version", "body_offset", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_offset: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset


def is_flexible(request: type[Request[Any]], version: int) -> bool:
    """Return whether this version of an API has compact lengths and tagged fields."""
    return request.FLEXIBLE is not None and version >= request.FLEXIBLE


def has_response_tags(request: type[Request[Any]], version: int) -> bool:
    """Return whether the response header has tagged fields.

    The header of an ApiVersions response never has tagged fields, because the client does not know
    the broker's versions yet (KIP-511).
    """
    return request.API_KEY != API_VERSIONS_KEY and is_flexible(request, version)


def encode_response_header(request: type[Request[Any]], version: int, correlation_id: int) -> bytes:
    """Encode the header of a response, for a broker."""
    head = _INT32.pack(correlation_id)
    return head + b"\0" if has_response_tags(request, version) else head


def peek_request_header(frame: bytes | bytearray) -> tuple[int, int, int]:
    """Return API key, version and correlation id of a request. Raises KafkaProtocolError."""
    if len(frame) < 8:
        raise KafkaProtocolError(f"a request of {len(frame)} bytes has no header")
    api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
    return api_key, version, correlation_id


def decode_request_header(
    request: type[Request[Any]], version: int, frame: bytes | bytearray
) -> RequestHeader:
    """Decode the header of a request, for a broker. Raises KafkaProtocolError."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
        offset = _REQUEST.size + max(length, 0)
        if offset > len(frame) or length < -1:
            raise KafkaProtocolError(f"a client id of {length} bytes does not fit in the request")
        client_id = None if length < 0 else frame[_REQUEST.size : offset].decode()
        if is_flexible(request, version):
            offset = skip_tags(frame, offset, len(frame))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise KafkaProtocolError(f"malformed request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, offset)


# -- Frames: a length (int32) and the content

# For `asyncio.BufferedProtocol`: the event loop reads into a buffer of the FrameReader. Small
# frames are read into one scratch buffer. A large frame gets its own buffer, after its length was
# checked, so that the frame is not copied again.


class FrameTooLargeError(KafkaProtocolError):
    """A response exceeds the size limit."""


SCRATCH_BYTES = 65536

# An incomplete frame of more bytes than this gets its own buffer.
_LARGE = 8192

# First bytes of other protocols. Read as the length of a frame, each of them is at least
# `_FOREIGN_FROM` (350 MB), so a valid smaller length is not compared with them.
_FOREIGN = {
    b"\x15\x03": "it looks like a TLS alert: the port speaks TLS, use security_protocol SSL",
    b"\x16\x03": "it looks like a TLS handshake: the peer speaks TLS, this side does not",
    b"HTTP": "it looks like HTTP: is this the port of a web server?",
    b"GET ": "it looks like an HTTP request",
    b"POST": "it looks like an HTTP request",
    b"SSH-": "it looks like SSH: is this the right port?",
}
_FOREIGN_FROM = 0x15030000


class FrameReader:
    """Splits bytes into frames: write bytes to `get_buffer()`, then call `advance` with the count.

    After an error the reader cannot be used any more.

    Args:
        max_frame_bytes: A longer frame raises KafkaProtocolError before memory is allocated.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._scratch = bytearray(SCRATCH_BYTES)
        self._scratch_view = memoryview(self._scratch)
        self._pending = 0  # number of bytes in the scratch buffer: the beginning of a frame
        self._frame: bytearray | None = None  # the large frame being read
        self._target = self._scratch_view
        self._filled = 0

    def allow(self, max_frame_bytes: int) -> None:
        """Change the limit for later frames."""
        self._max_frame_bytes = max_frame_bytes

    def clear(self) -> None:
        """Drop the bytes of an incomplete frame."""
        self._frame = None
        self._target = self._scratch_view
        self._pending = 0

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the buffer for the next received bytes; it has at least one byte. `sizehint`, an
        argument of asyncio, is ignored."""
        if self._frame is None:
            return self._scratch_view[self._pending :] if self._pending else self._scratch_view
        return self._target[self._filled :]

    def advance(self, count: int) -> list[bytes | bytearray]:
        """Process `count` bytes that were written to `get_buffer()`; return the frames that are
        complete now.

        The frames do not include the length, and are not changed later. Raises KafkaProtocolError,
        with the likely cause, for a length that is negative or over the limit.
        """
        if self._frame is not None:
            return self._advance_large(count)
        if not 0 <= count <= SCRATCH_BYTES - self._pending:
            raise ValueError(f"{count} bytes cannot have been written")
        frames: list[bytes | bytearray] = []
        end = self._pending + count
        position = 0
        while end - position >= 4:
            size = _INT32.unpack_from(self._scratch, position)[0]
            start = position + 4
            if size <= end - start and 0 <= size <= self._max_frame_bytes:
                position = start + size
                frames.append(self._scratch_view[start:position].tobytes())
                continue
            self._check(size, position)
            if size > _LARGE:
                self._begin_large(size, start, end)
                position = end
            break
        self._pending = end - position
        if position and self._pending:
            self._scratch_view[: self._pending] = self._scratch_view[position:end]
        return frames

    def _begin_large(self, size: int, start: int, end: int) -> None:
        """Move the beginning of a large frame from the scratch buffer to a new buffer."""
        self._frame = _cpython.new_buffer(size)
        self._target = memoryview(self._frame)
        self._filled = end - start
        self._target[: self._filled] = self._scratch_view[start:end]

    def _advance_large(self, count: int) -> list[bytes | bytearray]:
        frame = self._frame
        assert frame is not None
        if not 0 <= count <= len(frame) - self._filled:
            raise ValueError(f"{count} bytes cannot have been written")
        self._filled += count
        if self._filled < len(frame):
            return []
        self._frame = None
        self._target = self._scratch_view
        return [frame]

    def _check(self, size: int, position: int) -> None:
        """Raise KafkaProtocolError, with the likely cause, for an invalid length."""
        if 0 <= size <= self._max_frame_bytes and size < _FOREIGN_FROM:
            return
        first = bytes(self._scratch[position : position + 4])
        cause = _FOREIGN.get(first) or _FOREIGN.get(first[:2])
        if cause is not None:
            raise KafkaProtocolError(f"the peer does not speak Kafka: {cause}")
        if size < 0:
            raise KafkaProtocolError(f"a frame has a negative length ({first.hex(' ')})")
        if size > self._max_frame_bytes:
            raise FrameTooLargeError(
                f"a frame of {size} bytes exceeds the limit of {self._max_frame_bytes} "
                f"(it starts with {first.hex(' ')})"
            )


# -- Requests and responses


Buffers = list[bytes | bytearray | memoryview]

_UNSUPPORTED_VERSION = 35

_HEAD = struct.Struct(">ihhi")  # start of a request frame: size, API key, version, correlation id
_INT16 = struct.Struct(">h")


class _Plan:
    """The encoder and decoder of a request class in one version, shared by all connections."""

    def __init__(self, request: type[Request[Any]], version: int) -> None:
        self.name = f"{request.__name__} v{version}"
        self.is_flexible = is_flexible(request, version)
        self.has_tags = has_response_tags(request, version)
        self.encode = codec(request, version).encoder()
        self.responses: Codec[Any] = codec(request.RESPONSE, version)
        self.decode: Callable[[bytes | bytearray, int], tuple[Any, int]] | None = None


_plans: dict[tuple[type[Request[Any]], int], _Plan] = {}


class InFlightRequest:
    """A request in the queue of an Exchange. `Exchange.send` sets its class and correlation id.

    Args:
        token: Identifies the request for the caller, such as the future of its response.
        deadline: The time until which the response is expected.
        sent_at: The time of the call that sends the request.
        on_response: The function that the owner of the Exchange calls with the response.
    """

    def __init__(
        self,
        token: Any,
        deadline: float,
        sent_at: float = 0.0,
        on_response: Callable[[Any], None] | None = None,
    ) -> None:
        self.token = token
        self.deadline = deadline
        self.sent_at = sent_at
        self.on_response = on_response
        self.correlation_id = -1
        self.request: type[Request[Any]] | None = None
        """The class of the request; None for bytes without a header (see `send_raw`)."""
        self.plan: _Plan | None = None

    @property
    def name(self) -> str:
        """The class and version of the request."""
        return "SASL token" if self.plan is None else self.plan.name


class Exchange:
    """Owns the correlation ids and the queue of in-flight requests of one connection.

    Times are those of the caller's clock.

    Args:
        client_id: The client id in the header of every request.
    """

    def __init__(self, client_id: str | None) -> None:
        self.in_flight: deque[InFlightRequest] = deque()
        """The in-flight requests, the oldest first; only the Exchange changes the queue."""
        name = b"" if client_id is None else client_id.encode()
        # The start of a request frame: zero bytes in place of `_HEAD`, and the client id, which has
        # an int16 length even in flexible versions. In flexible versions, tagged fields follow.
        head = bytes(_HEAD.size) + _INT16.pack(-1 if client_id is None else len(name)) + name
        self._heads = (head, head + b"\0")
        self._padded: set[_Plan] = set()
        # The correlation ids of the last request, and of the last response.
        self._last_id = 0
        self._answered_id = 0
        self.has_silent = False
        """Whether a request without a response was sent."""
        self.surplus = ""
        """A text about undecoded bytes after a response. Some gateways pad responses, and some
        servers send fields of a later version. Set once for each request class and version."""

    def send(
        self, request: Request[Any], version: int, expected: InFlightRequest | None
    ) -> Buffers:
        """Encode a request; return the buffers to write, and append `expected` to the queue.

        `expected` is None for a request without a response (see `Request.expects_response`).
        Raises the errors of `Codec.encode`, without a change of state.
        """
        cls = type(request)
        plan = _plans.get((cls, version))
        if plan is None:
            plan = _plans[cls, version] = _Plan(cls, version)
        out = bytearray(self._heads[plan.is_flexible])
        try:
            buffers = plan.encode(request, out)
        except UNENCODABLE as error:
            raise explain(request, cls, version, error) from error
        size = len(out) if len(buffers) == 1 else sum(map(len, buffers))
        # Change the state only after the encoding, which may raise.
        correlation_id = (self._last_id + 1) & 0x7FFFFFFF
        self._last_id = correlation_id
        _HEAD.pack_into(out, 0, size - 4, cls.API_KEY, version, correlation_id)
        if expected is None:
            self.has_silent = True
        else:
            expected.correlation_id = correlation_id
            expected.request = cls
            expected.plan = plan
            self.in_flight.append(expected)
        return buffers

    def send_raw(self, payload: bytes, expected: InFlightRequest) -> Buffers:
        """Append `expected` to the queue; return the buffers to write for `payload`, which gets no
        request header (a SASL token after SaslHandshake v0)."""
        self.in_flight.append(expected)
        return [_INT32.pack(len(payload)) + payload]

    def maybe_skip(self, frame: bytes | bytearray) -> bool:
        """Return whether a frame is the response to a request with acks=0, which Azure Event Hubs
        sends. If so, the caller must not call `receive` with it.

        Only requests with acks=0 have correlation ids between the last response and the oldest
        in-flight request.
        """
        if len(frame) < 4:
            return False
        oldest = self.in_flight[0].correlation_id if self.in_flight else self._last_id + 1
        (correlation_id,) = _INT32.unpack_from(frame)
        ahead = (correlation_id - self._answered_id) & 0x7FFFFFFF
        if not 0 < ahead < (oldest - self._answered_id) & 0x7FFFFFFF:
            return False
        self._answered_id = correlation_id
        return True

    def receive(self, frame: bytes | bytearray) -> tuple[InFlightRequest, Any]:
        """Decode a response to the oldest request. Return the request, which leaves the queue, and
        the response.

        The response to `send_raw` is bytes. Raises CorrelationIdError if no request is in flight,
        or the response does not belong to the oldest request; KafkaProtocolError if the response is
        malformed. After an error the caller must close the connection.
        """
        if not self.in_flight:
            raise CorrelationIdError(f"a response of {len(frame)} bytes came without a request")
        request = self.in_flight[0]
        plan = request.plan
        if plan is None:
            self.in_flight.popleft()
            return request, bytes(frame)
        if len(frame) < 4 + plan.has_tags:
            raise KafkaProtocolError(f"{plan.name}: a response of {len(frame)} bytes has no header")
        (correlation_id,) = _INT32.unpack_from(frame)
        if correlation_id != request.correlation_id:
            raise CorrelationIdError(
                f"expected the response to request {request.correlation_id} ({plan.name}), "
                f"got the response to request {correlation_id}"
            )
        offset = 4
        if plan.has_tags:
            # Brokers send no tagged fields in the header yet.
            offset = 5 if frame[4] == 0 else _skip_header_tags(frame, plan)
        decode = plan.decode
        if decode is None:
            decode = plan.decode = plan.responses.decoder()
        try:
            response, end = decode(frame, offset)
        except MALFORMED as error:
            response, end = _decode_old_api_versions(frame, offset, plan, error)
        if end != len(frame) and plan not in self._padded:
            self._padded.add(plan)
            self.surplus = f"{plan.name}: {len(frame) - end} bytes after the response"
        self._answered_id = correlation_id
        # Remove the request last: after an error above, `drain` must return it.
        self.in_flight.popleft()
        return request, response

    def take_surplus(self) -> str:
        """Return and clear `surplus`, a text about bytes after the last response; "" for none."""
        surplus, self.surplus = self.surplus, ""
        return surplus

    def postpone(self, seconds: float) -> None:
        """Add `seconds`, for which the broker throttles this client, to the deadline of every
        in-flight request."""
        for request in self.in_flight:
            request.deadline += seconds

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline of an in-flight request; None if no request is in flight."""
        return min((request.deadline for request in self.in_flight), default=None)

    @property
    def last_deadline(self) -> float | None:
        """The latest deadline of an in-flight request; None if no request is in flight."""
        return max((request.deadline for request in self.in_flight), default=None)

    def overdue(self, now: float) -> list[InFlightRequest]:
        """Return the in-flight requests whose deadline has passed, in the order of the queue."""
        return [request for request in self.in_flight if request.deadline <= now]

    def drain(self) -> list[InFlightRequest]:
        """Clear the queue; return its requests."""
        requests = list(self.in_flight)
        self.in_flight.clear()
        return requests


def _skip_header_tags(frame: bytes | bytearray, plan: _Plan) -> int:
    """Return the position after the tagged fields in the header of a response."""
    try:
        return skip_tags(frame, 4, len(frame))
    except IndexError:
        raise KafkaProtocolError(f"{plan.name}: truncated header of a response") from None


def _decode_old_api_versions(
    frame: bytes | bytearray, offset: int, plan: _Plan, error: Exception
) -> tuple[Any, int]:
    """Decode an ApiVersions response in version 0 after `error`, the failure to decode the response
    in the requested version. Raises KafkaProtocolError for all other responses.

    A broker that does not support the requested version responds in version 0 (KIP-511). But a
    gateway may convert that response to the requested version, which is tried first. Bytes of
    version 0 cannot be decoded as a later version: in versions 1 and 2 the throttle time is missing
    at the end, and for version 3 and later the first byte of the key count (0) is a null array.
    """
    is_refusal = frame[offset : offset + 2] == _INT16.pack(_UNSUPPORTED_VERSION)
    if plan.responses.cls.API_KEY == API_VERSIONS_KEY and is_refusal:
        return codec(plan.responses.cls, 0).decode_prefix(frame, offset)
    raise plan.responses.malformed(error, len(frame)) from error
