"""Closing servers without leaving a socket behind."""

from __future__ import annotations

import asyncio

_TURNS = 10


async def close_server(server: asyncio.AbstractServer | None) -> None:
    """Wait until a server that was told to close has let go of everything.

    A connection that was accepted in the same turn of the loop reaches its handler a few turns
    later, and its socket is closed a few turns after that.
    """
    if server is None:
        return
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    await server.wait_closed()
