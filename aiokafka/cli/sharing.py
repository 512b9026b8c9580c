"""`aiokafka consume --share-group`: prints the records that a member of a share group acquires."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.formats import Format
from aiokafka.cli.output import note
from aiokafka.cli.streams import Limit, Progress, Writer

if TYPE_CHECKING:
    from aiokafka import AIOKafkaShareConsumer
    from aiokafka.cli.session import Session

__all__ = ["print_share_group", "refuse_options"]

_MAX_RECORDS = 500
_POLL_MS = 200

# Options of `consume` that have no meaning for a share group, and what to use instead.
_REFUSED = {
    "group": "give --group or --share-group",
    "partitions": "--partitions: the members of a share group share all of them",
    "start": "--from: set share.auto.offset.reset of the group, or see "
    "`aiokafka groups set-offsets --share`",
    "stop": "--to: the records of a share group have no order; see --count",
    "exit_at_end": "--exit-at-end: a share group has no position; see --count",
    "pattern": "--grep: the other members would not get the records that are left out",
    "key": "--key: the other members would not get the records that are left out",
    "read_committed": "--read-committed: set share.isolation.level of the group",
}


def refuse_options(given: dict[str, Any]) -> None:
    """Raise click.UsageError for an option that has no meaning for a share group."""
    for name, why in _REFUSED.items():
        if given[name] not in (None, False, ()):
            raise click.UsageError(why)


async def print_share_group(
    session: Session, topics: Collection[str], write: Format, given: dict[str, Any]
) -> None:
    """Print acquired records, and accept them when they are printed."""
    options = {
        "group_id": given["share_group"],
        "share_acknowledgement_mode": "explicit",
        "allow_auto_create_topics": False,
    }
    for name in ("key_deserializer", "value_deserializer"):
        if name in given:
            options[name] = given[name]
    consumer = session.share_consumer(*topics, **options)
    async with consumer:
        await _print_all(consumer, write, given)


async def _print_all(
    consumer: AIOKafkaShareConsumer[Any, Any], write: Format, given: dict[str, Any]
) -> None:
    writer = Writer(sys.stdout.fileno())
    limit = Limit(given["rate"])
    shown = given["progress"]
    default = sys.stderr.isatty() and not sys.stdout.isatty()
    progress = Progress("consumed", default if shown is None else shown)
    left = given["count"]
    most = min(_MAX_RECORDS, limit.step) if given["rate"] else _MAX_RECORDS
    try:
        while left != 0:
            now = most if left is None else min(most, left)
            batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=now)
            count = sum(map(len, batches.values()))
            if count:
                await limit.wait(count)
                data = b"".join([write(list(records)) for records in batches.values()])
                await writer.write(data)
                progress.add(count, len(data))
                left = None if left is None else left - count
            for records in batches.values():
                for record in records:
                    consumer.acknowledge(record)
        for tp, error in (await consumer.commit()).items():
            if error is not None:
                note(
                    f"aiokafka: records of {tp} were not accepted, and will be delivered again: "
                    f"{error}"
                )
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            progress.end()
