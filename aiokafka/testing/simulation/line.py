"""The way to a server, and its faults."""

from __future__ import annotations

import random
import ssl
from typing import Protocol

__all__ = ["Line"]


class Sender(Protocol):
    """One end of a connection, as the line sees it."""

    is_client: bool

    def move_on(self) -> None:
        """Send once more what was lost, since the line has changed."""


class Line:
    """The way between all clients and one server address, and its faults of the moment.

    Every attribute may be changed at any time, and counts from then on.
    """

    def __init__(self, chance: random.Random, host: str, port: int) -> None:
        self._random = chance
        self.host = host
        self.port = port
        #: Seconds that bytes take, at least and at most; each piece draws its own.
        self.latency = (0.0002, 0.002)
        #: Answer connection attempts with "connection refused", as a host without the server does.
        self.refuses = False
        #: How many connections clients have tried to make.
        self.tried = 0
        #: Let TLS handshakes fail, with an error of this class and these arguments.
        self.tls_error: ssl.SSLError | None = None
        #: Probability that what is written in one piece arrives in two.
        self.splits = 0.1
        #: Cut the next connection of which one end writes its byte of this number: the other end
        #: still gets the bytes up to it, then both see a reset.
        self.cut_at: int | None = None
        self._lost_to_server = False
        self._lost_to_client = False
        self._held: dict[Sender, None] = {}

    def lose(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let nothing through in these directions, silently, and everything in the others. Bytes
        wait, as TCP sends again.
        """
        self._lost_to_server = to_server
        self._lost_to_client = to_client
        waiting, self._held = self._held, {}
        for sender in waiting:
            sender.move_on()

    def restore(self) -> None:
        """Let everything through again, and end every other fault of the line but its latency."""
        self.refuses = False
        self.tls_error = None
        self.cut_at = None
        self.lose(to_server=False, to_client=False)

    @property
    def is_silent(self) -> bool:
        """Whether a new connection can not be made, since packets get lost."""
        return self._lost_to_server or self._lost_to_client

    def holds(self, sender: Sender) -> bool:
        """Return whether what this end sends is lost."""
        return self._lost_to_server if sender.is_client else self._lost_to_client

    def hold(self, sender: Sender) -> None:
        """Let this end know when the line changes."""
        self._held[sender] = None

    def delay(self) -> float:
        """Draw the seconds that the next piece takes."""
        shortest, longest = self.latency
        return shortest + (longest - shortest) * self._random.random()

    def split(self, size: int) -> int:
        """Draw how many of `size` bytes arrive before the rest does; 0 for all together."""
        if size > 1 and self._random.random() < self.splits:
            return self._random.randrange(1, size)
        return 0
