"""Requests and responses as they go over the network, for the story of a run."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.compiler import codec
from aiokafka.testing import handlers

if TYPE_CHECKING:
    from tests.simulation.world import World

_HEADER = struct.Struct(">hhi")
_API_VERSIONS = 18
_WIDTH = 300
# What says nothing in a story.
_NOISE = re.compile(r"\b\w+=(?:-1|0|None|''|b''|\[\]|False)(?:, )?")


@dataclass
class _Side:
    """Bytes of one direction of a connection that are not a whole frame yet."""

    data: bytearray = field(default_factory=bytearray)

    def frames(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete."""
        self.data += data
        found = []
        while len(self.data) >= 4:
            size = int.from_bytes(self.data[:4], "big")
            if len(self.data) < 4 + size:
                break
            found.append(bytes(self.data[4 : 4 + size]))
            del self.data[: 4 + size]
        return found


class WireTap:
    """Writes every request and response into the trace when it is sent."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sides: dict[tuple[int, bool], _Side] = {}
        self._asked: dict[tuple[int, int], tuple[int, int, str]] = {}
        world.simulation.network.observer = self.see

    def see(self, writer: Any, data: bytes) -> None:
        """One end of a connection has written."""
        side = self._sides.setdefault((writer.number, writer.is_client), _Side())
        for frame in side.frames(bytes(data)):
            try:
                if writer.is_client:
                    self._request(writer, frame)
                else:
                    self._response(writer.number, frame)
            except Exception as error:
                self._world.trace_line("wire", "cannot be read", repr(error))

    def _request(self, writer: Any, frame: bytes) -> None:
        api, version, correlation = _HEADER.unpack_from(frame)
        size = int.from_bytes(frame[8:10], "big", signed=True)
        client = frame[10 : 10 + max(size, 0)].decode()
        self._asked[writer.number, correlation] = api, version, client
        request_class = handlers.load(api).request_class
        position = 10 + max(size, 0)
        if request_class.FLEXIBLE is not None and version >= request_class.FLEXIBLE:
            position += 1  # no tagged fields
        request, _ = codec(request_class, version).decode_prefix(frame, position)
        name = request_class.__name__.removesuffix("Request")
        what = f"-> {writer.line.port} {name} v{version} #{writer.number}/{correlation}"
        self._world.trace_line(client, what, _short(request))

    def _response(self, number: int, frame: bytes) -> None:
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        api, version, client = self._asked.pop((number, correlation))
        request_class = handlers.load(api).request_class
        response_class = request_class.RESPONSE
        flexible = response_class.FLEXIBLE is not None and version >= response_class.FLEXIBLE
        position = 5 if flexible and api != _API_VERSIONS else 4
        response, _ = codec(response_class, version).decode_prefix(frame, position)
        name = request_class.__name__.removesuffix("Request")
        text = "" if api == _API_VERSIONS else _short(response)
        self._world.trace_line(client, f"<- {name} #{number}/{correlation}", text)


def _short(message: object) -> str:
    text = re.sub(r"(?:bytearray|memoryview)\(b'[^']{24,}?'\)", "<bytes>", repr(message))
    text = re.sub(r"b'[^']{40,}?'", "<bytes>", text)
    text = _NOISE.sub("", text).partition("(")[2]
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
