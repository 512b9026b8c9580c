"""`aiokafka topics`: list, describe, create, grow and delete topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli import declared, replicas
from aiokafka.cli.asking import agree
from aiokafka.cli.failures import parts
from aiokafka.cli.places import pairs, place
from aiokafka.cli.session import Session, command, noun
from aiokafka.errors import AdminItemsError, KafkaError, TopicAlreadyExistsError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.admin import OffsetSpec, TopicDescription

__all__ = ["commands", "offset_spec", "partition_rows"]

commands = noun("List, describe, create, grow, apply, move and delete topics.")
commands.add_command(declared.commands)
for each in replicas.commands.commands.values():
    commands.add_command(each)

_LISTED = ("name", "partitions", "replication_factor")
_PARTITION = ("topic", "partition", "leader", "replicas", "isr", "offline_replicas")


def partition_rows(topic: TopicDescription) -> list[dict[str, Any]]:
    """Return one row per partition of a topic."""
    identity = None if topic.topic_id is None else str(topic.topic_id)
    return [
        {"topic": topic.name, "topic_id": identity, **each.as_dict()} for each in topic.partitions
    ]


@command(commands, "list")
@click.argument("pattern", required=False)
@click.option("--internal", is_flag=True, help="Show Kafka's own topics, too.")
async def list_(session: Session, pattern: str | None, internal: bool) -> None:
    """List topics, all or those that match PATTERN (as file names do: orders-*).

    \b
    Example:
      aiokafka topics list 'orders-*'
    """
    async with session.admin() as admin:
        found = await admin.topics.list(pattern, include_internal=internal)
    rows = [topic.as_dict() for topic in sorted(found, key=lambda topic: topic.name)]
    session.output.rows(rows, (*_LISTED, "is_internal") if internal else _LISTED)


@command(commands, "describe")
@click.argument("topics", nargs=-1, required=True)
async def describe(session: Session, topics: tuple[str, ...]) -> None:
    """Show leader and replicas of each partition of TOPICS.

    \b
    Example:
      aiokafka topics describe orders
    """
    async with session.admin() as admin:
        found, failed = await parts(admin.topics.describe(topics), topics)
    rows = [row for topic in found.values() for row in partition_rows(topic)]
    session.output.rows(rows, _PARTITION)
    if failed is not None:
        raise failed


def offset_spec(text: str, now: float | None = None) -> OffsetSpec | int:
    """Return the place of a text: a name of `OffsetSpec`, or a time in milliseconds since 1970.

    Raises click.BadParameter for anything else.
    """
    from aiokafka.admin import OffsetSpec

    name = text.upper().replace("-", "_")
    if name in OffsetSpec.__members__:
        return OffsetSpec[name]
    try:
        found = place(text, now)
    except ValueError:
        found = None
    if found is None or found.kind != "time":
        known = ", ".join(each.lower().replace("_", "-") for each in OffsetSpec.__members__)
        raise click.BadParameter(
            f"--at {text!r} must be one of {known}, -2h (ago), @milliseconds, or a date and time"
        )
    return found.value


@command(commands, "offsets")
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--at",
    default="latest",
    show_default=True,
    metavar="PLACE",
    help="earliest, latest, max-timestamp, -2h (ago), a date and time ...",
)
@click.option("--committed", is_flag=True, help="End before the first open transaction.")
async def offsets(session: Session, topics: tuple[str, ...], at: str, committed: bool) -> None:
    """Show the offset of a place or time in each partition of TOPICS.

    \b
    Example:
      aiokafka topics offsets orders --at -2h
    """
    spec = offset_spec(at)
    level = "read_committed" if committed else "read_uncommitted"
    async with session.admin() as admin:
        described, unknown = await parts(admin.topics.describe(topics), topics)
        wanted = {
            TopicPartition(topic.name, each.partition): spec
            for topic in described.values()
            for each in topic.partitions
        }
        try:
            found, failed = await parts(admin.offsets.list(wanted, isolation_level=level), wanted)
        except KafkaError as error:
            if unknown is None:
                raise
            # Of the only partition that there is, beside topics that there are not.
            found, failed = {}, AdminItemsError(dict.fromkeys(wanted, error), {})
    rows = [
        {"topic": tp.topic, "partition": tp.partition, **each.as_dict()}
        for tp, each in sorted(found.items())
    ]
    session.output.rows(rows, ("topic", "partition", "offset", "timestamp"))
    _raise_all(unknown, failed)


def _raise_all(*failures: AdminItemsError | None) -> None:
    failed = [each for each in failures if each is not None]
    if failed:
        errors = {item: each for one in failed for item, each in one.errors.items()}
        raise AdminItemsError(errors, {})


@command(commands, "create", prints=False)
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "-p", "--partitions", type=click.IntRange(1), help="How many; else as the broker is configured."
)
@click.option(
    "-r", "--replicas", type=click.IntRange(1), help="Of each partition; else as configured."
)
@click.option(
    "-c", "--setting", "settings", multiple=True, metavar="NAME=VALUE", help="Setting of the topic."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if a topic exists already.")
@click.option("--dry-run", is_flag=True, help="Let the broker check it; create nothing.")
async def create(
    session: Session,
    topics: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create TOPICS.

    \b
    Example:
      aiokafka topics create orders --partitions 6 --setting retention.ms=3600000
    """
    from aiokafka.admin import NewTopic

    configs = pairs(settings)
    new = [NewTopic(name, partitions, replicas, topic_configs=configs) for name in topics]
    verb = "could be created" if dry_run else "created"
    async with session.admin() as admin:
        try:
            made: Iterable[str] = await admin.topics.create(new, validate_only=dry_run)
        except (AdminItemsError, TopicAlreadyExistsError) as error:
            made, left = _sort_out(error, topics, if_not_exists)
            session.output.done("".join(f"{topic}: {verb}\n" for topic in made).rstrip())
            if left is not None:
                raise left from None
            return
    session.output.done("\n".join(f"{topic}: {verb}" for topic in made))


def _sort_out(
    error: KafkaError, topics: tuple[str, ...], if_not_exists: bool
) -> tuple[list[str], KafkaError | None]:
    """Return what was created, and the error of what failed; None if nothing failed that counts."""
    if not isinstance(error, AdminItemsError):
        return [], None if if_not_exists else error
    failed = {
        topic: each
        for topic, each in error.errors.items()
        if not (if_not_exists and isinstance(each, TopicAlreadyExistsError))
    }
    return list(error.results), AdminItemsError(failed, error.results) if failed else None


@command(commands, "grow", prints=False)
@click.argument("topic")
@click.argument("partitions", type=click.IntRange(1))
@click.option("--dry-run", is_flag=True, help="Let the broker check it; change nothing.")
async def grow(session: Session, topic: str, partitions: int, dry_run: bool) -> None:
    """Raise the number of partitions of TOPIC to PARTITIONS. Keys move to others from then on.

    \b
    Example:
      aiokafka topics grow orders 12
    """
    async with session.admin() as admin:
        await admin.topics.create_partitions({topic: partitions}, validate_only=dry_run)
    session.output.done(f"{topic}: {'could have' if dry_run else 'has'} {partitions} partitions")


@command(commands, "delete", prints=False)
@click.argument("topics", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def delete(session: Session, topics: tuple[str, ...], yes: bool) -> None:
    """Delete TOPICS with all their records.

    \b
    Example:
      aiokafka topics delete old-orders --yes
    """
    agree(f"Delete {', '.join(topics)} with all records?", yes)
    async with session.admin() as admin:
        gone, failed = await parts(admin.topics.delete(topics), topics)
    session.output.done("\n".join(f"{topic}: deleted" for topic in gone))
    if failed is not None:
        raise failed
