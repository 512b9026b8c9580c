"""What a simulated loop does not have."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.testing.simulation.errors import NotSimulatedError

__all__ = ["Refusals"]


class Refusals(asyncio.BaseEventLoop):
    """What leaves the process and has no simulated form: all of it says so."""

    def _refuse(self, what: str) -> Any:
        raise NotSimulatedError(what)

    # A plain function may raise at once; asyncio's own are async, and raise when awaited.
    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> Any:
        self._refuse("datagrams")

    async def create_unix_connection(self, *args: Any, **options: Any) -> Any:
        self._refuse("Unix sockets")

    async def create_unix_server(self, *args: Any, **options: Any) -> Any:
        self._refuse("Unix sockets")

    async def connect_accepted_socket(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def connect_read_pipe(self, *args: Any, **options: Any) -> Any:
        self._refuse("pipes")

    async def connect_write_pipe(self, *args: Any, **options: Any) -> Any:
        self._refuse("pipes")

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        self._refuse("subprocesses")

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
        self._refuse("subprocesses")

    async def start_tls(self, *args: Any, **options: Any) -> Any:
        self._refuse("change to TLS on an open connection")

    async def sendfile(self, *args: Any, **options: Any) -> Any:
        self._refuse("sendfile")

    async def sock_connect(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_accept(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recv(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recv_into(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_sendall(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recvfrom(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recvfrom_into(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_sendto(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_sendfile(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    def add_reader(self, *args: Any) -> Any:  # type: ignore[override]
        self._refuse("files and sockets of the system")

    def add_writer(self, *args: Any) -> Any:  # type: ignore[override]
        self._refuse("files and sockets of the system")

    def remove_reader(self, *args: Any) -> bool:
        return False

    def remove_writer(self, *args: Any) -> bool:
        return False
