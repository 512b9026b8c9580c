"""`aiokafka consume`: prints the records of topics."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Set
from typing import TYPE_CHECKING, Any

import click

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.cli import formats
from aiokafka.cli.arguments import Finite, Place, numbers, offsets_at, place
from aiokafka.cli.formats import as_bytes, raw
from aiokafka.cli.output import note
from aiokafka.cli.running import CLEANUP_TIMEOUT
from aiokafka.cli.session import Session, command
from aiokafka.cli.sharing import print_share_group, refuse_options
from aiokafka.cli.streams import Limit, Progress, Writer, wait_for_topics
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import ConsumerRecord

    Batches = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]

_COMMIT_EVERY = 5.0  # seconds between commits
# Maximum number of records of one `getmany`. After they are written, the command checks --count and
# the time of the next commit.
_MAX_RECORDS = 5000
_POLL_MS = 200  # milliseconds that one `getmany` waits for records


class Committer(ConsumerRebalanceListener):
    """Commits the offsets of records that were written to stdout, and of no other records."""

    def __init__(self, consumer: AIOKafkaConsumer, every: float = _COMMIT_EVERY) -> None:
        self._consumer = consumer
        self._every = every
        self._written: dict[TopicPartition, int] = {}
        self._due = time.monotonic() + every
        #: Whether partitions were revoked or lost, and the next assignment was not received yet.
        self.is_rebalancing = False

    def wrote(self, batches: Batches) -> None:
        """Store the offsets to commit after these records, which were written to stdout."""
        for tp, records in batches.items():
            self._written[tp] = records[-1].offset + 1

    async def commit_if_due(self) -> None:
        """Commit if `every` seconds have passed since the last attempt.

        A retriable error, a timeout or CommitFailedError is only printed: the next commit includes
        these offsets. If partitions are revoked before that, their next owner reads the records
        again. Other errors are raised.
        """
        if time.monotonic() < self._due:
            return
        try:
            await self.commit()
        except KafkaError as error:
            if not (error.retriable or isinstance(error, (CommitFailedError, KafkaTimeoutError))):
                raise
            _note_uncommitted(error)

    async def commit(self) -> None:
        """Commit the stored offsets of partitions that are still assigned. Drop the offsets of
        other partitions."""
        self._due = time.monotonic() + self._every
        ours = self._written.keys() & self._consumer.assignment()
        self._written = {tp: self._written[tp] for tp in ours}
        offsets = self._written.copy()
        if offsets:
            await self._consumer.commit(offsets)
        # Keep the offsets that were stored while the commit ran.
        self._written = dict(self._written.items() - offsets.items())

    async def commit_soon(self) -> None:
        """Commit, after a signal. Raises KafkaTimeoutError if this takes more than CLEANUP_TIMEOUT
        seconds."""
        try:
            await asyncio.wait_for(self.commit(), CLEANUP_TIMEOUT)
        except asyncio.TimeoutError:
            raise KafkaTimeoutError(
                f"the last printed records were not committed within {CLEANUP_TIMEOUT:g} s, and "
                "will be printed again"
            ) from None

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """Commit before other members get the partitions. An error is only printed."""
        self.is_rebalancing = True
        try:
            await self.commit()
        except KafkaError as error:
            _note_uncommitted(error)

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        """Mark the rebalance as ended."""
        self.is_rebalancing = False

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        """Drop the offsets of lost partitions: other members may own these partitions now."""
        self.is_rebalancing = True
        for tp in lost:
            self._written.pop(tp, None)


def _note_uncommitted(error: KafkaError) -> None:
    note(
        f"aiokafka: the last printed records were not committed, and will be printed again: {error}"
    )


class StopOffsets:
    """Finds the offset to stop at in each partition.

    With --exit-at-end, this is the end of the partition when it was assigned; with --to, the offset
    of a position. With both options it is the lower offset.
    """

    def __init__(self, consumer: AIOKafkaConsumer, at: Place | None, exit_at_end: bool) -> None:
        self._consumer = consumer
        self._at = at
        self._exit_at_end = exit_at_end
        self._stops: dict[TopicPartition, int] = {}

    async def are_reached(self) -> bool:
        """Return whether all assigned partitions were read up to the offset to stop at; False if
        neither --to nor --exit-at-end was given."""
        if self._at is None and not self._exit_at_end:
            return False
        assignment = self._consumer.assignment()
        if new := assignment - self._stops.keys():
            await self._find(new)
        try:
            for tp in assignment:
                if await self._consumer.position(tp) < self._stops[tp]:
                    return False
        except IllegalStateError:
            return False  # a partition was revoked meanwhile, so check again later
        return True

    async def _find(self, partitions: Collection[TopicPartition]) -> None:
        found: list[dict[TopicPartition, int]] = []
        if self._at is not None:
            found.append(await offsets_at(self._consumer, partitions, self._at))
        if self._exit_at_end:
            found.append(await self._consumer.end_offsets(partitions))
        for tp in partitions:
            self._stops[tp] = min(each[tp] for each in found)

    def cut(self, batches: Batches) -> Batches:
        """Return the records before the offset to stop at, and pause partitions that have reached
        it."""
        if not self._stops:
            return batches
        kept: Batches = {}
        for tp, records in batches.items():
            stop = self._stops.get(tp)
            if stop is not None and records[-1].offset >= stop:
                # Pause, so that records that would be dropped are not fetched.
                self._consumer.pause(tp)
                records = [record for record in records if record.offset < stop]
            if records:
                kept[tp] = records
        return kept


def _is_wanted(given: dict[str, Any]) -> Callable[[ConsumerRecord[Any, Any]], bool] | None:
    """Return the filter of --grep and --key; None without these options."""
    pattern = given["pattern"]
    key = None if given["key"] is None else raw(given["key"])
    if pattern is None and key is None:
        return None

    def check(record: ConsumerRecord[Any, Any]) -> bool:
        if key is not None and record.key != key:
            return False
        return pattern is None or pattern.search(record.value or b"") is not None

    return check


def _format(given: dict[str, Any]) -> formats.Format:
    null = raw(given["null"])
    if given["pretty"]:
        return formats.pretty_json
    if given["as_json"]:
        return formats.json_lines
    if given["text"] is not None:
        text = given["text"]
        if sys.stdout.isatty() and not text.endswith(("\n", "\\n")):
            text += "\n"  # on a terminal, the next record begins on a new line
        return formats.custom(text, null)
    key_delimiter = given["key_delimiter"]
    return formats.plain(
        as_bytes(given["delimiter"]),
        None if key_delimiter is None else as_bytes(key_delimiter),
        null,
    )


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _checked(read: Callable[[str], Any]) -> Callable[..., Any]:
    """Return a click callback that calls `read`, and raises click.BadParameter for ValueError."""

    def check(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else read(text)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None

    return check


@command(None, "consume", prints=False)
@click.argument("topics", nargs=-1, required=True)
@click.option("-g", "--group", metavar="NAME", help="Join this group, and commit offsets.")
@click.option(
    "--share-group", metavar="NAME", help="Join this share group, and accept printed records."
)
@click.option(
    "-p", "--partitions", callback=_checked(numbers), metavar="0,3-5", help="Only these partitions."
)
@click.option(
    "--from",
    "start",
    callback=_checked(place),
    metavar="PLACE",
    help="Where to start; default: earliest, in a group: stored.",
)
@click.option(
    "--to", "stop", callback=_checked(place), metavar="PLACE", help="Stop before this position."
)
@click.option(
    "-e", "--exit-at-end", is_flag=True, help="Stop at the current end of each partition."
)
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after this many records.")
@click.option(
    "-f",
    "--format",
    "text",
    metavar="TEXT",
    help="Such as '%t %p %o %T %k %s %h\\n'; %I: time as ISO 8601; %S, %K: length of value, key.",
)
@click.option(
    "--grep",
    "pattern",
    callback=_checked(_pattern),
    metavar="REGEX",
    help="Only records whose value matches this regular expression somewhere.",
)
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print each record as a line with a JSON object."
)
@click.option(
    "--pretty",
    is_flag=True,
    help="Print JSON objects over several lines, values as JSON, for readers.",
)
@click.option(
    "--schema-registry",
    "registry",
    metavar="URL",
    envvar="AIOKAFKA_SCHEMA_REGISTRY",
    help="Print Avro, JSON Schema and Protobuf values as JSON.",
)
@click.option("--decode-keys", is_flag=True, help="With --schema-registry: decode keys as well.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Text after each record.")
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help="Print the key, this text, and the value."
)
@click.option(
    "-Z", "--null", default="", metavar="TEXT", help="Text for a key or value that is null."
)
@click.option(
    "--read-committed", is_flag=True, help="Skip records of aborted and open transactions."
)
@click.option("--rate", type=Finite(0, min_open=True), metavar="N", help="Records per second.")
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Print rates on stderr; default: if stderr is a terminal and stdout is not.",
)
async def commands(session: Session, topics: tuple[str, ...], **given: Any) -> None:
    """Print the records of TOPICS until Ctrl-C, or up to a position, the end or a count.

    A PLACE is earliest, latest, an offset, -N (the last N), -2h (two hours ago), @milliseconds
    since 1970, or a date and time in UTC. With --group, records that were printed, or left out by
    --grep or --key, are committed: every few seconds, before partitions are revoked, and at the end
    (also after Ctrl-C). With --share-group, printed records are accepted, and all others are
    released.

    \b
    Example:
      aiokafka consume orders --exit-at-end --json
      aiokafka consume orders --from -2h --format '%T %k %s\\n'
    """
    if given["share_group"] is not None:
        refuse_options(given)
    if given["group"] is not None and given["partitions"] is not None:
        raise click.UsageError("--partitions: with --group, the group assigns the partitions")
    formed = (given["as_json"], given["pretty"])
    if sum(formed) + (given["text"] is not None) + (given["key_delimiter"] is not None) > 1:
        raise click.UsageError("give one of --json, --pretty, --format and --key-delimiter")
    if given["stop"] is not None and given["stop"].kind == "stored":
        raise click.UsageError("--to: cannot be stored; a group begins at its stored offsets")
    start = given["start"] or Place("earliest" if given["group"] is None else "stored")
    write = _format(given)
    async with contextlib.AsyncExitStack() as closing:
        deserializers = _deserializers(given, closing)
        if given["share_group"] is not None:
            await print_share_group(session, topics, write, {**given, **deserializers})
            return
        consumer = session.consumer(**_consumer_options(given, start), **deserializers)
        committer = Committer(consumer) if given["group"] is not None else None
        closing.push_async_exit(consumer)
        if committer is None:
            await consumer.start()
            await _assign(consumer, topics, given["partitions"], start)
        else:
            consumer.subscribe(topics, listener=committer)
            await _join(session, consumer, topics, wait_for_missing=not given["exit_at_end"])
        await _print_all(consumer, write, committer, given)


def _deserializers(given: dict[str, Any], closing: contextlib.AsyncExitStack) -> dict[str, Any]:
    """Return the deserializers of --schema-registry as options of a consumer."""
    if given["registry"] is None:
        if given["decode_keys"]:
            raise click.UsageError("--decode-keys: needs --schema-registry")
        return {}
    try:
        from aiokafka.cli.schemas import SchemaDecoder, registry_options
    except ImportError as error:
        raise click.UsageError(
            f'--schema-registry needs: pip install "aiokafka[schemas]" ({error})'
        ) from None
    credentials = os.environ.get("AIOKAFKA_SCHEMA_REGISTRY_AUTH")
    decoder = SchemaDecoder(registry_options(given["registry"], credentials))
    closing.push_async_callback(decoder.aclose)
    found: dict[str, Any] = {"value_deserializer": decoder}
    return {**found, "key_deserializer": decoder} if given["decode_keys"] else found


async def _join(
    session: Session, consumer: AIOKafkaConsumer, topics: Collection[str], *, wait_for_missing: bool
) -> None:
    """Join the group. With `wait_for_missing`, wait for topics that do not exist; otherwise raise
    UnknownTopicOrPartitionError after about two seconds."""

    async def waits(_: object) -> bool:
        return wait_for_missing

    await wait_for_topics(session, topics, consumer.start(), waits)


def _consumer_options(given: dict[str, Any], start: Place) -> dict[str, Any]:
    found: dict[str, Any] = {
        "group_id": given["group"],
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "allow_auto_create_topics": False,
        "max_partition_fetch_bytes": 4 * 1024 * 1024,
    }
    if given["read_committed"]:
        found["isolation_level"] = "read_committed"
    if given["group"] is None:
        if start.kind == "stored":
            raise click.UsageError("--from stored: needs --group")
    elif start.kind in ("earliest", "latest"):
        found["auto_offset_reset"] = start.kind
    elif start.kind != "stored":
        raise click.UsageError(
            "--from: a group begins at its stored offsets; change them with `aiokafka groups reset`"
        )
    return found


async def _assign(
    consumer: AIOKafkaConsumer, topics: Collection[str], wanted: list[int] | None, start: Place
) -> None:
    """Assign these partitions of the topics (None: all partitions), and seek to a position.

    Raises UnknownTopicOrPartitionError for a topic or partition that does not exist.
    """
    found: list[TopicPartition] = []
    for topic in topics:
        there = consumer.partitions_for_topic(topic)
        if not there:
            raise UnknownTopicOrPartitionError(f"no topic {topic!r}")
        if missing := set(wanted or ()) - there:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has partitions 0 to {max(there)}, not {min(missing)}"
            )
        found += [TopicPartition(topic, number) for number in wanted or sorted(there)]
    consumer.assign(found)
    places = await offsets_at(consumer, found, start)
    # Replace an offset beyond the end by the end: the consumer would reset such an offset to the
    # first record (`auto_offset_reset`).
    ends = await consumer.end_offsets(found) if start.kind == "offset" else places
    for tp, offset in places.items():
        consumer.seek(tp, min(offset, ends[tp]))


async def _print_all(
    consumer: AIOKafkaConsumer,
    write: formats.Format,
    committer: Committer | None,
    given: dict[str, Any],
) -> None:
    writer = Writer(sys.stdout.fileno())
    ends = StopOffsets(consumer, given["stop"], given["exit_at_end"])
    limit = Limit(given["rate"])
    shown = given["progress"]
    default = sys.stderr.isatty() and not sys.stdout.isatty()
    progress = Progress("consumed", default if shown is None else shown)
    left = given["count"]
    wanted = _is_wanted(given)
    is_interrupted = False
    most = min(_MAX_RECORDS, limit.step) if given["rate"] else _MAX_RECORDS
    try:
        while left != 0:
            # During a rebalance the assignment lacks partitions, so `are_reached` could return True
            # too early.
            is_rebalancing = committer is not None and committer.is_rebalancing
            if not is_rebalancing and await ends.are_reached():
                break
            # With a filter, --count is about the records that are printed.
            now = most if left is None or wanted is not None else min(most, left)
            batches = ends.cut(await consumer.getmany(timeout_ms=_POLL_MS, max_records=now))
            read = batches
            if wanted is not None:
                batches = _chosen(batches, wanted, left)
                read = batches if left is not None and _count(batches) == left else read
            count = _count(batches)
            if count:
                await limit.wait(count)
                data = b"".join([write(records) for records in batches.values() if records])
                await writer.write(data)
                progress.add(count, len(data))
                left = None if left is None else left - count
            if committer is not None:
                committer.wrote({tp: records for tp, records in read.items() if records})
                await committer.commit_if_due()
    except asyncio.CancelledError:
        is_interrupted = True
        raise
    finally:
        progress.end()
        if committer is not None:
            await (committer.commit_soon() if is_interrupted else committer.commit())


def _count(batches: Batches) -> int:
    return sum(map(len, batches.values()))


def _chosen(
    batches: Batches, wanted: Callable[[ConsumerRecord[Any, Any]], bool], most: int | None
) -> Batches:
    """Return the records that a filter accepts, at most `most` of them."""
    left = sys.maxsize if most is None else most
    chosen: Batches = {}
    for tp, records in batches.items():
        chosen[tp] = [record for record in records if wanted(record)][:left]
        left -= len(chosen[tp])
    return chosen
