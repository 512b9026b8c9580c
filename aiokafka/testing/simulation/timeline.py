"""Records the events of a simulated run as text: requests, responses, faults, log messages,
notes."""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiokafka.errors import for_code
from aiokafka.protocol.compiler import codec
from aiokafka.testing import handlers

if TYPE_CHECKING:
    from aiokafka.testing.simulation.loop import SimulatedLoop
    from aiokafka.testing.simulation.network import Network
    from aiokafka.testing.simulation.transport import SimulatedTransport

__all__ = ["FrameReader", "Timeline"]


# -- One line for each request and response in the bytes of connections


_HEADER = struct.Struct(">hhi")
_API_VERSIONS = 18
# Fetch, Heartbeat, ConsumerGroupHeartbeat: omitted if the response has neither an error nor data.
_POLLS = (1, 12, 68)
_MOST_NAMED = 4
_LONGEST_FRAME = 1 << 30

Line = Callable[[], str]


class _Request:
    """One request. If `is_empty`, the timeline omits the request and its response: the request is a
    poll (`_POLLS`), and the response has neither an error nor data."""

    def __init__(
        self,
        peer: str,
        api_key: int,
        version: int,
        correlation: int,
        body: bytes,
        names: dict[bytes, str],
    ) -> None:
        self.peer = peer
        self.names = names
        self.api_key = api_key
        self.version = version
        self.correlation = correlation
        self.is_empty = False
        self.cls: Any = None
        self.name, self.about = f"API {api_key}", ""
        if handlers.known(api_key):
            self.cls = handlers.load(api_key).request_class
            self.name = self.cls.__name__.removesuffix("Request")
            self.about = self._read(body)

    def _read(self, body: bytes) -> str:
        try:
            position = _HEADER.size + 2
            size = int.from_bytes(body[_HEADER.size : position], "big", signed=True)
            position += max(size, 0)
            if self.cls.FLEXIBLE is not None and self.version >= self.cls.FLEXIBLE:
                position += 1  # the number of tagged fields, 0
            message, _ = codec(self.cls, self.version).decode_prefix(body, position)
            return _about(message, self.names)
        except Exception:  # a test may send invalid bytes
            return "that cannot be read"

    def __str__(self) -> str:
        if self.is_empty:
            return ""
        what = f"{self.name} v{self.version} #{self.correlation}"
        return f"{self.peer} <- {what} {self.about}".rstrip()

    def answered(self, frame: bytes) -> str:
        """Return the line for the response; empty if the request is omitted (`is_empty`)."""
        try:
            position = 4
            flexible = self.cls.FLEXIBLE is not None and self.version >= self.cls.FLEXIBLE
            if flexible and self.api_key != _API_VERSIONS:
                position += 1
            message = codec(self.cls.RESPONSE, self.version).decode(frame, position)
            about = _about(message, self.names, is_response=True)
            self.is_empty = self.api_key in _POLLS and not about
        except Exception:
            about = "that cannot be read"
        if self.is_empty:
            return ""
        return f"{self.peer} -> {self.name} #{self.correlation} {about or 'ok'}"


class FrameReader:
    """Splits the bytes of connections into requests and responses.

    Owns: the incomplete frames, the requests without a response, and the topic names by id.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[int, bool], bytes] = {}
        self._waiting: dict[tuple[int, int], _Request] = {}
        self._names: dict[bytes, str] = {}

    def feed(self, number: int, is_client: bool, server: str, data: bytes) -> Iterator[Line]:
        """Yield a function for each request or response that `data` completes. The function returns
        the line for the timeline.

        Call the functions after the last `feed`: a response decides whether its request is omitted.
        """
        data = self._parts.pop((number, is_client), b"") + data
        peer = f"{server} [{number}]"
        while len(data) >= 4:
            size = int.from_bytes(data[:4], "big", signed=True)
            if not 4 <= size < _LONGEST_FRAME:
                arrow = "<-" if is_client else "->"
                yield f"{peer} {arrow} {len(data)} bytes".__str__
                return
            if len(data) < 4 + size:
                break
            frame, data = data[4 : 4 + size], data[4 + size :]
            yield (
                self._request(number, peer, frame)
                if is_client
                else self._response(number, peer, frame)
            )
        if data:
            self._parts[number, is_client] = data

    def _request(self, number: int, peer: str, frame: bytes) -> Line:
        if len(frame) < _HEADER.size:
            return f"{peer} <- {len(frame)} bytes".__str__
        api_key, version, correlation = _HEADER.unpack_from(frame)
        request = _Request(peer, api_key, version, correlation, frame, self._names)
        self._waiting[number, request.correlation] = request
        return request.__str__

    def _response(self, number: int, peer: str, frame: bytes) -> Line:
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        request = self._waiting.pop((number, correlation), None)
        if request is None:
            return f"{peer} -> response #{correlation} to nothing seen here".__str__
        return request.answered(frame).__str__


def _about(message: Any, names: dict[bytes, str], *, is_response: bool = False) -> str:
    """Return the group, topics and partitions that a request names, as text. For a response, return
    the topics and partitions with an error or data."""
    named: list[str] = []
    for place, error, size in _places(message, "", names):
        if error:
            name = for_code(error).__name__
            named.append(f"{place}: {name}" if place else name)
        elif size:
            named.append(f"{place} {size} bytes")
        elif place and not is_response:
            named.append(place)
    group = getattr(message, "group_id", None)
    texts = [f"group {group}"] if isinstance(group, str) and group else []
    named = list(dict.fromkeys(named))
    texts += named[:_MOST_NAMED]
    if len(named) > _MOST_NAMED:
        texts.append(f"and {len(named) - _MOST_NAMED} more")
    return ", ".join(texts)


def _places(value: Any, topic: str, names: dict[bytes, str]) -> Iterator[tuple[str, int, int]]:
    """Yield (name, error code, size of the records) for each partition in a message. Also yield
    each other struct with an error, under the name of its topic."""
    if isinstance(value, list | tuple):
        for each in value:
            if isinstance(each, int) and topic:
                yield f"{topic}-{each}", 0, 0
            else:
                yield from _places(each, topic, names)
        return
    fields = getattr(value, "__dict__", None)
    if fields is None:
        return
    named = fields.get("name") or fields.get("topic") or fields.get("topic_name")
    topic_id = fields.get("topic_id")
    topic_id = topic_id if isinstance(topic_id, bytes) and any(topic_id) else None
    if isinstance(named, str) and named:
        topic = named
        if topic_id is not None:
            names[topic_id] = named
    elif topic_id is not None:
        topic = names.get(topic_id, topic_id.hex()[:8])
    index = next((fields[key] for key in _INDEXES if isinstance(fields.get(key), int)), None)
    error = int(fields.get("error_code") or 0)
    records = fields.get("records")
    size = len(records) if isinstance(records, bytes | bytearray | memoryview) else 0
    if index is not None:
        yield f"{topic}-{index}", error, size
    elif error:
        yield topic, error, 0
    for key, each in fields.items():
        if key not in _NOT_PLACES and isinstance(each, list):
            yield from _places(each, topic, names)


_INDEXES = ("index", "partition_index", "partition")
_NOT_PLACES = ("replica_nodes", "isr_nodes", "offline_replicas", "brokers", "node_endpoints")


# -- The timeline

_MOST_ENTRIES = 50_000
_MOST_BYTES = 32 * 1024 * 1024


class Timeline:
    """The latest events of a run. Requests and responses are stored as bytes: :meth:`lines` decodes
    them.

    Owns: the stored events.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._entries: deque[tuple[float, Any, Any]] = deque()
        self._nbytes = 0
        self._handler = _LogHandler(self)
        self._network: Network | None = None

    def note(self, text: str) -> None:
        """Add a text of the program or test, with the present virtual time."""
        self._add(None, text)

    def lines(self, last: int | None = None) -> list[str]:
        """Return one line for each event, with its virtual time, the oldest event first.

        Fetches and heartbeats whose response has no data and no error are omitted.

        Args:
            last: Return only this number of latest lines; None (the default) means all lines.
        """
        reader = FrameReader()
        found: list[tuple[float, Callable[[], str]]] = []
        for when, writer, what in self._entries:
            if writer is None:
                found.append((when, what.__str__))
            else:
                number, is_client, port = writer
                found += [(when, line) for line in reader.feed(number, is_client, port, what)]
        lines = [f"{when:11.6f}  {text}" for when, line in found if (text := line())]
        return lines if last is None else lines[-last:]

    # -- for the run

    def begin(self, network: Network) -> None:
        """Record the writes of the network and all log messages, until :meth:`end`."""
        self._network = network
        network.observer = self._observe
        logging.getLogger().addHandler(self._handler)

    def end(self) -> None:
        """Stop recording."""
        logging.getLogger().removeHandler(self._handler)
        if self._network is not None:
            self._network.observer = None

    def _observe(self, writer: SimulatedTransport, data: bytes) -> None:
        mark = (writer.number, writer.is_client, f"{writer.line.host}:{writer.line.port}")
        self._nbytes += len(data)
        self._add(mark, bytes(data))

    def _add(self, mark: Any, what: Any) -> None:
        entries = self._entries
        entries.append((self._loop.now, mark, what))
        while len(entries) > _MOST_ENTRIES or self._nbytes > _MOST_BYTES:
            _, mark, what = entries.popleft()
            if mark is not None:
                self._nbytes -= len(what)


class _LogHandler(logging.Handler):
    """Adds log messages to the timeline."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            text = record.getMessage().replace("\n", " | ")
            if record.exc_info and record.exc_info[1] is not None:
                text += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
            self._timeline.note(f"{record.levelname} {record.name}: {text}")
