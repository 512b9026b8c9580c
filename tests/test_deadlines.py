"""Deadlines of what is asked of brokers."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import pytest

from aiokafka._retry import within


@pytest.mark.skipif(sys.version_info < (3, 11), reason="its timers cancel at once")
async def test_a_response_that_came_while_the_process_stood_still_counts() -> None:
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe()
    response: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        loop.remove_reader(reader)
        response.set_result(os.read(reader, 1))

    async def ask() -> bytes:
        return await response

    loop.add_reader(reader, read)
    try:
        call = loop.create_task(within(loop.time() + 0.05, ask)())
        await asyncio.sleep(0)
        os.write(writer, b"x")
        time.sleep(0.1)  # noqa: ASYNC251 (the process is stopped)
        assert await call == b"x"
    finally:
        os.close(reader)
        os.close(writer)


async def test_no_response() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(asyncio.TimeoutError):
        await within(began + 0.02, loop.create_future)()
    assert loop.time() >= began + 0.02


async def test_a_deadline_in_the_past() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(asyncio.TimeoutError):
        await within(loop.time() - 1, loop.create_future)()


async def test_the_caller_cancels() -> None:
    loop = asyncio.get_running_loop()
    call = loop.create_task(within(loop.time() + 60, loop.create_future)())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
