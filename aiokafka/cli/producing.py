"""`aiokafka produce`: sends records that it reads from stdin or files."""

from __future__ import annotations

import asyncio
import bisect
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
    Sequence,
)
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from aiokafka.cli.arguments import Finite
from aiokafka.cli.failures import PartlyFailedError, text_of
from aiokafka.cli.formats import (
    LONGEST,
    NO_KEY_OR_VALUE,
    Cells,
    Headers,
    InputError,
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
from aiokafka.errors import BrokerResponseError, KafkaError, UnsupportedVersionError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.producer.batch_builder import BatchBuilder
    from aiokafka.record.rows import BinarySource, HeaderSource, RowSource

_BATCH = 256 * 1024
# If at least this number of lines is read at once, batches are built here. Fewer lines are sent one
# by one, and the producer batches them (--linger).
_MIN_BATCH_LINES = 100
# The resource type of topics in DescribeConfigs, and the topic setting that limits the size of a
# batch.
_TOPIC, _LIMIT = 2, "max.message.bytes"
# Errors that `send` and `send_batch` of the producer raise for an invalid record.
_REFUSALS = (KafkaError, ValueError, TypeError)


class Origins:
    """Names records by their file and line, for errors. The number of a record is its position in
    the whole input, from 1."""

    def __init__(self, *, lines: bool = True, whole: bool = False) -> None:
        """`lines`: the records are lines. `whole`: each file is one record."""
        self._lines = lines
        self._whole = whole
        # For each file: its name, and the number of records before it.
        self._names: list[str] = []
        self._starts: list[int] = []
        self._count = 0

    def begin(self, name: str) -> None:
        """Start the next file; `-` is stdin."""
        self._names.append("stdin" if name == "-" else name)
        self._starts.append(self._count)

    def add(self, count: int) -> None:
        """Add the next `count` records of the file."""
        self._count += count

    def of(self, number: int) -> str:
        """Return the place of a record: its file, and its line or its number in the file."""
        index = bisect.bisect_left(self._starts, number) - 1
        name, place = self._names[index], number - self._starts[index]
        if self._whole:
            return name
        return f"{name}:{place}" if self._lines else f"{name}, record {place}"

    def error(self, error: InputError) -> InputError:
        """Return `error` with the file and the line of the next record, which is not added yet."""
        return InputError(f"{self.of(self._count + 1)}: {error}")


class Numbers:
    """The numbers of the records in a batch: their positions in the whole input, from 1."""

    def __init__(self) -> None:
        # For each read of lines: the number of records before the read, and the indexes of this
        # batch's records in the read.
        self._slices: list[tuple[int, memoryview]] = []

    def add(self, before: int, rows: memoryview) -> None:
        """Add records of one read. `before` is the number of records before the read, `rows` are
        the indexes of the records in the read."""
        self._slices.append((before, rows))

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._slices)

    def __getitem__(self, index: int) -> int:
        for before, rows in self._slices:
            if index < len(rows):
                return int(before + rows[index] + 1)
            index -= len(rows)
        raise IndexError("no such record in the batch")


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
        origins: Origins,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._progress = progress
        self._partition = partition
        self._session = session
        self._origins = origins
        self._batches_fit: bool | None = None
        self._keyless_partition = random.randrange(1_000_000)
        # Batches that are not sent yet, by partition, each with the numbers of its records. If no
        # record of a read has a key or a partition, its records go to the partition ANY: the
        # producer chooses the partition when the batch is sent.
        self._open: dict[int, tuple[BatchBuilder, Numbers]] = {}
        self._read_count = 0
        # Futures of sent records or batches, each with the numbers of its records.
        self._pending: deque[tuple[asyncio.Future[Any], Numbers | tuple[int]]] = deque()
        #: Number of records that brokers have acknowledged.
        self.delivered = 0

    async def lines(self, lines: Sequence[bytes], read: Reader) -> None:
        """Send lines that `read` converts to records. Batches that are not full are sent by
        `flush`."""
        values, keys, headers = read(lines)
        count = _count_until_empty(values, keys)
        if count < len(lines):
            values, keys = values[:count], None if keys is None else keys[:count]
        if count >= _MIN_BATCH_LINES and await self._may_batch():
            rows = _rows(values, keys, [headers] * count if headers else None)
            await self._batch(rows, keys)
        else:
            await self._send_each(
                (value, key, self._partition, None, headers)
                for value, key in zip(values, keys or repeat(None), strict=False)
            )
        if count < len(lines):
            await self._refuse_next(NO_KEY_OR_VALUE)
        self._count_progress(lines)

    async def records(self, lines: Sequence[bytes], parse: Parser) -> None:
        """Send the record that `parse` returns for each line. Batches that are not full are sent by
        `flush`."""
        records: list[NewRecord] = []
        refusal: str | None = None
        for line in lines:
            try:
                records.append(parse(line))
            except InputError as error:
                refusal = str(error)
                break
        # A batch for a partition that does not exist would fail only after later records were sent.
        highest = max((each.partition for each in records if each.partition is not None), default=0)
        if (
            len(records) >= _MIN_BATCH_LINES
            and (not highest or highest in await self._producer.partitions_for(self._topic))
            and await self._may_batch()
        ):
            values, keys, partitions, times, headers = zip(*records, strict=True)
            rows = _rows(values, keys, headers if any(headers) else None, times)
            await self._batch(
                rows,
                keys if any(key is not None for key in keys) else None,
                partitions if any(each is not None for each in partitions) else None,
            )
        else:
            await self._send_each(records)
        if refusal is not None:
            await self._refuse_next(refusal)
        self._count_progress(lines)

    async def _send_each(self, records: Iterable[NewRecord | tuple[Any, ...]]) -> None:
        await self.flush()  # first send the earlier records in open batches
        send, topic = self._producer.send, self._topic
        try:
            for value, key, partition, timestamp_ms, headers in records:
                future = await send(topic, value, key, partition, timestamp_ms, headers)
                self._read_count += 1
                self._pending.append((future, (self._read_count,)))
        except _REFUSALS as error:
            raise self._refused(self._read_count + 1, error) from error

    async def _refuse_next(self, text: str) -> NoReturn:
        """Send the open batches, and raise InputError for the next record, which is invalid."""
        await self.flush()
        self.check()
        raise InputError(f"{self._origins.of(self._read_count + 1)}: {text}")

    # -- batches

    async def _may_batch(self) -> bool:
        """Return whether the topic accepts full batches, as far as is known.

        The producer splits its own batches if the broker rejects them as too large, but not batches
        that are built here.
        """
        if self._batches_fit is None:
            size = self._session.client_options.get("max_batch_size", _batch_size(self._session))
            self._batches_fit = await _accepts_batches(self._producer, self._topic, size)
        return self._batches_fit

    async def _batch(
        self, rows: RowSource, keys: Cells | None, partitions: Sequence[int | None] | None = None
    ) -> None:
        """Add rows to batches. `keys` and `partitions` have an item for each row. They are None if
        no row has a key, or no row has a partition."""
        # Imported here, as in `_column`: --help does not need the modules of record batches.
        from aiokafka.record.rows import route_rows

        known = 1
        if self._partition is None and (keys is not None or partitions is not None):
            known = len(await self._producer.partitions_for(self._topic))
        chosen = self._chosen_partitions(rows.size, keys, partitions, known)
        order, routes = route_rows(rows, known, chosen)
        numbers = memoryview(order).cast("i")
        for partition, start, stop in routes:
            while start < stop:
                if partition not in self._open:
                    self._open[partition] = (self._producer.create_batch(), Numbers())
                batch, batch_numbers = self._open[partition]
                end = batch.append_rows(rows, order, start, stop)
                batch_numbers.add(self._read_count, numbers[start:end])
                start = end
                if start < stop:
                    await self._send_batch(partition)
        self._read_count += rows.size

    def _chosen_partitions(
        self,
        count: int,
        keys: Cells | None,
        partitions: Sequence[int | None] | None,
        known: int,
    ) -> memoryview | None:
        """Return the partition of each record as int32, -1 if its key determines the partition.

        Returns None if no partition is chosen here: all records have a key, or no record has one.
        """
        if self._partition is not None:
            found = array("i", (self._partition,)) * count
        elif partitions is not None or (keys is not None and None in keys):
            # Choose one partition here for the records without a key. If the producer chose the
            # partition, these records would be in a batch of their own, and would not keep their
            # order relative to records with a key.
            self._keyless_partition = (self._keyless_partition + 1) % known
            keyless = self._keyless_partition
            found = array("i", [keyless if key is None else -1 for key in keys or [None] * count])
            for row, partition in enumerate(partitions or ()):
                if partition is not None:
                    found[row] = partition
        else:
            return None
        return memoryview(found).cast("B")

    async def flush(self) -> None:
        """Send the open batches to the producer."""
        while self._open:
            await self._send_batch(next(iter(self._open)))

    async def _send_batch(self, partition: int) -> None:
        batch, numbers = self._open.pop(partition)
        batch.close()
        from aiokafka.record.rows import ANY

        target = None if partition == ANY else partition
        try:
            future = await self._producer.send_batch(batch, self._topic, partition=target)
        except _REFUSALS as error:
            raise self._refused(numbers[0], error) from error
        self._pending.append((future, numbers))

    # -- results

    def _refused(self, number: int, error: Exception) -> KafkaError:
        """Return an error for record `number`. If an earlier record has failed, raise its error."""
        self.check()
        return self._undelivered(number, text_of(error), error)

    def _undelivered(self, number: int, reason: str, error: Exception) -> KafkaError:
        return PartlyFailedError(
            [f"{self._origins.of(number)}: record not delivered: {reason}"], error
        )

    def _count_progress(self, lines: Sequence[bytes]) -> None:
        if self._progress.is_shown:
            self._progress.add(len(lines), sum(map(len, lines)))
        self.check()

    def check(self) -> None:
        """Raise the error of the first record that has failed. Add the number of records that were
        delivered before it to `delivered`."""
        pending = self._pending
        while pending and pending[0][0].done():
            future, numbers = pending.popleft()
            try:
                future.result()
            except KafkaError as error:
                raise self._failure(numbers, error) from error
            self.delivered += len(numbers)

    def _failure(self, numbers: Numbers | tuple[int], error: KafkaError) -> KafkaError:
        """Return the error for records that a broker has rejected together. The error names the
        record that caused the rejection if the broker has named that record; otherwise the first
        record."""
        number, index = numbers[0], _rejected_index(error)
        if isinstance(numbers, Numbers):
            if index is not None:
                number = numbers[index]
        elif index is None:
            # This record was rejected together with others of its batch, and the broker has not
            # named it as the cause. Look for the record that is the cause among the later records.
            for future, others in self._pending:
                found = future.exception() if future.done() and not future.cancelled() else None
                if isinstance(found, type(error)) and _rejected_index(found) is not None:
                    number, error = others[0], found
                    break
        reason = text_of(error).replace(f"record {index} of the batch: ", "")
        return self._undelivered(number, reason, error)

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
        for future, _ in self._pending:
            if future.done() and not future.cancelled():
                future.exception()


def _rejected_index(error: KafkaError) -> int | None:
    return error.record_index if isinstance(error, BrokerResponseError) else None


def _count_until_empty(values: Cells, keys: Cells | None) -> int:
    """Return the number of records before the first that has neither a key nor a value."""
    if None in values:
        for row, (value, key) in enumerate(zip(values, keys or repeat(None), strict=False)):
            if value is key is None:
                return row
    return len(values)


def _rows(
    values: Cells,
    keys: Cells | None,
    headers: Sequence[Headers | None] | None,
    times: Sequence[int | None] | None = None,
) -> RowSource:
    """Return records as rows of a batch. A record without a time gets the present time."""
    from aiokafka.record.rows import RowSource

    now = int(time.time() * 1000)
    timestamps: memoryview | int = now
    if times is not None and any(each is not None for each in times):
        found = array("q", [now if each is None else each for each in times])
        timestamps = memoryview(found).cast("B")
    return RowSource(
        _column(values),
        None if keys is None else _column(keys),
        _header_source(headers) if headers else None,
        timestamps,
    )


def _column(cells: Cells) -> BinarySource:
    from aiokafka.record.rows import BinarySource

    validity = None
    if None in cells:
        validity = bytearray((len(cells) + 7) // 8)
        for row, cell in enumerate(cells):
            if cell is not None:
                validity[row >> 3] |= 1 << (row & 7)
        cells = [cell or b"" for cell in cells]
    data = cast("Sequence[bytes]", cells)
    # A list first, because `array` adds the items of an iterator one by one.
    ends = array("i", list(accumulate(map(len, data), initial=0)))
    return BinarySource(len(data), memoryview(ends).cast("B"), b"".join(data), validity)


def _header_source(headers: Sequence[Headers | None]) -> HeaderSource:
    from aiokafka.record.rows import HeaderSource

    pairs = [pair for each in headers for pair in each or ()]
    names = _column([name.encode() for name, _ in pairs])
    values = _column([value for _, value in pairs])
    ends = array("i", list(accumulate((len(each or ()) for each in headers), initial=0)))
    return HeaderSource(len(headers), memoryview(ends).cast("B"), names, values)


Send = Callable[[Sending, Sequence[bytes]], Awaitable[None]]


async def pieces_of(
    files: Sequence[str], delimiter: bytes | None, origins: Origins, *, whole: bool
) -> AsyncGenerator[list[bytes], None]:
    """Yield the pieces of the input, in lists, one file after the other; `-` is stdin. Adds them to
    `origins`.

    With `whole`, each file is a piece. Otherwise a piece ends at the delimiter, or is a line if
    `delimiter` is None. Raises InputError for a piece that is longer than `LONGEST`.
    """
    for name in files:
        origins.begin(name)
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
                    continue
                try:
                    pieces = splitter.feed(block)
                except InputError as error:
                    raise origins.error(error) from None
                if pieces:
                    origins.add(len(pieces))
                    yield pieces
            rest = [b"".join(content)] if whole else splitter.end()
            if rest:
                origins.add(len(rest))
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


def _sender(given: dict[str, Any], origins: Origins) -> Send:
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

    def warn(number: int) -> None:
        without = "no key delimiter: such lines are sent as values without key"
        note(f"aiokafka: {origins.of(number)}: {without}")

    read = line_reader(
        None if delimiter is None else as_bytes(delimiter),
        key=None if given["key"] is None else raw(given["key"]),
        headers=[_header(text) for text in given["headers"]] or None,
        empty_is_null=given["null"],
        warn=None if given["key"] is not None else warn,
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
    delimiter = None if given["delimiter"] is None else as_bytes(given["delimiter"])
    origins = Origins(lines=delimiter in (None, b"\n"), whole=given["whole"])
    send = _sender(given, origins)
    source = pieces_of(files or ("-",), delimiter, origins, whole=given["whole"])
    shown = given["progress"]
    progress = Progress("produced", sys.stderr.isatty() if shown is None else shown)
    options = {**_producer_options(given), "max_batch_size": _batch_size(session)}
    producer = session.producer(**options)
    await producer.start()
    sending = Sending(producer, topic, progress, given["partition"], session, origins)
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
    """Return the size of full batches in bytes, at most `max_request_size` and at most half of
    `buffer_memory`."""
    size = _BATCH
    for name, share in (("max_request_size", 1), ("buffer_memory", 2)):
        limit = session.client_options.get(name)
        if isinstance(limit, int):
            size = min(size, max(1, limit // share))
    return size


async def _accepts_batches(producer: AIOKafkaProducer, topic: str, size: int) -> bool:
    """Return whether batches of `size` bytes fit into `max.message.bytes` of the topic.

    The limit applies to the compressed size, which is not known in advance. Therefore this compares
    the uncompressed size, which may be larger. Returns True if the user may not see the limit, or
    the brokers are too old; False if no broker has responded.
    """
    # An admin client would need its own connection, and more modules.
    from aiokafka.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=[_LIMIT]
    )
    client = producer.client
    try:
        response = await client.send(
            client.get_random_node(), DescribeConfigsRequest(resources=[resource])
        )
    except UnsupportedVersionError:
        return True
    except KafkaError:
        return False
    limits = [each.value for found in response.results for each in found.configs]
    return all(limit is None or size <= int(limit) for limit in limits)


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
    """Await `work`, which sends a list of pieces. After a signal, still send the whole list, within
    CLEANUP_TIMEOUT seconds, so that no record is missing between records that were sent."""
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
