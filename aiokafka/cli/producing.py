"""`aiokafka produce`: send what is on stdin or in files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.failures import PartlyFailedError
from aiokafka.cli.lines import NewRecord, Parser, Splitter, as_bytes, json_parser, line_parser
from aiokafka.cli.pace import Limit, Progress
from aiokafka.cli.pipes import read_blocks
from aiokafka.cli.places import Finite
from aiokafka.cli.session import Session, command
from aiokafka.errors import KafkaError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.producer.batches.batch_builder import BatchBuilder

__all__ = ["Sending", "commands", "pieces_of"]

_BATCH = 256 * 1024
# So many values at once are sent as batches. Fewer wait for others to come (--linger).
_WORTH_A_BATCH = 100
# Seconds for what was read already, when Ctrl-C comes.
_LAST_MOMENT = 10.0


class Sending:
    """Sends records without waiting for each, and looks at every outcome in order."""

    def __init__(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        progress: Progress,
        partition: int | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._progress = progress
        self._partition = partition
        # With the number of records that each is about.
        self._pending: deque[tuple[asyncio.Future[Any], int]] = deque()
        #: How many records the brokers have.
        self.delivered = 0

    async def values(self, values: Sequence[bytes]) -> None:
        """Send values alone."""
        if len(values) < _WORTH_A_BATCH:
            await self.records(values, self._record_of)
            return
        try:
            await self._in_batches(values)
        except KafkaError as error:
            raise self._refused(error) from error
        self._account(values)

    def _record_of(self, value: bytes) -> NewRecord:
        return NewRecord(value, None, self._partition)

    async def _in_batches(self, values: Sequence[bytes]) -> None:
        """Send many values; a future for each would take most of the time."""
        batch, count = self._producer.create_batch(), 0
        for value in values:
            if batch.append(timestamp=None, key=None, value=value) is None:
                await self._submit(batch, count)
                batch, count = self._producer.create_batch(), 0
                batch.append(timestamp=None, key=None, value=value)  # the first one always fits
            count += 1
        await self._submit(batch, count)

    async def _submit(self, batch: BatchBuilder, count: int) -> None:
        future = await self._producer.send_batch(batch, self._topic, partition=self._partition)
        self._pending.append((future, count))

    async def records(self, lines: Sequence[bytes], parse: Parser) -> None:
        """Send the record of each line."""
        send, topic = self._producer.send, self._topic
        try:
            for line in lines:
                value, key, partition, timestamp_ms, headers = parse(line)
                future = await send(topic, value, key, partition, timestamp_ms, headers)
                self._pending.append((future, 1))
        except KafkaError as error:
            raise self._refused(error) from error
        self._account(lines)

    def _refused(self, error: KafkaError) -> KafkaError:
        """Return the error of the next record, unless an earlier one has failed."""
        self.check()
        before = self.delivered + sum(count for _, count in self._pending)
        return _undelivered(before + 1, error)

    def _account(self, lines: Sequence[bytes]) -> None:
        self._progress.add(len(lines), sum(map(len, lines)))
        self.check()

    def check(self) -> None:
        """Raise the error of the first record that failed."""
        pending = self._pending
        while pending and pending[0][0].done():
            future, count = pending.popleft()
            try:
                future.result()
            except KafkaError as error:
                raise _undelivered(self.delivered + 1, error) from error
            self.delivered += count

    async def finish(self) -> None:
        """Wait until the brokers have everything."""
        await self._producer.flush()
        # The callbacks of the last responses have run; futures are done before `flush` returns.
        self.check()

    def forget(self) -> None:
        """Look at what failed after the first error, or after Ctrl-C, and say no more of it."""
        for future, _ in self._pending:
            if future.done() and not future.cancelled():
                future.exception()


def _undelivered(number: int, error: KafkaError) -> KafkaError:
    return PartlyFailedError([f"record {number} was not delivered: {error}"], error)


async def pieces_of(
    files: Sequence[str], delimiter: bytes, *, whole: bool
) -> AsyncGenerator[list[bytes], None]:
    """Yield the pieces of files, one after the other; `-` is stdin. With `whole`, a file is one."""
    for name in files:
        with _opened(name) as fd:
            splitter = Splitter(delimiter)
            content: list[bytes] = []
            async for block in read_blocks(fd):
                if whole:
                    content.append(block)
                elif pieces := splitter.feed(block):
                    yield pieces
            rest = [b"".join(content)] if whole else splitter.end()
            if rest:
                yield rest


@contextlib.contextmanager
def _opened(name: str) -> Iterator[int]:
    if name == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed; name files")
        yield sys.stdin.fileno()
        return
    if os.path.isdir(name):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    fd = os.open(name, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None


def _parser(given: dict[str, Any]) -> Parser | None:
    """Return how to understand a line; None for a value and nothing else."""
    if given["as_json"]:
        if given["key"] is not None or given["key_delimiter"] is not None or given["headers"]:
            raise click.UsageError("--json has keys and headers of its own")
        return json_parser(
            partition=given["partition"],
            keep_partitions=given["keep_partitions"],
            keep_timestamps=given["keep_timestamps"],
        )
    plain = ("key", "key_delimiter")
    if not given["headers"] and not given["null"] and all(given[name] is None for name in plain):
        return None
    delimiter = given["key_delimiter"]
    return line_parser(
        None if delimiter is None else as_bytes(delimiter),
        key=None if given["key"] is None else given["key"].encode(),
        partition=given["partition"],
        headers=[_header(text) for text in given["headers"]] or None,
        empty_is_null=given["null"],
    )


@command(None, "produce", prints=False)
@click.argument("topic")
@click.argument("files", nargs=-1)
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Between records.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Between key and value.")
@click.option("-k", "--key", help="Key of all records.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Of all records."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Lines are JSON, as consume --json prints them."
)
@click.option(
    "--keep-partitions", is_flag=True, help="With --json: into the partitions named there."
)
@click.option(
    "--keep-timestamps", is_flag=True, help="With --json: with the timestamps given there."
)
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option("-Z", "--null", is_flag=True, help="An empty key or value is none.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Send to this one.")
@click.option("-c", "--count", type=click.IntRange(1), help="Send at most so many.")
@click.option("-z", "--compression", type=click.Choice(["gzip", "snappy", "lz4", "zstd"]))
@click.option("--level", type=int, help="Of the compression.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--linger", type=float, default=5, show_default=True, metavar="MS", help="To fill batches."
)
@click.option("--transactional-id", metavar="ID", help="Send in transactions.")
@click.option(
    "--transaction-size",
    type=click.IntRange(1),
    metavar="N",
    help="Records in each; else one for all.",
)
@click.option("--rate", type=Finite(0, min_open=True), metavar="N", help="Records per second.")
@click.option(
    "--progress/--no-progress", default=None, help="Rates on stderr; default: on a terminal."
)
async def commands(session: Session, topic: str, files: tuple[str, ...], **given: Any) -> None:
    """Send lines of stdin, or of FILES, to TOPIC.

    It ends when the brokers have every record, and fails at the first that cannot be delivered.
    Ctrl-C delivers what was read, and aborts the transaction if there is one.

    \b
    Example:
      seq 1000 | aiokafka produce numbers
      aiokafka produce users users.txt --key-delimiter : --compression zstd
    """
    if given["transaction_size"] is not None and given["transactional_id"] is None:
        raise click.UsageError("--transaction-size: needs --transactional-id")
    parse = _parser(given)
    source = pieces_of(files or ("-",), as_bytes(given["delimiter"]), whole=given["whole"])
    shown = given["progress"]
    progress = Progress("produced", sys.stderr.isatty() if shown is None else shown)
    producer = session.producer(**_producer_options(given))
    await producer.start()
    sending = Sending(producer, topic, progress, given["partition"])
    try:
        if given["transactional_id"] is None:
            await _send_all(sending, source, parse, given)
            await sending.finish()
        else:
            await _in_transactions(producer, sending, source, parse, given)
    except asyncio.CancelledError:
        await producer.stop(_LAST_MOMENT)
        raise
    finally:
        await source.aclose()
        await producer.stop()
        sending.forget()
        progress.end()


def _producer_options(given: dict[str, Any]) -> dict[str, Any]:
    acks = given["acks"]
    found: dict[str, Any] = {
        "acks": acks if acks == "all" else int(acks),
        "compression_type": given["compression"],
        "compression_level": given["level"],
        "linger_ms": given["linger"],
        "max_batch_size": _BATCH,
    }
    if acks != "all":
        found["enable_idempotence"] = False
    if given["transactional_id"] is not None:
        found["transactional_id"] = given["transactional_id"]
    return found


async def _parts(
    source: AsyncIterator[list[bytes]], given: dict[str, Any], most: int | None = None
) -> AsyncIterator[list[bytes]]:
    """Yield pieces in portions: within the rate, of at most `most`, no more than the count."""
    limit = Limit(given["rate"])
    step = min(limit.step, most or limit.step)
    left = given["count"]
    async for pieces in source:
        for start in range(0, len(pieces), step):
            part = pieces[start : start + step]
            if left is not None:
                part = part[:left]
                left -= len(part)
            await limit.wait(len(part))
            yield part
            if left == 0:
                return


async def _send_all(
    sending: Sending,
    source: AsyncIterator[list[bytes]],
    parse: Parser | None,
    given: dict[str, Any],
) -> None:
    async for part in _parts(source, given):
        if parse is None:
            await sending.values(part)
        else:
            await sending.records(part, parse)


async def _in_transactions(
    producer: AIOKafkaProducer,
    sending: Sending,
    source: AsyncIterator[list[bytes]],
    parse: Parser | None,
    given: dict[str, Any],
) -> None:
    """Send in transactions of so many records, or in one. What fails or is interrupted aborts."""
    size = given["transaction_size"]
    parse = parse or line_parser(None, partition=given["partition"])
    room = size
    is_open = False
    try:
        async for part in _parts(source, given, size):
            while part:
                if not is_open:
                    await producer.begin_transaction()
                    is_open, room = True, size
                now = part if room is None else part[:room]
                part = part[len(now) :]
                await sending.records(now, parse)
                room = None if room is None else room - len(now)
                if room == 0:
                    await sending.finish()
                    await producer.commit_transaction()
                    is_open = False
        if is_open:
            await sending.finish()
            await producer.commit_transaction()
            is_open = False
    finally:
        if is_open:
            await producer.abort_transaction()
