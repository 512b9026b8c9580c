"""Streams of records, for `produce`, `consume` and `perf`: pipes, rates and missing topics."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import select
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from aiokafka._tasks import together
from aiokafka.cli.output import note
from aiokafka.errors import AdminItemsError, KafkaError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.cli.session import Session

__all__ = ["Limit", "Progress", "Writer", "find_to_send", "read_blocks", "while_absent"]

# -- Pipes
#
# Read stdin and write stdout beside the event loop, which has heartbeats to send meanwhile. The
# descriptors stay blocking: making them non-blocking would do so for the shell as well. A read or
# write is made when the system says that it will not block, of no more bytes than it then takes.

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


# -- Rate limit and progress


class Limit:
    """Holds a stream to so many records per second; None is no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        #: How many records to handle between two calls of `wait`.
        self.step = 10_000 if rate is None else max(1, int(rate / 20))
        self._start: float | None = None
        self._count = 0

    async def wait(self, count: int) -> None:
        """Wait until the next `count` records may go."""
        if self._rate is None:
            return
        now = time.monotonic()
        if self._start is None:
            self._start = now
        early = self._start + self._count / self._rate - now
        if early > 0:
            await asyncio.sleep(early)
        elif early < -1:
            # The source was slow. What it missed is not made up for.
            self._start -= early
        self._count += count


class Progress:
    """Prints records, bytes and rates on stderr, at most twice a second."""

    def __init__(self, verb: str, shown: bool) -> None:
        self._verb = verb
        self._shown = shown
        self.records = 0
        self.bytes = 0
        self._began = self._printed = time.monotonic()
        self._before = 0

    def add(self, records: int, size: int) -> None:
        """Count records, and print if it is time."""
        self.records += records
        self.bytes += size
        if self._shown and (now := time.monotonic()) - self._printed >= 0.5:
            rate = (self.records - self._before) / (now - self._printed)
            self._printed, self._before = now, self.records
            self._print(f"{self._counts()}  {rate:,.0f} records/s", "\r")

    def end(self) -> None:
        """Print the sums."""
        if self._shown:
            took = max(time.monotonic() - self._began, 1e-9)
            rates = f"{self.records / took:,.0f} records/s, {self.bytes / took / 1e6:,.1f} MB/s"
            self._print(f"{self._counts()} in {took:.1f} s: {rates}", "\n")

    def _counts(self) -> str:
        return f"{self._verb} {self.records:,} records, {self.bytes / 1e6:,.1f} MB"

    def _print(self, text: str, end: str) -> None:
        # On a terminal the line before is drawn over.
        clear = "\x1b[K" if sys.stderr.isatty() else ""
        end = end if sys.stderr.isatty() else "\n"
        try:
            sys.stderr.write(f"{text}{clear}{end}")
            sys.stderr.flush()
        except OSError:
            # Its reader has gone. The records go on: that is what the command is for.
            self._shown = False


# -- Topics that do not exist: say so, and wait only if something may create them


# Seconds without a word, and then for a topic that was made a moment ago to turn up.
_SILENT = _TURNS_UP = 1.0

Waits = Callable[["AIOKafkaAdminClient"], Coroutine[Any, Any, bool]]


async def find_to_send(session: Session, producer: AIOKafkaProducer, topic: str) -> None:
    """Wait for the topic that records are to go to, unless nothing creates it.

    Raises UnknownTopicOrPartitionError.
    """
    waits = functools.partial(_may_be_created, session)
    await while_absent(session, (topic,), producer.partitions_for(topic), waits)


async def while_absent(
    session: Session, topics: Collection[str], work: Coroutine[Any, Any, Any], waits: Waits
) -> None:
    """Do `work`, which begins with a wait for topics.

    After a second stderr has a line about those that are not there. Raises
    UnknownTopicOrPartitionError after another one, unless `waits` says that they are waited for.
    """

    async def do() -> None:
        await work
        raise _Done

    async def watch() -> None:
        await asyncio.sleep(_SILENT)
        error = await _look(session, topics, waits)
        if error is not None:
            await asyncio.sleep(_TURNS_UP)
            raise error

    with contextlib.suppress(_Done):
        await together((do(), watch()))


class _Done(Exception):
    """The work has ended, and so does the watch."""


async def _look(session: Session, topics: Collection[str], waits: Waits) -> KafkaError | None:
    """Print which topics are not there; return the error if it makes no sense to wait for them."""
    try:
        async with session.admin_beside() as admin:
            absent = await _absent(admin, topics)
            for topic in absent:
                text = f"topic {topic!r} is not there; waiting for it"
                note(f"aiokafka: {text}")
            if not absent or await waits(admin):
                return None
            return UnknownTopicOrPartitionError(f"no topic {absent[0]!r}")
    except KafkaError:
        return None  # The work will say what is wrong.


async def _absent(admin: AIOKafkaAdminClient, topics: Collection[str]) -> list[str]:
    try:
        await admin.topics.describe(topics)
    except UnknownTopicOrPartitionError:
        return list(topics)
    except AdminItemsError as error:
        unknown = UnknownTopicOrPartitionError
        return [str(name) for name, each in error.errors.items() if isinstance(each, unknown)]
    return []


async def _may_be_created(session: Session, admin: AIOKafkaAdminClient) -> bool:
    """Say whether a topic is created because records are sent to it, as far as brokers tell."""
    from aiokafka.admin import ConfigKey

    if not session.client_options.get("allow_auto_create_topics", True):
        return False
    try:
        (broker, *_) = (await admin.brokers.describe_cluster()).brokers
        found = await admin.configs.describe([ConfigKey.broker(broker.id)])
    except KafkaError:
        return True  # It may not be asked, or is too old to tell.
    settings = next(iter(found.values()))
    setting = settings.get("auto.create.topics.enable")
    return setting is None or setting.value != "false"
