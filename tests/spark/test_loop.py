"""The event loop of a process, and clients that its tasks share."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokafka._loading import is_compiled
from aiokafka.spark._loop import LoopThread, SharedClients


class Thing:
    """Stands for a client."""

    def __init__(self) -> None:
        self.is_closed = False


async def make() -> Thing:
    await asyncio.sleep(0)
    return Thing()


async def close(thing: Thing) -> None:
    thing.is_closed = True


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop()


def test_it_runs_elsewhere(thread: LoopThread) -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    assert thread.run(where()) is not threading.current_thread()


def test_errors_come_back(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        thread.run(fail())


def test_plain_sources_are_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aiokafka.spark"):
        LoopThread().stop()
    assert ("aiokafka as pure Python" in caplog.text) is not is_compiled()


_FORK = """
import asyncio, os
from aiokafka.spark._loop import loop_thread

mine = loop_thread()
assert loop_thread() is mine
child = os.fork()
if child == 0:
    other = loop_thread()
    works = other is not mine and other.run(asyncio.sleep(0, result=True))
    os._exit(0 if works else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
mine.stop()
assert loop_thread() is not mine
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_one_for_each_process() -> None:
    paths = [str(Path(__file__).parent.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    subprocess.run([sys.executable, "-c", _FORK], env=environment, check=True, timeout=30)


async def test_clients_are_shared_and_closed_when_idle() -> None:
    clients = SharedClients()
    async with clients.use("a", make, close, 60) as first:
        async with (
            clients.use("a", make, close, 60) as again,
            clients.use("b", make, close, 60) as other,
        ):
            assert again is first
            assert other is not first
    async with clients.use("a", make, close, 0.01) as third:
        assert third is first
    while not first.is_closed:
        await asyncio.sleep(0.01)
    assert not other.is_closed
    async with clients.use("a", make, close, 60) as fourth:
        assert fourth is not first
    await clients.close()
    assert fourth.is_closed and other.is_closed


async def test_two_that_come_at_once_get_one() -> None:
    clients = SharedClients()
    found = []

    async def user() -> None:
        async with clients.use("a", make, close, 60) as thing:
            found.append(thing)

    await asyncio.gather(user(), user(), user())
    assert len(set(map(id, found))) == 1
    await clients.close()


async def test_what_failed_is_not_used_again() -> None:
    clients = SharedClients()
    with pytest.raises(ValueError):
        async with clients.use("a", make, close, 60) as first:
            raise ValueError
    assert first.is_closed
    async with clients.use("a", make, close, 60) as second:
        assert second is not first
    await clients.close()


async def test_a_client_that_cannot_be_made() -> None:
    clients = SharedClients()

    async def fail() -> Thing:
        raise OSError("no broker")

    for _ in range(2):
        with pytest.raises(OSError):
            async with clients.use("a", fail, close, 60):
                raise AssertionError
    assert not len(clients)
    await clients.close()


async def test_nothing_is_kept_of_a_client_that_was_closed() -> None:
    """Not its settings either, of which a long life may see many."""
    clients = SharedClients()
    settings = Thing()
    kept = weakref.ref(settings)
    with pytest.raises(ValueError):
        async with clients.use(settings, make, close, 60):
            raise ValueError
    del settings
    gc.collect()
    assert kept() is None
    await clients.close()


async def test_a_client_that_does_not_close_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and the others are closed all the same."""
    clients = SharedClients()

    async def fail(thing: Thing) -> None:
        raise OSError("gone")

    async with clients.use("a", make, fail, 60), clients.use("b", make, close, 60) as other:
        pass
    await clients.close()
    assert other.is_closed
    assert "A client was not closed cleanly: gone" in caplog.text


async def test_a_client_that_fails_while_another_uses_it() -> None:
    """The other one goes on with it, and closes it; who comes then gets a new one."""
    clients = SharedClients()
    async with clients.use("a", make, close, 60) as first:
        with pytest.raises(ValueError):
            async with clients.use("a", make, close, 60) as same:
                raise ValueError
        assert same is first and not first.is_closed
        async with clients.use("a", make, close, 60) as second:
            assert second is not first
    assert first.is_closed and not second.is_closed
    await clients.close()
    assert second.is_closed


def test_who_waits_is_told_that_the_loop_has_stopped() -> None:
    thread = LoopThread()
    is_waiting = threading.Event()
    told: list[BaseException] = []

    async def wait() -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    def ask() -> None:
        try:
            thread.run(wait())
        except RuntimeError as error:
            told.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert is_waiting.wait(10)
    thread.stop()
    asking.join(10)
    assert not asking.is_alive()
    assert "stopped" in str(told[0])
