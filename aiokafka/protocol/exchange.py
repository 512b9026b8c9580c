"""Matches the answers on one connection to its requests. No I/O and no clock: callers have both.

A broker answers the requests of a connection in their order, so the requests in flight are a
queue, and an answer that does not belong to its head is an error of the stream.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokafka.errors import CorrelationIdError, KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.headers import (
    API_VERSIONS_KEY,
    encode_request_header,
    has_response_tags,
)
from aiokafka.protocol.primitives import skip_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.protocol.compiler import Codec
    from aiokafka.protocol.schema import Request

T = TypeVar("T")

Buffers = list[bytes | bytearray | memoryview]

_UNSUPPORTED_VERSION = 35
_SIZE = _CORRELATION_ID = struct.Struct(">i")
_HEAD = struct.Struct(">ihhi")  # how a request frame starts: size, API key, version, correlation id
_ERROR_CODE = struct.Struct(">h")


class _Plan:
    """What is the same for all requests of a class and version."""

    __slots__ = ("codec", "decode", "head", "is_padded", "name", "tags")

    def __init__(self, request: type[Request[Any]], version: int, client_id: str | None) -> None:
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
    """A broker that lacks the version says so in version 0 (KIP-511)."""
    newest, oldest = codec(request.RESPONSE, version), codec(request.RESPONSE, 0)

    def decode(frame: bytes | bytearray, offset: int) -> tuple[Any, int]:
        if frame[offset : offset + 2] == _ERROR_CODE.pack(_UNSUPPORTED_VERSION):
            return oldest.decode_prefix(frame, offset)
        return newest.decode_prefix(frame, offset)

    return decode


def _check_header(frame: bytes | bytearray, expected_id: int, plan: _Plan) -> int:
    """Where the body of an answer starts."""
    if len(frame) < 4 + plan.tags:
        raise KafkaProtocolError(f"{plan.name}: an answer of {len(frame)} bytes has no header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    if correlation_id != expected_id:
        raise CorrelationIdError(
            f"the next answer should be to request {expected_id} ({plan.name}), "
            f"this one is to request {correlation_id}"
        )
    if not plan.tags:
        return 4
    if frame[4] == 0:
        return 5
    try:
        return skip_tags(frame, 4, len(frame))
    except IndexError:
        raise KafkaProtocolError(f"{plan.name}: truncated header of an answer") from None


class _Slot(Generic[T]):
    """The place of an unanswered request. Without a plan, the answer is a frame without header."""

    __slots__ = ("correlation_id", "deadline", "is_cancelled", "plan", "token")

    def __init__(self, correlation_id: int, plan: _Plan | None, deadline: float, token: T) -> None:
        self.correlation_id = correlation_id
        self.plan = plan
        self.deadline = deadline
        self.token = token
        self.is_cancelled = False


class Exchange(Generic[T]):
    """Sole owner of correlation ids and of the queue of requests in flight on one connection.

    client_id: sent with every request.

    A token is whatever the caller wants back with the answer. Deadlines are absolute times of the
    caller's clock.
    """

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._slots: deque[_Slot[T]] = deque()
        self._plans: dict[tuple[type[Request[Any]], int], _Plan] = {}
        self._last_id = 0
        self.surplus = ""
        """What was left unread behind an answer: a gateway that pads, or a server that is ahead of
        its version. Set by the first answer of each kind; for the caller to report and empty."""

    def __len__(self) -> int:
        """How many requests wait for their answers, cancelled ones included."""
        return len(self._slots)

    def send(self, request: Request[Any], version: int, deadline: float, token: T) -> Buffers:
        """The buffers to write for a request, which is in flight from now on.

        A request that expects no answer (see `Request.expects_answer`) takes no place in the
        queue. Raises what `Codec.encode` raises; then nothing has changed.
        """
        cls = type(request)
        plan = self._plans.get((cls, version))
        if plan is None:
            plan = self._plans[cls, version] = _Plan(cls, version, self._client_id)
        out = bytearray(plan.head)
        buffers = plan.codec.encode(request, out)
        size = len(out) if len(buffers) == 1 else sum(map(len, buffers))
        self._last_id = correlation_id = (self._last_id + 1) & 0x7FFFFFFF
        _HEAD.pack_into(out, 0, size - 4, cls.API_KEY, version, correlation_id)
        if request.expects_answer():
            self._slots.append(_Slot(correlation_id, plan, deadline, token))
        return buffers

    def send_raw(self, payload: bytes, deadline: float, token: T) -> Buffers:
        """The same for bytes without header, answered alike: SASL tokens after SaslHandshake v0."""
        self._slots.append(_Slot(-1, None, deadline, token))
        return [_SIZE.pack(len(payload)) + payload]

    def receive(self, frame: bytes | bytearray) -> tuple[T, Any] | None:
        """The token of the request that this frame answers, and the response (raw: the bytes).

        None if the request has been cancelled. Raises CorrelationIdError if the answer is not
        that of the oldest request, and KafkaProtocolError if it is malformed: either way the
        connection is of no more use.
        """
        slots = self._slots
        if not slots:
            raise CorrelationIdError(f"an answer of {len(frame)} bytes came unasked")
        slot = slots[0]
        plan = slot.plan
        if plan is None:
            response: Any = bytes(frame)
        else:
            offset = _check_header(frame, slot.correlation_id, plan)
            # The slot leaves only with its answer: after a malformed one `drain` gives its token.
            response = None
            if not slot.is_cancelled:
                response, end = plan.decode(frame, offset)
                if end != len(frame) and not plan.is_padded:
                    plan.is_padded = True
                    self.surplus = f"{plan.name}: {len(frame) - end} bytes behind the answer"
        slots.popleft()
        return None if slot.is_cancelled else (slot.token, response)

    def cancel(self, token: T) -> None:
        """Drop the answer to a request when it comes. The request keeps its place in the queue."""
        for slot in self._slots:
            if slot.token is token:
                slot.is_cancelled = True

    def postpone(self, seconds: float) -> None:
        """Give every request in flight more time: the broker reads nothing for so long."""
        for slot in self._slots:
            slot.deadline += seconds

    @property
    def next_deadline(self) -> float | None:
        """When the first of the requests in flight will be overdue; None without any.

        A cancelled request counts: its answer is owed all the same.
        """
        return min((slot.deadline for slot in self._slots), default=None)

    @property
    def last_deadline(self) -> float | None:
        """When the last of the requests in flight will be overdue; None without any."""
        return max((slot.deadline for slot in self._slots), default=None)

    def overdue(self, now: float) -> str | None:
        """Which request in flight is past its deadline, by name; None if none is."""
        for slot in self._slots:
            if slot.deadline <= now:
                return "SASL token" if slot.plan is None else slot.plan.name
        return None

    def overdue_tokens(self, now: float) -> list[T]:
        """The tokens of the requests in flight that are past their deadline and not cancelled."""
        return [
            slot.token for slot in self._slots if slot.deadline <= now and not slot.is_cancelled
        ]

    def tokens(self) -> list[T]:
        """The tokens of all requests in flight that are not cancelled."""
        return [slot.token for slot in self._slots if not slot.is_cancelled]

    def drain(self) -> list[T]:
        """The tokens of all requests in flight that are not cancelled; none is in flight then."""
        tokens = self.tokens()
        self._slots.clear()
        return tokens
