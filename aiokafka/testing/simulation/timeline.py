"""What happened in a simulated run, for people: requests, responses, faults, log, notes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiokafka.testing.simulation.frames import Conversations

if TYPE_CHECKING:
    from aiokafka.testing.simulation.loop import SimulatedLoop
    from aiokafka.testing.simulation.network import Network
    from aiokafka.testing.simulation.transport import SimulatedTransport

__all__ = ["Timeline"]

_MOST_ENTRIES = 50_000
_MOST_BYTES = 32 * 1024 * 1024


class Timeline:
    """Keeps the latest of what happens in a run; costs little until it is read.

    Owns: the entries, as they came: bytes are made into requests when they are read.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._entries: deque[tuple[float, Any, Any]] = deque()
        self._nbytes = 0
        self._handler = _LogHandler(self)
        self._network: Network | None = None

    def note(self, text: str) -> None:
        """Add a line of the program's or test's own."""
        self._add(None, text)

    def lines(self, last: int | None = None) -> list[str]:
        """Return one line for each event with its virtual time, the oldest first.

        Polls and heartbeats that brought nothing are left out.

        Args:
            last: At most so many lines, the latest; None (the default) means all.
        """
        conversations = Conversations()
        found: list[tuple[float, Callable[[], str]]] = []
        for when, writer, what in self._entries:
            if writer is None:
                found.append((when, what.__str__))
            else:
                number, is_client, port = writer
                found += [
                    (when, line) for line in conversations.feed(number, is_client, port, what)
                ]
        lines = [f"{when:11.6f}  {text}" for when, line in found if (text := line())]
        return lines if last is None else lines[-last:]

    # -- for the run

    def begin(self, network: Network) -> None:
        """Listen to the network and to the logs, until :meth:`end`."""
        self._network = network
        network.observer = self._observe
        logging.getLogger().addHandler(self._handler)

    def end(self) -> None:
        """Stop listening to the network and to the logs."""
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
    """Puts what is logged into the timeline."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            text = record.getMessage().replace("\n", " | ")
            if record.exc_info and record.exc_info[1] is not None:
                text += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
            self._timeline.note(f"{record.levelname} {record.name}: {text}")
