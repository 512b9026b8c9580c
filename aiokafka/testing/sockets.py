"""Closing servers without leaving a socket behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

_TURNS = 10


class Closing(Protocol):
    """A connection that was told to end."""

    async def wait_closed(self) -> None:
        """Wait until it has."""


def address_of(host: str, port: int) -> str:
    """Return an address as clients take it: one of IPv6 is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def stop_accepting(server: asyncio.Server) -> None:
    """Let a server take no more connections; :func:`close_server` has to follow.

    `Server.close()` alone loses a connection that was accepted just before (CPython's gh-109564):

    1. The loop accepts it, and plans a task that makes its transport.
    2. The server is closed.
    3. The task makes the transport, which finds its server closed and fails. Nothing closes the
       socket: the client is connected, and hears nothing until it is collected as garbage.

    So only the reading of the listening socket ends here, where the loop has such a thing.
    """
    loop = server.get_loop()
    try:
        has_ended = all(loop.remove_reader(socket.fileno()) for socket in server.sockets)
    except NotImplementedError:  # Windows' own loop
        has_ended = False
    if not has_ended:
        server.close()


async def close_server(server: asyncio.Server | None, connections: Iterable[Closing]) -> None:
    """Wait until these connections have ended; close a server that accepts no more, and wait until
    it has let go of everything. A call that is cancelled leaves no socket either.

    A connection that was accepted in the same turn of the loop gets its transport in the next one,
    reaches its handler a few turns later, and its socket is closed a few turns after that.
    """
    try:
        for connection in connections:
            await connection.wait_closed()
        if server is not None:
            await asyncio.sleep(0)
    finally:
        if server is not None:
            server.close()
    if server is not None:
        for _ in range(_TURNS - 1):
            await asyncio.sleep(0)
        await server.wait_closed()
