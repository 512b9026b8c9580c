"""Split a byte stream into Kafka's frames: a length (int32) and the content.

Made for `asyncio.BufferedProtocol`: the event loop reads into a buffer of this module. Small frames
pass through one scratch buffer. A large frame gets its own buffer, after its length was checked, so
that the frame is not copied again.
"""

from __future__ import annotations

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol import _memory as mem

# -- Errors


class FrameTooLargeError(KafkaProtocolError):
    """A response exceeds the size limit."""


SCRATCH_BYTES = 65536

# An unfinished frame longer than this gets its own buffer.
_LARGE = 8192

# First bytes of other protocols. As the length of a frame, each of them exceeds 300 MB.
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

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the buffer for the next bytes, which is never empty; `sizehint` is ignored."""
        if self._frame is None:
            return self._scratch_view[self._pending :] if self._pending else self._scratch_view
        return self._target[self._filled :]

    def advance(self, count: int) -> list[bytes | bytearray]:
        """Process `count` bytes in the buffer; return the frames that are complete.

        The frames do not include the length, and are not changed later. Raises KafkaProtocolError,
        with the likely cause, for a length that is negative or over the limit.
        """
        if self._frame is not None:
            return self._advance_large(count)
        if not 0 <= count <= SCRATCH_BYTES - self._pending:
            raise ValueError(f"{count} bytes cannot have been written")
        frames: list[bytes | bytearray] = []
        data = mem.source(self._scratch)
        end = self._pending + count
        position = 0
        while end - position >= 4:
            size = mem.length_at(data, position)
            start = position + 4
            if size <= end - start and 0 <= size <= self._max_frame_bytes:
                position = start + size
                frames.append(mem.cut(data, start, position))
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
        self._frame = mem.new_buffer(size)
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
