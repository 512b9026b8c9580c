"""`aiokafka produce`: sends records that it reads from stdin or files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import random
import stat
import sys
import time
from array import array
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.arguments import Finite
from aiokafka.cli.failures import PartlyFailedError, text_of
from aiokafka.cli.formats import (
    LONGEST,
    Cells,
    Headers,
    InputError,
    LineColumns,
    NewRecord,
    Parser,
    Reader,
    Splitter,
    as_bytes,
    json_parser,
    line_reader,
    raw,
)
from aiokafka.cli.output import note
from aiokafka.cli.running import CLEANUP_TIMEOUT
from aiokafka.cli.session import Session, command
from aiokafka.cli.streams import Limit, Progress, find_to_send, read_blocks
from aiokafka.errors import KafkaError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.producer.batch_builder import BatchBuilder
    from aiokafka.record.rows import BinarySource, HeaderSource, RowSource

_BATCH = 256 * 1024
# If at least this number of lines is read at once, batches are built here. Fewer lines are sent one
# by one, and the producer batches them (--linger).
_MIN_BATCH_LINES = 100


class Sending:
    """Sends records without waiting for each acknowledgement, and checks the results in order.

    If many lines are read at once, builds batches of them, one for each partition, which the
    producer sends as they are.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        progress: Progress,
        partition: int | None,
        session: Session,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._progress = progress
        self._partition = partition
        self._session = session
        self._batches_fit: bool | None = None
        self._keyless_partition = random.randrange(1_000_000)
        # Batches that are not sent yet, by partition, each with the position of its first record in
        # the input (from 1). If no line of a read has a key, its lines go to the partition ANY: the
        # producer chooses the partition when the batch is sent.
        self._open: dict[int, tuple[BatchBuilder, int]] = {}
        self._read_count = 0
        # Futures of sent records or batches, each with the position of its first record in the
        # input (from 1), and its number of records.
        self._pending: deque[tuple[asyncio.Future[Any], int, int]] = deque()
        #: Number of records that brokers have acknowledged.
        self.delivered = 0

    async def lines(self, lines: Sequence[bytes], read: Reader) -> None:
        """Send lines that `read` converts to records. Batches that are not full are sent by
        `flush`."""
        columns = read(lines)
        if len(lines) >= _MIN_BATCH_LINES and await self._may_batch():
            await self._batch(columns)
            self._read_count += len(lines)
        else:
            await self._send_each(_records_of(columns, self._partition))
        self._count_progress(lines)

    async def records(self, lines: Sequence[bytes], parse: Parser) -> None:
        """Send the record that `parse` returns for each line."""
        await self._send_each(map(parse, lines))
        self._count_progress(lines)

    async def _send_each(self, records: Iterable[NewRecord]) -> None:
        await self.flush()  # first send the earlier records in open batches
        send, topic = self._producer.send, self._topic
        try:
            for value, key, partition, timestamp_ms, headers in records:
                future = await send(topic, value, key, partition, timestamp_ms, headers)
                self._read_count += 1
                self._pending.append((future, self._read_count, 1))
        except KafkaError as error:
            raise self._refused(self._read_count + 1, error) from error

    # -- batches

    async def _may_batch(self) -> bool:
        """Return whether the topic accepts full batches, as far as is known.

        The producer splits its own batches if the broker rejects them as too large, but not batches
        that are built here.
        """
        if self._batches_fit is None:
            self._batches_fit = await _accepts_full_batches(self._session, self._topic)
        return self._batches_fit

    async def _batch(self, columns: LineColumns) -> None:
        # Imported here, as in `_column`: --help does without the modules of record batches.
        from aiokafka.record.rows import route_rows

        rows = _row_source(columns)
        partitions = 1
        if columns.keys is not None and self._partition is None:
            partitions = len(await self._producer.partitions_for(self._topic))
        order, routes = route_rows(rows, partitions, self._chosen_partitions(columns, partitions))
        numbers = memoryview(order).cast("i")
        for partition, start, stop in routes:
            while start < stop:
                if partition not in self._open:
                    number = self._read_count + numbers[start] + 1
                    self._open[partition] = (self._producer.create_batch(), number)
                start = self._open[partition][0].append_rows(rows, order, start, stop)
                if start < stop:
                    await self._send_batch(partition)

    def _chosen_partitions(self, columns: LineColumns, partitions: int) -> memoryview | None:
        """Return the partition of each record as int32, -1 if its key determines the partition.

        Returns None if no partition is chosen here: all records have a key, or no record has one.
        """
        if self._partition is not None:
            found = array("i", (self._partition,)) * len(columns.values)
        elif columns.keys is not None and None in columns.keys:
            # Choose one partition here for the records without a key. If the producer chose it,
            # they would be in a batch of their own, and would not keep their order relative to
            # records with a key.
            self._keyless_partition = (self._keyless_partition + 1) % partitions
            keyless = self._keyless_partition
            found = array("i", [keyless if key is None else -1 for key in columns.keys])
        else:
            return None
        return memoryview(found).cast("B")

    async def flush(self) -> None:
        """Send the open batches to the producer."""
        while self._open:
            await self._send_batch(next(iter(self._open)))

    async def _send_batch(self, partition: int) -> None:
        batch, number = self._open.pop(partition)
        batch.close()
        from aiokafka.record.rows import ANY

        target = None if partition == ANY else partition
        try:
            future = await self._producer.send_batch(batch, self._topic, partition=target)
        except KafkaError as error:
            raise self._refused(number, error) from error
        self._pending.append((future, number, batch.record_count()))

    # -- results

    def _refused(self, number: int, error: KafkaError) -> KafkaError:
        """Return an error for record `number`. If an earlier record has failed, raise its error."""
        self.check()
        return _undelivered(number, error)

    def _count_progress(self, lines: Sequence[bytes]) -> None:
        self._progress.add(len(lines), sum(map(len, lines)))
        self.check()

    def check(self) -> None:
        """Raise the error of the first record that has failed. Add the number of records that were
        delivered before it to `delivered`."""
        pending = self._pending
        while pending and pending[0][0].done():
            future, number, count = pending.popleft()
            try:
                future.result()
            except KafkaError as error:
                raise _undelivered(number, error) from error
            self.delivered += count

    async def finish(self) -> None:
        """Send the open batches, and wait until brokers have acknowledged all records.

        Raises the error of the first record that has failed.
        """
        await self.flush()
        await self._producer.flush()
        # After `flush`, all futures are done.
        self.check()

    def forget(self) -> None:
        """Mark the errors of the remaining futures as retrieved, so that asyncio does not log
        them."""
        for future, _, _ in self._pending:
            if future.done() and not future.cancelled():
                future.exception()


def _records_of(columns: LineColumns, partition: int | None) -> Iterator[NewRecord]:
    keys = columns.keys if columns.keys is not None else repeat(None)
    for value, key in zip(columns.values, keys, strict=False):
        yield NewRecord(value, key, partition, None, columns.headers)


def _row_source(columns: LineColumns) -> RowSource:
    from aiokafka.record.rows import RowSource

    values, keys, headers = columns
    return RowSource(
        _column(values),
        None if keys is None else _column(keys),
        _header_source(headers, len(values)) if headers else None,
        int(time.time() * 1000),
    )


def _column(cells: Cells) -> BinarySource:
    from aiokafka.record.rows import BinarySource

    validity = None
    if None in cells:
        validity = bytearray((len(cells) + 7) // 8)
        for row, cell in enumerate(cells):
            if cell is not None:
                validity[row >> 3] |= 1 << (row & 7)
    data = [cell or b"" for cell in cells]
    ends = array("i", accumulate(map(len, data), initial=0))
    return BinarySource(len(data), memoryview(ends).cast("B"), b"".join(data), validity)


def _header_source(headers: Headers, count: int) -> HeaderSource:
    from aiokafka.record.rows import HeaderSource

    names = _column([name.encode() for name, _ in headers] * count)
    values = _column([value for _, value in headers] * count)
    ends = array("i", range(0, (count + 1) * len(headers), len(headers)))
    return HeaderSource(count, memoryview(ends).cast("B"), names, values)


Send = Callable[[Sending, Sequence[bytes]], Awaitable[None]]


def _undelivered(number: int, error: KafkaError) -> KafkaError:
    return PartlyFailedError([f"record {number} was not delivered: {text_of(error)}"], error)


async def pieces_of(
    files: Sequence[str], delimiter: bytes | None, *, whole: bool
) -> AsyncGenerator[list[bytes], None]:
    """Yield the pieces of the input, in lists, one file after the other; `-` is stdin.

    With `whole`, each file is a piece. Otherwise a piece ends at the delimiter, or is a line if
    `delimiter` is None. Raises InputError for a piece that is longer than `LONGEST`.
    """
    for name in files:
        async with _opened(name) as fd:
            splitter = Splitter(delimiter)
            content: list[bytes] = []
            size = 0
            async for block in read_blocks(fd):
                if whole:
                    content.append(block)
                    size += len(block)
                    if size > LONGEST:
                        raise InputError(f"{name}: is longer than {LONGEST} bytes")
                elif pieces := splitter.feed(block):
                    yield pieces
            rest = [b"".join(content)] if whole else splitter.end()
            if rest:
                yield rest


@contextlib.asynccontextmanager
async def _opened(name: str) -> AsyncIterator[int]:
    if name == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed; name files")
        yield sys.stdin.fileno()
        return
    mode = os.stat(name).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    fd = await _open_pipe(name) if stat.S_ISFIFO(mode) else os.open(name, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


async def _open_pipe(name: str) -> int:
    """Open a named pipe in a thread, because opening blocks until another process writes to it."""
    opening = asyncio.get_running_loop().run_in_executor(None, os.open, name, os.O_RDONLY)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The program would wait for the thread at exit. Open the pipe for writing, so that
        # `os.open` in the thread returns.
        writer = os.open(name, os.O_RDWR)
        os.close(await opening)
        os.close(writer)
        raise


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"--header {text!r}: must be NAME=VALUE")
    return name, raw(value) if equals else None


def _warn_of_no_key(line: int) -> None:
    note(f"aiokafka: record {line} has no key delimiter: such lines are sent as values without key")


def _sender(given: dict[str, Any]) -> Send:
    """Check the options of the command; return the function that sends a list of lines."""
    if given["as_json"]:
        plain = (given["key"], given["key_delimiter"], *given["headers"])
        if given["null"] or given["whole"] or any(each is not None for each in plain):
            raise click.UsageError(
                "--json: lines have their own keys, headers and nulls; leave out -k, -K, -H, -Z "
                "and --whole"
            )
        parse = json_parser(
            partition=given["partition"],
            keep_partitions=given["keep_partitions"],
            keep_timestamps=given["keep_timestamps"] is not False,
        )
        return lambda sending, lines: sending.records(lines, parse)
    if given["keep_partitions"] or given["keep_timestamps"] is not None:
        raise click.UsageError(
            "--keep-partitions, --keep-timestamps and --new-timestamps: need --json"
        )
    delimiter = given["key_delimiter"]
    read = line_reader(
        None if delimiter is None else as_bytes(delimiter),
        key=None if given["key"] is None else raw(given["key"]),
        headers=[_header(text) for text in given["headers"]] or None,
        empty_is_null=given["null"],
        warn=None if given["key"] is not None else _warn_of_no_key,
    )
    return lambda sending, lines: sending.lines(lines, read)


@command(None, "produce", prints=False)
@click.argument("topic")
@click.argument("files", nargs=-1)
@click.option("-D", "--delimiter", help="Text between records; default: a line break.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Text between key and value of a line.")
@click.option("-k", "--key", help="Key of all records.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of all records."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Each line is JSON as `consume --json` prints it."
)
@click.option(
    "--keep-partitions", is_flag=True, help="With --json: send to the partitions in the input."
)
@click.option(
    "--keep-timestamps/--new-timestamps",
    default=None,
    help="With --json: keep the timestamps in the input (default), or not.",
)
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option("-Z", "--null", is_flag=True, help="Send an empty key or value as null.")
@click.option(
    "-p", "--partition", type=click.IntRange(0), help="Send all records to this partition."
)
@click.option("-c", "--count", type=click.IntRange(1), help="Send at most this many records.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["gzip", "snappy", "lz4", "zstd"]),
    help="Codec of the batches; default: no compression.",
)
@click.option("--level", type=int, help="Compression level.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Replicas that must have a record: none, the leader, or all in sync.",
)
@click.option(
    "--linger",
    type=float,
    default=5,
    show_default=True,
    metavar="MS",
    help="Time to wait for more records in a batch.",
)
@click.option("--transactional-id", metavar="ID", help="Send in transactions.")
@click.option(
    "--transaction-size",
    type=click.IntRange(1),
    metavar="N",
    help="Records per transaction; default: one transaction for all.",
)
@click.option("--rate", type=Finite(0, min_open=True), metavar="N", help="Records per second.")
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Print rates on stderr; default: if it is a terminal.",
)
async def commands(session: Session, topic: str, files: tuple[str, ...], **given: Any) -> None:
    """Send each line of stdin, or of FILES, as a record to TOPIC.

    The command ends when brokers have acknowledged all records. It fails at the first record that
    cannot be delivered. After Ctrl-C, it delivers the records that it has read, or aborts the
    transaction.

    \b
    Example:
      seq 1000 | aiokafka produce numbers
      aiokafka produce users users.txt --key-delimiter : --compression zstd
    """
    if given["transaction_size"] is not None and given["transactional_id"] is None:
        raise click.UsageError("--transaction-size: needs --transactional-id")
    send = _sender(given)
    delimiter = None if given["delimiter"] is None else as_bytes(given["delimiter"])
    source = pieces_of(files or ("-",), delimiter, whole=given["whole"])
    shown = given["progress"]
    progress = Progress("produced", sys.stderr.isatty() if shown is None else shown)
    options = {**_producer_options(given), "max_batch_size": _batch_size(session)}
    producer = session.producer(**options)
    await producer.start()
    sending = Sending(producer, topic, progress, given["partition"], session)
    found = functools.partial(find_to_send, session, producer, topic)
    try:
        if given["transactional_id"] is None:
            await _send_all(sending, _find_topic_first(found, source), send, given)
            await sending.finish()
        else:
            await _in_transactions(producer, sending, _find_topic_first(found, source), send, given)
    except asyncio.CancelledError:
        await producer.stop(CLEANUP_TIMEOUT)  # also aborts an open transaction
        if given["transactional_id"] is None:
            sending.check()
        raise
    finally:
        await source.aclose()
        await producer.stop()
        sending.forget()
        progress.end()


async def _find_topic_first(
    found: Callable[[], Awaitable[None]], source: AsyncIterator[list[bytes]]
) -> AsyncIterator[list[bytes]]:
    """Yield the pieces of `source`. Before the first one, await `found()`, which waits for the
    topic."""
    is_first = True
    async for pieces in source:
        if is_first:
            await found()
            is_first = False
        yield pieces


def _producer_options(given: dict[str, Any]) -> dict[str, Any]:
    acks = given["acks"]
    found: dict[str, Any] = {
        "acks": acks if acks == "all" else int(acks),
        "compression_type": given["compression"],
        "compression_level": given["level"],
        "linger_ms": given["linger"],
    }
    if acks != "all":
        found["enable_idempotence"] = False
    if given["transactional_id"] is not None:
        found["transactional_id"] = given["transactional_id"]
    return found


def _batch_size(session: Session) -> int:
    """Return the size of full batches in bytes, limited by `max_request_size` and by half of
    `buffer_memory`."""
    size = _BATCH
    for name, share in (("max_request_size", 1), ("buffer_memory", 2)):
        limit = session.client_options.get(name)
        if isinstance(limit, int):
            size = min(size, max(1, limit // share))
    return size


async def _accepts_full_batches(session: Session, topic: str) -> bool:
    """Return whether full batches fit into `max.message.bytes` of the topic.

    The limit applies to the compressed size, which is not known in advance. Therefore this compares
    the uncompressed size, which may be larger. Returns True if the limit is not known.
    """
    from aiokafka.admin import ConfigKey

    size = session.client_options.get("max_batch_size", _batch_size(session))
    try:
        async with session.admin_for_client() as admin:
            found = await admin.configs.describe([ConfigKey.topic(topic)])
    except KafkaError:
        return True  # the user may not describe the topic, or brokers are too old
    limit = found[ConfigKey.topic(topic)].get("max.message.bytes")
    return limit is None or limit.value is None or size <= int(limit.value)


async def _parts(
    source: AsyncIterator[list[bytes]], given: dict[str, Any]
) -> AsyncIterator[tuple[list[bytes], bool]]:
    """Yield (pieces, has_next), in portions that keep to --rate and --count. If `has_next` is True,
    the next portion follows at once, without waiting for input or the rate."""
    limit = Limit(given["rate"])
    left = given["count"]
    async for pieces in source:
        for start in range(0, len(pieces), limit.step):
            part = pieces[start : start + limit.step]
            if left is not None:
                part = part[:left]
                left -= len(part)
            await limit.wait(len(part))
            yield part, given["rate"] is None and start + limit.step < len(pieces)
            if left == 0:
                return


async def _send_all(
    sending: Sending,
    source: AsyncIterator[list[bytes]],
    send: Send,
    given: dict[str, Any],
) -> None:
    async for part, has_next in _parts(source, given):
        await _complete(send(sending, part), sending)
        if not has_next:
            await sending.flush()


async def _complete(work: Awaitable[None], sending: Sending) -> None:
    """Await `work`, which sends a list of pieces. After a signal, it still sends the whole list,
    within CLEANUP_TIMEOUT, so that no record is missing between records that were sent."""
    ended = asyncio.gather(work)
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_flushed(ended, sending), CLEANUP_TIMEOUT)
        raise


async def _flushed(ended: asyncio.Future[Any], sending: Sending) -> None:
    await ended
    await sending.flush()


async def _in_transactions(
    producer: AIOKafkaProducer,
    sending: Sending,
    source: AsyncIterator[list[bytes]],
    send: Send,
    given: dict[str, Any],
) -> None:
    """Send records in transactions of `transaction_size` records, or in one transaction for all
    records. If an error or signal ends the command, abort the open transaction."""
    size = given["transaction_size"]
    left = size
    is_open = False
    try:
        async for part, has_next in _parts(source, given):
            while part:
                if not is_open:
                    await producer.begin_transaction()
                    is_open, left = True, size
                now = part if left is None else part[:left]
                part = part[len(now) :]
                await send(sending, now)
                left = None if left is None else left - len(now)
                if left == 0:
                    await sending.finish()
                    await producer.commit_transaction()
                    is_open = False
            if not has_next:
                await sending.flush()
        if is_open:
            await sending.finish()
            await producer.commit_transaction()
            is_open = False
    except asyncio.CancelledError:
        is_open = False  # `producer.stop(CLEANUP_TIMEOUT)` aborts the transaction
        raise
    finally:
        if is_open:
            await producer.abort_transaction()
