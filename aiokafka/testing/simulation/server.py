"""A server that listens in the network of a simulated loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka.testing.simulation.transport import SimulatedTransport, SocketInfo, TransportRegistry

if TYPE_CHECKING:
    from aiokafka.testing.simulation.wire import SimulatedSocket

__all__ = ["SimulatedServer"]

# Since then wait_closed() waits for the connections, too.
_WAITS_FOR_CONNECTIONS = sys.version_info >= (3, 12)


class ServerRegistry(TransportRegistry, Protocol):
    """What a server needs of its network."""

    def stop_listening(self, server: SimulatedServer) -> None:
        """Free the address of a server that closes."""


class SimulatedServer(asyncio.AbstractServer):
    """What `loop.create_server` returns; it does what asyncio's own of this Python does.

    Owns: the list of its connections.
    """

    def __init__(
        self,
        network: ServerRegistry,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: Any = None,
    ) -> None:
        self._network = network
        self._factory = factory
        #: Host and port that it listens on.
        self.address = (host, port)
        #: The SSLContext that it was made with; nothing is encrypted.
        self.tls = tls
        self._is_open = True
        self._is_serving = False
        self._connections: dict[SimulatedTransport, None] = {}
        self._waiters: list[asyncio.Future[None]] | None = []
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[Any, ...]:
        """One stand-in with `getsockname()` while the server is open."""
        return (SocketInfo(self.address),) if self._is_open else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._is_serving

    def begin(self) -> None:
        """Accept connections from now on."""
        if self._is_open:
            self._is_serving = True

    async def start_serving(self) -> None:
        self.begin()
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        """Serve until cancelled, then close."""
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if not self._is_open:
            raise RuntimeError(f"server {self!r} is closed")
        self.begin()
        self._forever = self._network.loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    def close(self) -> None:
        """Listen no more; open connections stay."""
        if not self._is_open:
            return
        self._is_open = self._is_serving = False
        self._network.stop_listening(self)
        if self._forever is not None:
            self._forever.cancel()
        if not self._connections:
            self._wake()

    def close_clients(self) -> None:
        """Close all connections (Python 3.13 and later have it)."""
        for transport in list(self._connections):
            transport.close()

    def abort_clients(self) -> None:
        """Abort all connections (Python 3.13 and later have it)."""
        for transport in list(self._connections):
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the server is closed, and since Python 3.12 for its connections to end."""
        if self._waiters is None or not (self._is_open or _WAITS_FOR_CONNECTIONS):
            return
        waiter: asyncio.Future[None] = self._network.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    # -- for the network

    def accept(self, end: SimulatedSocket) -> None:
        """Make the protocol for a connection."""
        protocol = self._factory()
        transport = SimulatedTransport(self._network, end, protocol, server=self, tls=self.tls)
        self._connections[transport] = None

    def detach(self, transport: SimulatedTransport) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(transport, None)
        if not self._connections and not self._is_open:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
