"""Match responses to requests on one connection. No I/O and no clock: callers have both.

A broker responds to the requests of a connection in order, so the requests in flight are a queue. A
response that does not belong to the head of the queue is an error of the stream.
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


# -- The headers in front of requests and responses

# They are so small that they are written by hand: request header 1, or 2 (with tagged fields) for
# flexible versions; response header 0, or 1 for flexible versions.


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

    ApiVersions never has them: the client cannot know yet what the broker speaks (KIP-511).
    """
    return request.API_KEY != API_VERSIONS_KEY and is_flexible(request, version)


def encode_request_header(
    request: type[Request[Any]], version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Encode the header of a request. The client id keeps its old form in flexible versions."""
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

_HEAD = struct.Struct(">ihhi")  # how a request frame starts: size, API key, version, correlation id
_ERROR_CODE = struct.Struct(">h")


class _Plan:
    """What all requests of a class and version have in common."""

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

    A broker that lacks the version responds in version 0 (KIP-511). A gateway may have made that
    one of the version that it was asked in.
    """
    newest, oldest = codec(request.RESPONSE, version), codec(request.RESPONSE, 0)

    def decode(frame: bytes | bytearray, offset: int) -> tuple[Any, int]:
        try:
            return newest.decode_prefix(frame, offset)
        except KafkaProtocolError:
            # In no later version does this make sense: where version 0 has the first byte of the
            # number of keys, that is null, and before that more is missing than there is.
            if frame[offset : offset + 2] != _ERROR_CODE.pack(_UNSUPPORTED_VERSION):
                raise
            return oldest.decode_prefix(frame, offset)

    return decode


def _check_header(frame: bytes | bytearray, expected_id: int, plan: _Plan) -> int:
    """Check the header of a response; return where its body starts."""
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


class _Slot(Generic[T]):
    """The place of a request in flight. Without a plan, the response is a frame without header."""

    __slots__ = ("correlation_id", "deadline", "is_cancelled", "plan", "token")

    def __init__(self, correlation_id: int, plan: _Plan | None, deadline: float, token: T) -> None:
        self.correlation_id = correlation_id
        self.plan = plan
        self.deadline = deadline
        self.token = token
        self.is_cancelled = False


class Exchange(Generic[T]):
    """Owns the correlation ids and the queue of requests in flight on one connection.

    A token is whatever the caller wants back with the response. Deadlines are absolute times of the
    caller's clock.

    Args:
        client_id: sent with every request.
    """

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._slots: deque[_Slot[T]] = deque()
        self._plans: dict[tuple[type[Request[Any]], int], _Plan] = {}
        self._last_id = 0
        self._answered_id = 0
        self.has_silent = False
        """Whether a request that expects no response was sent."""
        self.surplus = ""
        """What was left unread after a response: a gateway pads it, or a server is ahead of its
        version. Set by the first such response of each kind; `take_surplus` empties it."""

    def __len__(self) -> int:
        """Return the number of requests in flight, cancelled ones included."""
        return len(self._slots)

    def awaits(self, *requests: type[Request[Any]]) -> bool:
        """Return whether a request of one of these classes is in flight, cancelled or not."""
        return any(slot.plan is not None and slot.plan.request in requests for slot in self._slots)

    def send(self, request: Request[Any], version: int, deadline: float, token: T) -> Buffers:
        """Put a request in flight; return the buffers to write.

        A request that expects no response takes no place in the queue. Raises what `Codec.encode`
        raises; then nothing has changed.
        """
        cls = type(request)
        plan = self._plans.get((cls, version))
        if plan is None:
            plan = self._plans[cls, version] = _Plan(cls, version, self._client_id)
        out = bytearray(plan.head)
        buffers = plan.codec.encode(request, out)
        size = len(out) if len(buffers) == 1 else sum(map(len, buffers))
        # After the encoding: a request that is refused there takes no number and no place.
        self._last_id = correlation_id = (self._last_id + 1) & 0x7FFFFFFF
        _HEAD.pack_into(out, 0, size - 4, cls.API_KEY, version, correlation_id)
        if request.expects_response:
            self._slots.append(_Slot(correlation_id, plan, deadline, token))
        else:
            self.has_silent = True
        return buffers

    def send_raw(self, payload: bytes, deadline: float, token: T) -> Buffers:
        """Do the same for bytes without header, as SASL tokens after SaslHandshake v0 are."""
        self._slots.append(_Slot(-1, None, deadline, token))
        return [_INT32.pack(len(payload)) + payload]

    def maybe_skip(self, frame: bytes | bytearray) -> bool:
        """Take a response to a request that expects none, which Azure Event Hubs sends; return
        whether it is one.

        The numbers between the last response and the oldest request in flight are of such requests
        alone.
        """
        if len(frame) < 4:
            return False
        oldest = self._slots[0].correlation_id if self._slots else self._last_id + 1
        (correlation_id,) = _INT32.unpack_from(frame)
        ahead = (correlation_id - self._answered_id) & 0x7FFFFFFF
        if not 0 < ahead < (oldest - self._answered_id) & 0x7FFFFFFF:
            return False
        self._answered_id = correlation_id
        return True

    def receive(self, frame: bytes | bytearray) -> tuple[T, Any] | None:
        """Take a response; return the token of its request, and the response (raw: the bytes).

        Returns None if the request has been cancelled. Raises CorrelationIdError if the response is
        not for the oldest request, and KafkaProtocolError if it is malformed: in both cases the
        connection must be closed.
        """
        slots = self._slots
        if not slots:
            raise CorrelationIdError(f"a response of {len(frame)} bytes came without a request")
        slot = slots[0]
        plan = slot.plan
        if plan is None:
            response: Any = bytes(frame)
        else:
            offset = _check_header(frame, slot.correlation_id, plan)
            # The slot leaves only with its response: after a malformed one, `drain` returns its
            # token.
            response = None
            if not slot.is_cancelled:
                response, end = plan.decode(frame, offset)
                if end != len(frame) and not plan.is_padded:
                    plan.is_padded = True
                    self.surplus = f"{plan.name}: {len(frame) - end} bytes after the response"
            self._answered_id = slot.correlation_id
        slots.popleft()
        return None if slot.is_cancelled else (slot.token, response)

    def take_surplus(self) -> str:
        """Return what was left unread, once."""
        surplus, self.surplus = self.surplus, ""
        return surplus

    def cancel(self, token: T) -> None:
        """Drop the response to a request when it comes. The request keeps its place."""
        for slot in self._slots:
            if slot.token is token:
                slot.is_cancelled = True

    def postpone(self, seconds: float) -> None:
        """Give every request in flight this many more seconds, during which the broker reads
        nothing."""
        for slot in self._slots:
            slot.deadline += seconds

    @property
    def next_deadline(self) -> float | None:
        """When the first request in flight becomes overdue; None without any.

        A cancelled request counts, because its response is still due.
        """
        return min((slot.deadline for slot in self._slots), default=None)

    @property
    def last_deadline(self) -> float | None:
        """When the last request in flight becomes overdue; None without any."""
        return max((slot.deadline for slot in self._slots), default=None)

    def overdue(self, now: float) -> str | None:
        """Return the name of a request in flight that is overdue; None if there is none."""
        for slot in self._slots:
            if slot.deadline <= now:
                return "SASL token" if slot.plan is None else slot.plan.name
        return None

    def overdue_tokens(self, now: float) -> list[T]:
        """Return the tokens of requests in flight that are overdue and not cancelled."""
        return [
            slot.token for slot in self._slots if slot.deadline <= now and not slot.is_cancelled
        ]

    def tokens(self, *but: type[Request[Any]]) -> list[T]:
        """Return the tokens of all requests in flight that are not cancelled, without those of some
        classes."""
        return [
            slot.token
            for slot in self._slots
            if not slot.is_cancelled and (slot.plan is None or slot.plan.request not in but)
        ]

    def drain(self) -> list[T]:
        """Empty the queue; return the tokens of the requests that were not cancelled."""
        tokens = self.tokens()
        self._slots.clear()
        return tokens
