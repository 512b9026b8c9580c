"""Read stdin and write stdout beside the event loop, which has heartbeats to send meanwhile.

The descriptors stay blocking: making them non-blocking would do so for the shell as well. A read or
write is made when the system says that it will not block, of no more bytes than it then takes.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import AsyncIterator

__all__ = ["Writer", "read_blocks"]

_BLOCK = 1024 * 1024
# What a pipe that is ready takes at once.
_PIPE_TAKES = getattr(select, "PIPE_BUF", 512)


async def read_blocks(fd: int) -> AsyncIterator[bytes]:
    """Yield what a descriptor has, as it comes, until its end."""
    waits = _waits(fd)
    while True:
        if waits:
            await _ready(fd, writing=False)
            block, is_end = _read_ready(fd)
        else:
            block = await asyncio.to_thread(os.read, fd, _BLOCK)
            is_end = not block
        if block:
            yield block
        if is_end:
            return


def _read_ready(fd: int) -> tuple[bytes, bool]:
    """Return what can be read without waiting, up to a block, and whether that was the end.

    A pipe holds less than a block, and its writer may fill it again meanwhile.
    """
    parts: list[bytes] = []
    size = 0
    while size < _BLOCK:
        part = os.read(fd, _BLOCK - size)
        if not part:
            return b"".join(parts), True
        parts.append(part)
        size += len(part)
        if not select.select((fd,), (), (), 0)[0]:
            break
    return b"".join(parts), False


class Writer:
    """Writes to a descriptor. Raises BrokenPipeError when nothing reads it any more."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waits = _waits(fd)

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Cancelled, a part of it may have been written."""
        rest = memoryview(data)
        while rest:
            if self._waits:
                if not select.select((), (self._fd,), (), 0)[1]:
                    await _ready(self._fd, writing=True)
                rest = rest[os.write(self._fd, rest[:_PIPE_TAKES]) :]
            else:
                rest = rest[await asyncio.to_thread(os.write, self._fd, rest[:_BLOCK]) :]


def _waits(fd: int) -> bool:
    """Say whether the loop can wait for this descriptor: not for files, and not on Windows."""
    mode = os.fstat(fd).st_mode
    if os.name == "nt":
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


async def _ready(fd: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    add, remove = (
        (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    )
    add(fd, wake)
    try:
        await future
    finally:
        remove(fd)
