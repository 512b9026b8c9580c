"""Pipes, rate limits, progress and missing topics: code that `produce`, `consume` and `perf`
share."""

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
# descriptors must stay in blocking mode, because other programs of the shell share them. Therefore
# read and write only after the system has reported a descriptor as ready, and write only as much as
# a ready pipe always accepts.

_BLOCK = 1024 * 1024
# Number of bytes that a pipe accepts without blocking if the system reports it as ready.
_PIPE_WRITE_SIZE = getattr(select, "PIPE_BUF", 512)


async def read_blocks(fd: int) -> AsyncIterator[bytes]:
    """Yield the bytes of a descriptor in blocks, as they arrive, up to its end."""
    is_pollable = _is_pollable(fd)
    is_file = stat.S_ISREG(os.fstat(fd).st_mode)
    while True:
        if is_pollable:
            await _wait_until_ready(fd, writing=False)
            block, is_end = _read_ready(fd)
        else:
            # A file has no writer to wait for, and starting a thread costs more than the read.
            block = os.read(fd, _BLOCK) if is_file else await asyncio.to_thread(os.read, fd, _BLOCK)
            is_end = not block
        if block:
            yield block
        if is_end:
            return


def _read_ready(fd: int) -> tuple[bytes, bool]:
    """Read without waiting, up to the size of a block. Return the bytes, and whether the end was
    reached.

    This takes several reads: a pipe holds less than a block, but its writer may fill the pipe again
    between two reads.
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
    """Writes to a descriptor. Raises BrokenPipeError if the reader has closed the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_pollable = _is_pollable(fd)

    async def write(self, data: bytes) -> None:
        """Write all of `data`. If the call is cancelled, a part of `data` may have been written."""
        rest = memoryview(data)
        while rest:
            if self._is_pollable:
                if not select.select((), (self._fd,), (), 0)[1]:
                    await _wait_until_ready(self._fd, writing=True)
                rest = rest[os.write(self._fd, rest[:_PIPE_WRITE_SIZE]) :]
            else:
                rest = rest[await asyncio.to_thread(os.write, self._fd, rest[:_BLOCK]) :]


def _is_pollable(fd: int) -> bool:
    """Return whether the event loop can wait for a descriptor: for pipes, sockets and terminals,
    but not on Windows."""
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
    """Limits a stream to `rate` records per second; None means no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        #: Largest number of records to send between two calls of `wait`.
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
            # The source is more than a second behind the rate. Shift the start, so that the rate is
            # not exceeded to catch up.
            self._start -= early
        self._count += count


class Progress:
    """Prints counts of records and bytes, and rates, on stderr, at most twice a second."""

    def __init__(self, verb: str, shown: bool) -> None:
        self._verb = verb
        #: Whether progress is printed. Becomes False if a write to stderr fails, for example if the
        #: reader of the pipe has closed it.
        self.is_shown = shown
        self.records = 0
        self.bytes = 0
        self._began = self._printed = time.monotonic()
        self._before = 0

    def add(self, records: int, size: int) -> None:
        """Count records and bytes. Print if the last output is at least half a second old."""
        self.records += records
        self.bytes += size
        if self.is_shown and (now := time.monotonic()) - self._printed >= 0.5:
            rate = (self.records - self._before) / (now - self._printed)
            self._printed, self._before = now, self.records
            self._print(f"{self._counts()}  {rate:,.0f} records/s", "\r")

    def end(self) -> None:
        """Print the totals and the average rates."""
        if self.is_shown:
            took = max(time.monotonic() - self._began, 1e-9)
            rates = f"{self.records / took:,.0f} records/s, {self.bytes / took / 1e6:,.1f} MB/s"
            self._print(f"{self._counts()} in {took:.1f} s: {rates}", "\n")

    def _counts(self) -> str:
        return f"{self._verb} {self.records:,} records, {self.bytes / 1e6:,.1f} MB"

    def _print(self, text: str, end: str) -> None:
        # On a terminal, each line overwrites the previous line.
        clear = "\x1b[K" if sys.stderr.isatty() else ""
        end = end if sys.stderr.isatty() else "\n"
        try:
            sys.stderr.write(f"{text}{clear}{end}")
            sys.stderr.flush()
        except OSError:
            self.is_shown = False  # the command goes on


# -- Topics that do not exist: print them, and wait for them only if they may be created


# Seconds until missing topics are printed, and from then until an error is raised. This time is for
# topics that were just created and that some brokers do not know yet.
_SECONDS_UNTIL_NOTE = _SECONDS_UNTIL_ERROR = 1.0

MayWait = Callable[["AIOKafkaAdminClient"], Coroutine[Any, Any, bool]]


async def find_to_send(session: Session, producer: AIOKafkaProducer, topic: str) -> None:
    """Wait until the topic to produce to exists.

    Raises UnknownTopicOrPartitionError if it does not exist and brokers do not create topics.
    """
    may_wait = functools.partial(_may_be_created, session)
    await wait_for_topics(session, (topic,), producer.partitions_for(topic), may_wait)


async def wait_for_topics(
    session: Session, topics: Collection[str], work: Coroutine[Any, Any, Any], may_wait: MayWait
) -> None:
    """Run `work`, which returns when the topics exist.

    If `work` has not returned after a second, prints the topics that do not exist. If then
    `may_wait` returns False, raises UnknownTopicOrPartitionError after another second.
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
    """The work has ended. Raised to cancel the check for missing topics."""


async def _error_of_absent(
    session: Session, topics: Collection[str], may_wait: MayWait
) -> KafkaError | None:
    """Print the missing topics, and return the error to raise; None if no topic is missing, or if
    `may_wait` returns True, or if the brokers cannot be queried."""
    try:
        async with session.admin_for_client() as admin:
            absent = await _absent(admin, topics)
            for topic in absent:
                text = f"topic {topic!r} does not exist; waiting for it"
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
    """Return whether brokers create a topic when it is used; True if their setting cannot be
    read."""
    from aiokafka.admin import ConfigKey

    if not session.client_options.get("allow_auto_create_topics", True):
        return False
    try:
        (broker, *_) = (await admin.brokers.describe_cluster()).brokers
        found = await admin.configs.describe([ConfigKey.broker(broker.id)])
    except KafkaError:
        return True  # the user may not describe the broker, or the broker is too old
    settings = next(iter(found.values()))
    setting = settings.get("auto.create.topics.enable")
    return setting is None or setting.value != "false"
