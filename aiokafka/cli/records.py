"""`aiokafka records`: delete old records."""

from __future__ import annotations

import click

from aiokafka import TopicPartition
from aiokafka.cli.asking import agree
from aiokafka.cli.failures import parts
from aiokafka.cli.places import distinct, is_number
from aiokafka.cli.session import Session, command, noun

__all__ = ["before", "commands"]

commands = noun("Delete old records.")


def before(text: str) -> tuple[TopicPartition, int]:
    """Return partition and offset of `topic-partition:offset`; the offset may be `end`.

    Raises click.BadParameter for anything else.
    """
    name, _, offset = text.rpartition(":")
    topic, _, number = name.rpartition("-")
    if not topic or not (is_number(number) and (offset == "end" or is_number(offset))):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION:OFFSET or TOPIC-PARTITION:end")
    return TopicPartition(topic, int(number)), -1 if offset == "end" else int(offset)


@command(commands, "delete")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC-PARTITION:OFFSET...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def delete(session: Session, places: tuple[str, ...], yes: bool) -> None:
    """Delete the records before an offset, or before the end.

    \b
    Example:
      aiokafka records delete orders-0:1000 orders-1:end --yes
    """
    wanted = distinct(before(text) for text in places)
    agree(f"Delete records of {len(wanted)} partitions?", yes)
    async with session.admin() as admin:
        found, failed = await parts(admin.records.delete(wanted), wanted)
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "first_offset": offset}
        for tp, offset in sorted(found.items())
    ]
    session.output.rows(rows, ("topic", "partition", "first_offset"))
    if failed is not None:
        raise failed
