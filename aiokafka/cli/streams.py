"""Pipes, rate limits, progress and missing topics, for `produce`, `consume` and `perf`."""

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

# -- Pipes
#
# Read stdin and write stdout without blocking the event loop, which has to send heartbeats. The
# descriptors stay in blocking mode, because the shell shares them. Therefore read and write only
# when the system reports a descriptor as ready, and write only what a ready pipe accepts.

_BLOCK = 1024 * 1024
# Number of bytes that a pipe accepts without blocking when the system reports it as ready.
_PIPE_WRITE_SIZE = getattr(select, "PIPE_BUF", 512)


async def read_blocks(fd: int) -> AsyncIterator[bytes]:
    """Yield blocks of bytes from a descriptor, as they arrive, until its end."""
    is_pollable = _is_pollable(fd)
    while True:
        if is_pollable:
            await _wait_until_ready(fd, writing=False)
            block, is_end = _read_ready(fd)
        else:
            block = await asyncio.to_thread(os.read, fd, _BLOCK)
            is_end = not block
        if block:
            yield block
        if is_end:
            return


def _read_ready(fd: int) -> tuple[bytes, bool]:
    """Read without waiting, up to a block; return the bytes and whether the end was reached.

    Several reads are necessary, because a pipe holds less than a block, and its writer may refill
    the pipe between two reads.
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
    """Writes to a descriptor. Raises BrokenPipeError when the reader has closed the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_pollable = _is_pollable(fd)

    async def write(self, data: bytes) -> None:
        """Write all of `data`. After a cancellation, a part may have been written."""
        rest = memoryview(data)
        while rest:
            if self._is_pollable:
                if not select.select((), (self._fd,), (), 0)[1]:
                    await _wait_until_ready(self._fd, writing=True)
                rest = rest[os.write(self._fd, rest[:_PIPE_WRITE_SIZE]) :]
            else:
                rest = rest[await asyncio.to_thread(os.write, self._fd, rest[:_BLOCK]) :]


def _is_pollable(fd: int) -> bool:
    """Return whether the event loop can wait for a descriptor: not for files, not on Windows."""
    mode = os.fstat(fd).st_mode
    if os.name == "nt":
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


async def _wait_until_ready(fd: int, *, writing: bool) -> None:
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
    """Limits a stream to a number of records per second; None for no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        #: Number of records between two calls of `wait`.
        self.step = 10_000 if rate is None else max(1, int(rate / 20))
        self._start: float | None = None
        self._count = 0

    async def wait(self, count: int) -> None:
        """Wait until the rate allows the next `count` records."""
        if self._rate is None:
            return
        now = time.monotonic()
        if self._start is None:
            self._start = now
        early = self._start + self._count / self._rate - now
        if early > 0:
            await asyncio.sleep(early)
        elif early < -1:
            # The source was slow. Do not exceed the rate to catch up.
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
        """Count records, and print if the last output is old enough."""
        self.records += records
        self.bytes += size
        if self._shown and (now := time.monotonic()) - self._printed >= 0.5:
            rate = (self.records - self._before) / (now - self._printed)
            self._printed, self._before = now, self.records
            self._print(f"{self._counts()}  {rate:,.0f} records/s", "\r")

    def end(self) -> None:
        """Print the totals and the average rates."""
        if self._shown:
            took = max(time.monotonic() - self._began, 1e-9)
            rates = f"{self.records / took:,.0f} records/s, {self.bytes / took / 1e6:,.1f} MB/s"
            self._print(f"{self._counts()} in {took:.1f} s: {rates}", "\n")

    def _counts(self) -> str:
        return f"{self._verb} {self.records:,} records, {self.bytes / 1e6:,.1f} MB"

    def _print(self, text: str, end: str) -> None:
        # On a terminal the line replaces the previous line.
        clear = "\x1b[K" if sys.stderr.isatty() else ""
        end = end if sys.stderr.isatty() else "\n"
        try:
            sys.stderr.write(f"{text}{clear}{end}")
            sys.stderr.flush()
        except OSError:
            # The reader of stderr has closed the pipe. Go on with the records.
            self._shown = False


# -- Topics that do not exist: print a line, and wait only if they may be created


# Seconds until missing topics are printed, and seconds from then until the error. The wait is for
# topics that were just created, which some brokers may not know yet.
_SECONDS_UNTIL_NOTE = _SECONDS_UNTIL_ERROR = 1.0

MayWait = Callable[["AIOKafkaAdminClient"], Coroutine[Any, Any, bool]]


async def find_to_send(session: Session, producer: AIOKafkaProducer, topic: str) -> None:
    """Wait for a topic to produce to.

    Raises UnknownTopicOrPartitionError if the topic is missing and brokers do not create topics.
    """
    may_wait = functools.partial(_may_be_created, session)
    await wait_for_topics(session, (topic,), producer.partitions_for(topic), may_wait)


async def wait_for_topics(
    session: Session, topics: Collection[str], work: Coroutine[Any, Any, Any], may_wait: MayWait
) -> None:
    """Run `work`, which waits until topics exist.

    After a second, prints the missing topics. If `may_wait` returns False, raises
    UnknownTopicOrPartitionError after another second.
    """

    async def do() -> None:
        await work
        raise _Done

    async def watch() -> None:
        await asyncio.sleep(_SECONDS_UNTIL_NOTE)
        error = await _error_of_absent(session, topics, may_wait)
        if error is not None:
            await asyncio.sleep(_SECONDS_UNTIL_ERROR)
            raise error

    with contextlib.suppress(_Done):
        await together((do(), watch()))


class _Done(Exception):
    """The work has ended, so cancel the watch."""


async def _error_of_absent(
    session: Session, topics: Collection[str], may_wait: MayWait
) -> KafkaError | None:
    """Print missing topics, and return the error to raise; None if no topic is missing, or if
    `may_wait` returns True."""
    try:
        async with session.admin_for_client() as admin:
            absent = await _absent(admin, topics)
            for topic in absent:
                text = f"topic {topic!r} is not there; waiting for it"
                note(f"aiokafka: {text}")
            if not absent or await may_wait(admin):
                return None
            return UnknownTopicOrPartitionError(f"no topic {absent[0]!r}")
    except KafkaError:
        return None  # `work` fails for the same reason


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
    """Return whether brokers create a topic when it is used; True if the setting is unknown."""
    from aiokafka.admin import ConfigKey

    if not session.client_options.get("allow_auto_create_topics", True):
        return False
    try:
        (broker, *_) = (await admin.brokers.describe_cluster()).brokers
        found = await admin.configs.describe([ConfigKey.broker(broker.id)])
    except KafkaError:
        return True  # the user may not describe brokers, or the brokers are too old
    settings = next(iter(found.values()))
    setting = settings.get("auto.create.topics.enable")
    return setting is None or setting.value != "false"
