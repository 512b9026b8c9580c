"""The headers in front of requests and responses.

They are so small that they are written by hand: request header 1, or 2 (with tagged fields) for
flexible versions; response header 0, or 1 for flexible versions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.primitives import skip_tags

if TYPE_CHECKING:
    from typing import Any

    from aiokafka.protocol.schema import Request

API_VERSIONS_KEY = 18

_REQUEST = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request; the body follows at `body_offset` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


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
    head = _CORRELATION_ID.pack(correlation_id)
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
