"""`aiokafka topics`: list, describe, create and delete topics."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any

import click

from aiokafka.cli.failures import PartlyFailedError
from aiokafka.cli.session import Session, command, noun
from aiokafka.errors import UnknownTopicOrPartitionError, for_code

__all__ = ["commands", "partition_rows", "summary"]

commands = noun("List, describe, create and delete topics.")


def summary(topic: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row about a topic."""
    partitions = topic["partitions"]
    return {
        "topic": topic["topic"],
        "partitions": len(partitions),
        "replicas": max((len(each["replicas"]) for each in partitions), default=0),
        "without_leader": sum(each["leader"] < 0 for each in partitions),
        "under_replicated": sum(len(each["isr"]) < len(each["replicas"]) for each in partitions),
        "internal": topic["is_internal"],
    }


def partition_rows(topic: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per partition of a topic."""
    return [
        {
            "topic": topic["topic"],
            "partition": each["partition"],
            "leader": each["leader"] if each["leader"] >= 0 else None,
            "replicas": each["replicas"],
            "isr": each["isr"],
            "offline": each["offline_replicas"],
        }
        for each in sorted(topic["partitions"], key=lambda each: int(each["partition"]))
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
        found = await admin.describe_topics()
    rows = [
        summary(topic)
        for topic in sorted(found, key=lambda topic: str(topic["topic"]))
        if (internal or not topic["is_internal"])
        and (pattern is None or fnmatch.fnmatchcase(topic["topic"], pattern))
    ]
    columns = ("topic", "partitions", "replicas", "without_leader", "under_replicated")
    session.output.rows(rows, (*columns, "internal") if internal else columns)


@command(commands, "describe")
@click.argument("topics", nargs=-1, required=True)
async def describe(session: Session, topics: tuple[str, ...]) -> None:
    """Show leader and replicas of each partition of TOPICS.

    \b
    Example:
      aiokafka topics describe orders
    """
    async with session.admin() as admin:
        found = await admin.describe_topics(topics)
    rows = [row for topic in found if not topic["error_code"] for row in partition_rows(topic)]
    if rows:
        session.output.rows(rows, ("topic", "partition", "leader", "replicas", "isr", "offline"))
    _raise_failed((topic["topic"], topic["error_code"], None) for topic in found)


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
    async with session.admin() as admin:
        result = await admin.create_topics(new, validate_only=dry_run)
    known = {36} if if_not_exists else set()
    verb = "could be created" if dry_run else "created"
    _report(session, verb, [each for each in result.topic_errors if each[1] not in known])


@command(commands, "delete", prints=False)
@click.argument("topics", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def delete(session: Session, topics: tuple[str, ...], yes: bool) -> None:
    """Delete TOPICS with all their records.

    \b
    Example:
      aiokafka topics delete old-orders --yes
    """
    if not yes:
        click.confirm(f"Delete {', '.join(topics)} with all records?", abort=True, err=True)
    async with session.admin() as admin:
        result = await admin.delete_topics(topics)
    _report(session, "deleted", result.topic_errors)


def pairs(texts: Iterable[str]) -> dict[str, str | None]:
    """Return the settings of `name=value` texts.

    Raises click.BadParameter without a `=`.
    """
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} must be NAME=VALUE")
        found[name] = value
    return found


def _report(session: Session, verb: str, results: Iterable[tuple[str, int, str | None]]) -> None:
    every = list(results)
    for topic, code, _ in every:
        if not code:
            session.output.done(f"{topic}: {verb}")
    _raise_failed(every)


def _raise_failed(results: Iterable[tuple[str, int, str | None]]) -> None:
    """Raise PartlyFailedError if a code is none of success."""
    failed = []
    first: BaseException | None = None
    for topic, code, message in results:
        if code:
            error = for_code(code)
            first = first or error(message)
            text = message or ("no such topic" if error is UnknownTopicOrPartitionError else "")
            failed.append(f"topic {topic}: {error.__name__}: {text or error.description}")
    if failed:
        raise PartlyFailedError(failed, first)
