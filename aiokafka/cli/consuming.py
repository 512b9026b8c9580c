"""`aiokafka consume`: prints the records of topics."""

from __future__ import annotations

import asyncio
import contextlib
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

_COMMIT_EVERY = 5.0  # seconds
_MAX_RECORDS = 5000  # records to write between two checks of the count and the commit
_POLL_MS = 200  # milliseconds that a poll waits for records


class Committer(ConsumerRebalanceListener):
    """Commits the records that were written to stdout, and no others."""

    def __init__(self, consumer: AIOKafkaConsumer, every: float = _COMMIT_EVERY) -> None:
        self._consumer = consumer
        self._every = every
        self._written: dict[TopicPartition, int] = {}
        self._due = time.monotonic() + every
        #: Whether a rebalance is in progress, so that the assignment will change.
        self.is_rebalancing = False

    def wrote(self, batches: Batches) -> None:
        """Store the offsets after these records, which were written to stdout."""
        for tp, records in batches.items():
            self._written[tp] = records[-1].offset + 1

    async def commit_if_due(self) -> None:
        """Commit if `every` seconds have passed since the last commit.

        After a retriable error or CommitFailedError, the next commit includes these offsets. If the
        partitions are revoked before that commit, their next owner reads the records again.
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
        """Commit the offsets of partitions that are still assigned."""
        self._due = time.monotonic() + self._every
        ours = self._written.keys() & self._consumer.assignment()
        self._written = {tp: self._written[tp] for tp in ours}
        offsets = self._written.copy()
        if offsets:
            await self._consumer.commit(offsets)
        # Keep offsets that were stored during the commit.
        self._written = dict(self._written.items() - offsets.items())

    async def commit_soon(self) -> None:
        """Commit after a signal. Raises KafkaTimeoutError after CLEANUP_TIMEOUT."""
        try:
            await asyncio.wait_for(self.commit(), CLEANUP_TIMEOUT)
        except asyncio.TimeoutError:
            raise KafkaTimeoutError(
                f"what was printed last is not committed after {CLEANUP_TIMEOUT:g} s, and will be "
                "printed again"
            ) from None

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """Commit before other members get the partitions."""
        self.is_rebalancing = True
        try:
            await self.commit()
        except KafkaError as error:
            _note_uncommitted(error)

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        """Record that the rebalance has ended."""
        self.is_rebalancing = False

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        """Drop the offsets of lost partitions: other members own these partitions now."""
        self.is_rebalancing = True
        for tp in lost:
            self._written.pop(tp, None)


def _note_uncommitted(error: KafkaError) -> None:
    note(f"aiokafka: not committed, will be printed again: {error}")


class StopOffsets:
    """The offset to stop at in each partition: the end at the time of the assignment
    (--exit-at-end), or a position (--to). With both options the lower offset applies."""

    def __init__(self, consumer: AIOKafkaConsumer, at: Place | None, exit_at_end: bool) -> None:
        self._consumer = consumer
        self._at = at
        self._exit_at_end = exit_at_end
        self._stops: dict[TopicPartition, int] = {}

    async def are_reached(self) -> bool:
        """Return whether all assigned partitions were read up to the offset to stop at. Return
        False without --to and --exit-at-end."""
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
            return False  # a partition was revoked: check the new assignment
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
        """Drop records after the offset to stop at; pause partitions that have reached it."""
        if not self._stops:
            return batches
        kept: Batches = {}
        for tp, records in batches.items():
            stop = self._stops.get(tp)
            if stop is not None and records[-1].offset >= stop:
                # Do not fetch records that would be discarded.
                self._consumer.pause(tp)
                records = [record for record in records if record.offset < stop]
            if records:
                kept[tp] = records
        return kept


def _format(given: dict[str, Any]) -> formats.Format:
    null = raw(given["null"])
    if given["as_json"]:
        return formats.json_lines
    if given["text"] is not None:
        return formats.custom(given["text"], null)
    key_delimiter = given["key_delimiter"]
    return formats.plain(
        as_bytes(given["delimiter"]),
        None if key_delimiter is None else as_bytes(key_delimiter),
        null,
    )


def _checked(read: Callable[[str], Any]) -> Callable[..., Any]:
    """Return a click callback that calls `read`, and turns ValueError into click.BadParameter."""

    def check(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else read(text)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None

    return check


@command(None, "consume", prints=False)
@click.argument("topics", nargs=-1, required=True)
@click.option("-g", "--group", metavar="NAME", help="Be a member of this group, and commit.")
@click.option("-p", "--partitions", callback=_checked(numbers), metavar="0,3-5", help="Only these.")
@click.option(
    "--from",
    "start",
    callback=_checked(place),
    metavar="PLACE",
    help="Default: earliest; in a group: what it has stored.",
)
@click.option("--to", "stop", callback=_checked(place), metavar="PLACE", help="Stop before it.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end that there is now.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many.")
@click.option(
    "-f",
    "--format",
    "text",
    metavar="TEXT",
    help="Such as '%t %p %o %T %k %s %h\\n'; %S and %K: lengths.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Behind each record.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print keys, this, and values.")
@click.option("-Z", "--null", default="", metavar="TEXT", help="Print this for no key or value.")
@click.option("--read-committed", is_flag=True, help="Leave out what was aborted or is open.")
@click.option("--rate", type=Finite(0, min_open=True), metavar="N", help="Records per second.")
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Rates on stderr; default: if that is a terminal and stdout is not.",
)
async def commands(session: Session, topics: tuple[str, ...], **given: Any) -> None:
    """Print the records of TOPICS until Ctrl-C, a place, an end or a count.

    A PLACE is earliest, latest, an offset, -N (the last N), -2h (since then), @milliseconds, or
    a date and time in UTC. In a group only what has been printed is committed: every few
    seconds, when partitions move, and at the end, by Ctrl-C as well.

    \b
    Example:
      aiokafka consume orders --exit-at-end --json
      aiokafka consume orders --from -2h --format '%T %k %s\\n'
    """
    if given["group"] is not None and given["partitions"] is not None:
        raise click.UsageError("--partitions: in a group they are assigned")
    if given["as_json"] + (given["text"] is not None) + (given["key_delimiter"] is not None) > 1:
        raise click.UsageError("give one of --json, --format and --key-delimiter")
    if given["stop"] is not None and given["stop"].kind == "stored":
        raise click.UsageError("--to stored: what a group has stored is where it begins")
    start = given["start"] or Place("earliest" if given["group"] is None else "stored")
    consumer = session.consumer(**_consumer_options(given, start))
    committer = Committer(consumer) if given["group"] is not None else None
    write = _format(given)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_exit(consumer)
        if committer is None:
            await consumer.start()
            await _assign(consumer, topics, given["partitions"], start)
        else:
            consumer.subscribe(topics, listener=committer)
            await _join(session, consumer, topics, is_patient=not given["exit_at_end"])
        await _print_all(consumer, write, committer, given)


async def _join(
    session: Session, consumer: AIOKafkaConsumer, topics: Collection[str], *, is_patient: bool
) -> None:
    """Join the group. If `is_patient`, wait for topics that do not exist."""

    async def waits(_: object) -> bool:
        return is_patient

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
            "--from: a group goes on where it is; `aiokafka groups reset` moves it"
        )
    return found


async def _assign(
    consumer: AIOKafkaConsumer, topics: Collection[str], wanted: list[int] | None, start: Place
) -> None:
    """Assign these partitions of the topics, or all, and seek to a position."""
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
    # Limit offsets to the end, because the consumer would reset a higher offset to the first
    # record.
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
    is_interrupted = False
    most = min(_MAX_RECORDS, limit.step) if given["rate"] else _MAX_RECORDS
    try:
        while left != 0:
            # During a rebalance the assignment is incomplete, so do not check its ends.
            is_rebalancing = committer is not None and committer.is_rebalancing
            if not is_rebalancing and await ends.are_reached():
                break
            now = most if left is None else min(most, left)
            batches = ends.cut(await consumer.getmany(timeout_ms=_POLL_MS, max_records=now))
            count = sum(map(len, batches.values()))
            if count:
                await limit.wait(count)
                data = b"".join([write(records) for records in batches.values()])
                await writer.write(data)
                progress.add(count, len(data))
                left = None if left is None else left - count
            if committer is not None:
                committer.wrote(batches)
                await committer.commit_if_due()
    except asyncio.CancelledError:
        is_interrupted = True
        raise
    finally:
        progress.end()
        if committer is not None:
            await (committer.commit_soon() if is_interrupted else committer.commit())
