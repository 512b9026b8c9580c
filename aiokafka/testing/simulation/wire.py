"""What the systems at both ends of a connection do: bytes under way, buffers, resets."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.testing.simulation.line import Line
    from aiokafka.testing.simulation.turns import TurningLoop

__all__ = ["SimulatedSocket", "connect_pair"]

# What both systems together hold of one direction: more is not taken before the other end reads.
CAPACITY = 256 * 1024


def reset_error() -> ConnectionResetError:
    """Make the error that reading and writing raise after the peer's reset; a new one each time."""
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class SimulatedSocket:
    """One end of a connection, below asyncio: it takes what fits, and tells when more can be done.

    Owns: the bytes under way from here, and those that arrived here and were not read.
    """

    __slots__ = (
        "_arrived_last",
        "_error",
        "_has_fin",
        "_inbox",
        "_is_held",
        "_is_moving",
        "_is_telling",
        "_loop",
        "_sent_at",
        "_sent_fin",
        "_under_way",
        "_way",
        "is_client",
        "is_closed",
        "line",
        "name",
        "number",
        "peer",
        "reader",
        "sent",
        "writer",
    )

    def __init__(
        self, loop: TurningLoop, line: Line, number: int, name: tuple[str, int], *, is_client: bool
    ) -> None:
        self._loop = loop
        #: The way to the server of this connection.
        self.line = line
        #: Number of the connection in its network; both ends have the same.
        self.number = number
        #: Address of this end.
        self.name = name
        #: Whether this is the end that connected.
        self.is_client = is_client
        self.peer: SimulatedSocket
        #: Called when there is something to read, once a turn of the loop.
        self.reader: Callable[[], object] | None = None
        #: Called when there is room again.
        self.writer: Callable[[], object] | None = None
        #: Bytes taken on this end.
        self.sent = 0
        self.is_closed = False
        self._way: deque[tuple[float, bytes | None]] = deque()
        """Pieces on their way to the peer, by the time of arrival; None is the end."""
        self._under_way = 0
        """Bytes that were taken here and not read there."""
        self._inbox: deque[bytes] = deque()
        self._has_fin = False
        self._error: ConnectionResetError | None = None
        self._sent_at = self._arrived_last = -1.0
        self._sent_fin = False
        self._is_moving = self._is_held = self._is_telling = False

    # -- what a program asks of it

    def send(self, data: Any) -> int:
        """Take what there is room for, and say how much.

        Raises ConnectionResetError after a reset, BrokenPipeError after the end of this direction.
        """
        if self._error is not None:
            raise reset_error()
        size = min(len(data), CAPACITY - self._under_way)
        if size <= 0:
            return 0
        line = self.line
        if line.cut_at is not None and self.sent < line.cut_at <= self.sent + size:
            self._cut(bytes(data[: line.cut_at - self.sent]))
            return size
        self.sent += size
        self._under_way += size
        piece = bytes(data) if size == len(data) else bytes(data[:size])
        split = line.split(size) if line.splits and size > 1 else 0
        if split:
            self._let_go(piece[:split])
            piece = piece[split:]
            self._sent_at = -1.0
        self._let_go(piece)
        return size

    def receive(self, limit: int) -> bytes:
        """Return at most so many bytes of what has arrived, b"" at the end.

        Raises ConnectionResetError after a reset. Asked only when there is something.
        """
        inbox = self._inbox
        if not inbox:
            if self._error is not None:
                raise reset_error()
            return b""
        data = inbox.popleft()
        while inbox and len(data) < limit:
            data += inbox.popleft()
        if len(data) > limit:
            inbox.appendleft(data[limit:])
            data = data[:limit]
        self.peer._was_read(len(data))
        if inbox or self._has_fin or self._error is not None:
            self._tell_soon()
        return data

    def add_reader(self, callback: Callable[[], object]) -> None:
        """Call it once a turn, while there is something to read."""
        self.reader = callback
        if self._inbox or self._has_fin or self._error is not None:
            self._tell_soon()

    def add_writer(self, callback: Callable[[], object]) -> None:
        """Call it when there is room."""
        self.writer = callback

    def shut_down(self) -> None:
        """Send nothing more: the peer reads to the end of what was taken."""
        if not self._sent_fin and self._error is None:
            self._sent_fin = True
            self._sent_at = -1.0
            self._let_go(None)

    def close(self) -> None:
        """Read nothing more either. What was taken still arrives, unless something is unread here:
        then the peer gets a reset, as Linux has it.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self.reader = self.writer = None
        if self._inbox:
            self._way.clear()
            self.send_reset()
        else:
            self.shut_down()

    # -- bytes on their way

    def not_before(self, when: float) -> None:
        """Let nothing sent from here arrive before this moment."""
        self._arrived_last = max(self._arrived_last, when)

    def _let_go(self, piece: bytes | None) -> None:
        now = self._loop.now
        way = self._way
        if self._sent_at == now and way:
            # Written in the same moment: read together.
            way.append((way[-1][0], piece))
            return
        self._sent_at = now
        when = now + self.line.delay()
        if when < self._arrived_last:
            when = self._arrived_last
        self._arrived_last = when
        way.append((when, piece))
        if not self._is_moving and not self._is_held:
            self._is_moving = True
            self._loop.happen_at(when, self._arrive)

    def _arrive(self) -> None:
        self._is_moving = False
        way = self._way
        if not way:
            return
        if self.line.holds(self):
            self._hold()
            return
        peer = self.peer
        if peer.is_closed:
            self._meet_closed_socket()
            return
        now = self._loop.now
        while way and way[0][0] <= now:
            piece = way.popleft()[1]
            if piece is None:
                peer._has_fin = True
            else:
                peer._inbox.append(piece)
        if way:
            self._is_moving = True
            self._loop.happen_at(way[0][0], self._arrive)
        if not peer._is_telling and peer.reader is not None:
            peer.reader()

    def _meet_closed_socket(self) -> None:
        """Answer bytes for a socket that is closed with a reset; the end alone gets none."""
        has_data = any(piece is not None for _, piece in self._way)
        if has_data and self.line.holds(self.peer):
            self._hold()
            return
        self._way.clear()
        if has_data:
            self.peer.send_reset()

    def _hold(self) -> None:
        self._is_held = True
        self.line.hold(self)

    def move_on(self) -> None:
        """Send once more what was lost, since the line lets this direction through again."""
        if not self._is_held:
            return
        self._is_held = False
        if self._way:
            # The first piece takes its time again, and the others follow it.
            when = self._loop.now + self.line.delay()
            self._way[0] = (when, self._way[0][1])
            self._arrived_last = max(self._arrived_last, when)
            self._is_moving = True
            self._loop.happen_at(when, self._arrive)
        elif self.writer is not None:
            self._loop.happen_at(self._loop.now + self.line.delay(), self._find_room)

    def _was_read(self, size: int) -> None:
        self._under_way -= size
        if self.writer is not None and self._under_way + size >= CAPACITY:
            self._loop.happen_at(self._loop.now + self.line.delay(), self._find_room)

    def _find_room(self) -> None:
        """Tell the writer that the peer can take more."""
        if self.line.holds(self.peer):
            self._hold()
        elif self.writer is not None and self._under_way < CAPACITY:
            self.writer()

    def _tell_soon(self) -> None:
        if not self._is_telling and self.reader is not None:
            self._is_telling = True
            self._loop.happen_at(self._loop.now, self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        if self.reader is not None and (self._inbox or self._has_fin or self._error is not None):
            self.reader()

    # -- resets

    def send_reset(self) -> None:
        """Send a reset, once; it may get lost, and bytes that are sent later get another one."""
        if not self.line.holds(self):
            when = self._loop.now + self.line.delay()
            self._loop.happen_at(max(when, self._arrived_last), self.peer.get_reset)

    def get_reset(self) -> None:
        """Take a reset: what is under way from here is thrown away. The program sees it when it
        reads or writes next.
        """
        if self.is_closed or self._error is not None:
            return
        self._error = reset_error()
        self._way.clear()
        self._under_way = 0
        if self.reader is not None:
            self._tell_soon()
        elif self.writer is not None:
            self._loop.happen_at(self._loop.now, self._break_writer)

    def _break_writer(self) -> None:
        if self.writer is not None:
            self.writer()

    def _cut(self, piece: bytes) -> None:
        """Let the peer have these last bytes, and then both ends a reset."""
        self.line.cut_at = None
        self.sent += len(piece)
        self._sent_at = -1.0
        self._let_go(piece)
        self._sent_fin = True
        # There is no room any more, so that nothing follows.
        self._under_way = 1 << 60
        after = max(self._arrived_last, self._loop.now) + self.line.delay()
        self._loop.happen_at(after, self.peer.get_reset)
        self._loop.happen_at(after + self.line.delay(), self.get_reset)


def connect_pair(
    loop: TurningLoop, line: Line, number: int, client_port: int
) -> tuple[SimulatedSocket, SimulatedSocket]:
    """Make both ends of a new connection: the client's, the server's."""
    client = SimulatedSocket(loop, line, number, ("127.0.0.1", client_port), is_client=True)
    server = SimulatedSocket(loop, line, number, (line.host, line.port), is_client=False)
    client.peer, server.peer = server, client
    return client, server
