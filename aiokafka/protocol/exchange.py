"""Match responses to the in-flight requests of one connection. Does no I/O and reads no clock.

A broker responds to the requests of a connection in order, so the in-flight requests are a queue. A
response that does not belong to the head of the queue is a protocol error.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokafka.errors import CorrelationIdError, KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.primitives import skip_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.protocol.compiler import Codec
    from aiokafka.protocol.schema import Request


# -- The headers of requests and responses

# These functions encode request header version 1, or 2 (with tagged fields) for flexible versions,
# and response header version 0, or 1 (with tagged fields) for flexible versions.


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

    The header of an ApiVersions response never has them: the client does not know the broker's
    versions yet (KIP-511).
    """
    return request.API_KEY != API_VERSIONS_KEY and is_flexible(request, version)


def encode_request_header(
    request: type[Request[Any]], version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Encode the header of a request. The client id has an int16 length, also in flexible
    versions."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = _REQUEST.pack(request.API_KEY, version, correlation_id, length) + name
    return head + b"\0" if is_flexible(request, version) else head


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


T = TypeVar("T")

Buffers = list[bytes | bytearray | memoryview]

_UNSUPPORTED_VERSION = 35

_HEAD = struct.Struct(">ihhi")  # start of a request frame: size, API key, version, correlation id
_ERROR_CODE = struct.Struct(">h")


class _Plan:
    """The encoder, decoder and header bytes of a request class in one version."""

    __slots__ = ("codec", "decode", "head", "is_padded", "name", "request", "tags")

    def __init__(self, request: type[Request[Any]], version: int, client_id: str | None) -> None:
        self.request = request
        self.name = f"{request.__name__} v{version}"
        self.head = bytes(4) + encode_request_header(request, version, 0, client_id)
        self.codec: Codec[Any] = codec(request, version)
        self.tags = has_response_tags(request, version)
        self.is_padded = False
        self.decode: Callable[[bytes | bytearray, int], tuple[Any, int]] = codec(
            request.RESPONSE, version
        ).decode_prefix
        if request.API_KEY == API_VERSIONS_KEY:
            self.decode = _api_versions_decoder(request, version)


def _api_versions_decoder(
    request: type[Request[Any]], version: int
) -> Callable[[bytes | bytearray, int], tuple[Any, int]]:
    """Return the decoder of ApiVersions responses.

    A broker that does not support the version responds in version 0 (KIP-511). A gateway may
    convert that response to the requested version.
    """
    newest, oldest = codec(request.RESPONSE, version), codec(request.RESPONSE, 0)

    def decode(frame: bytes | bytearray, offset: int) -> tuple[Any, int]:
        try:
            return newest.decode_prefix(frame, offset)
        except KafkaProtocolError:
            # Bytes of version 0 never decode as a later version: versions 1 and 2 miss the throttle
            # time at the end, and version 3 and later read the first byte of the key count (0) as a
            # null array.
            if frame[offset : offset + 2] != _ERROR_CODE.pack(_UNSUPPORTED_VERSION):
                raise
            return oldest.decode_prefix(frame, offset)

    return decode


def _check_header(frame: bytes | bytearray, expected_id: int, plan: _Plan) -> int:
    """Check the header of a response; return the position of its body.

    Raises CorrelationIdError for the response to another request, KafkaProtocolError for a
    malformed header.
    """
    if len(frame) < 4 + plan.tags:
        raise KafkaProtocolError(f"{plan.name}: a response of {len(frame)} bytes has no header")
    (correlation_id,) = _INT32.unpack_from(frame)
    if correlation_id != expected_id:
        raise CorrelationIdError(
            f"expected the response to request {expected_id} ({plan.name}), "
            f"got the response to request {correlation_id}"
        )
    if not plan.tags:
        return 4
    if frame[4] == 0:
        return 5
    try:
        return skip_tags(frame, 4, len(frame))
    except IndexError:
        raise KafkaProtocolError(f"{plan.name}: truncated header of a response") from None


class _InFlight(Generic[T]):
    """A request in the queue. `plan` is None if the response has no header (see `send_raw`)."""

    __slots__ = ("correlation_id", "deadline", "is_cancelled", "plan", "token")

    def __init__(self, correlation_id: int, plan: _Plan | None, deadline: float, token: T) -> None:
        self.correlation_id = correlation_id
        self.plan = plan
        self.deadline = deadline
        self.token = token
        self.is_cancelled = False


class Exchange(Generic[T]):
    """Owns the correlation ids and the queue of in-flight requests of one connection.

    `receive` returns the token of a request, any object, together with the response. Deadlines are
    absolute times of the caller's clock.

    Args:
        client_id: The client id in the header of every request.
    """

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._queue: deque[_InFlight[T]] = deque()
        self._plans: dict[tuple[type[Request[Any]], int], _Plan] = {}
        self._last_id = 0
        self._answered_id = 0
        self.has_silent = False
        """Whether a request with acks=0 was sent."""
        self.surplus = ""
        """A text about undecoded bytes after a response. Some gateways pad responses, and some
        servers send fields of a later version. Set once for each request class and version."""

    def __len__(self) -> int:
        """Return the number of in-flight requests, including cancelled requests."""
        return len(self._queue)

    def awaits(self, *requests: type[Request[Any]]) -> bool:
        """Return whether a request of one of these classes is in flight, even if cancelled."""
        return any(
            entry.plan is not None and entry.plan.request in requests for entry in self._queue
        )

    def send(self, request: Request[Any], version: int, deadline: float, token: T) -> Buffers:
        """Append a request to the queue; return the buffers to write.

        A request without a response is not queued (see `Request.expects_response`). Raises the
        errors of `Codec.encode`, without a change of state.
        """
        cls = type(request)
        plan = self._plans.get((cls, version))
        if plan is None:
            plan = self._plans[cls, version] = _Plan(cls, version, self._client_id)
        out = bytearray(plan.head)
        buffers = plan.codec.encode(request, out)
        size = len(out) if len(buffers) == 1 else sum(map(len, buffers))
        # Change the state only after the encoding, which may raise.
        self._last_id = correlation_id = (self._last_id + 1) & 0x7FFFFFFF
        _HEAD.pack_into(out, 0, size - 4, cls.API_KEY, version, correlation_id)
        if request.expects_response:
            self._queue.append(_InFlight(correlation_id, plan, deadline, token))
        else:
            self.has_silent = True
        return buffers

    def send_raw(self, payload: bytes, deadline: float, token: T) -> Buffers:
        """Append bytes without a header (a SASL token after SaslHandshake v0) to the queue; return
        the buffers to write."""
        self._queue.append(_InFlight(-1, None, deadline, token))
        return [_INT32.pack(len(payload)) + payload]

    def maybe_skip(self, frame: bytes | bytearray) -> bool:
        """Return whether a frame is a response to a request with acks=0, which the caller must
        skip: Azure Event Hubs sends such responses.

        Only requests with acks=0 have correlation ids between the last response and the oldest
        in-flight request.
        """
        if len(frame) < 4:
            return False
        oldest = self._queue[0].correlation_id if self._queue else self._last_id + 1
        (correlation_id,) = _INT32.unpack_from(frame)
        ahead = (correlation_id - self._answered_id) & 0x7FFFFFFF
        if not 0 < ahead < (oldest - self._answered_id) & 0x7FFFFFFF:
            return False
        self._answered_id = correlation_id
        return True

    def receive(self, frame: bytes | bytearray) -> tuple[T, Any] | None:
        """Decode a response; return the token of its request, and the response.

        The response to `send_raw` is bytes. Returns None if the request was cancelled. Raises
        CorrelationIdError if the response does not belong to the oldest request, and
        KafkaProtocolError if the response is malformed; the caller must then close the connection.
        """
        queue = self._queue
        if not queue:
            raise CorrelationIdError(f"a response of {len(frame)} bytes came without a request")
        entry = queue[0]
        plan = entry.plan
        if plan is None:
            response: Any = bytes(frame)
        else:
            offset = _check_header(frame, entry.correlation_id, plan)
            # The request stays in the queue until its response is decoded: after an error `drain`
            # returns its token.
            response = None
            if not entry.is_cancelled:
                response, end = plan.decode(frame, offset)
                if end != len(frame) and not plan.is_padded:
                    plan.is_padded = True
                    self.surplus = f"{plan.name}: {len(frame) - end} bytes after the response"
            self._answered_id = entry.correlation_id
        queue.popleft()
        return None if entry.is_cancelled else (entry.token, response)

    def take_surplus(self) -> str:
        """Return `surplus` and clear it."""
        surplus, self.surplus = self.surplus, ""
        return surplus

    def cancel(self, token: T) -> None:
        """Mark the request of `token` as cancelled: `receive` drops its response. The request stays
        in the queue."""
        for entry in self._queue:
            if entry.token is token:
                entry.is_cancelled = True

    def postpone(self, seconds: float) -> None:
        """Add the time of a throttle to the deadline of every in-flight request."""
        for entry in self._queue:
            entry.deadline += seconds

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline of an in-flight request, including cancelled requests; None if no
        request is in flight."""
        return min((entry.deadline for entry in self._queue), default=None)

    @property
    def last_deadline(self) -> float | None:
        """The latest deadline of an in-flight request, including cancelled requests; None if no
        request is in flight."""
        return max((entry.deadline for entry in self._queue), default=None)

    def overdue(self, now: float) -> str | None:
        """Return the name of the first overdue request in the queue; None if none is overdue."""
        for entry in self._queue:
            if entry.deadline <= now:
                return "SASL token" if entry.plan is None else entry.plan.name
        return None

    def overdue_tokens(self, now: float) -> list[T]:
        """Return the tokens of overdue requests that are not cancelled."""
        return [
            entry.token for entry in self._queue if entry.deadline <= now and not entry.is_cancelled
        ]

    def tokens(self, *but: type[Request[Any]]) -> list[T]:
        """Return the tokens of in-flight requests, except of cancelled requests and of the classes
        `but`."""
        return [
            entry.token
            for entry in self._queue
            if not entry.is_cancelled and (entry.plan is None or entry.plan.request not in but)
        ]

    def drain(self) -> list[T]:
        """Clear the queue; return the tokens of its requests that are not cancelled."""
        tokens = self.tokens()
        self._queue.clear()
        return tokens
