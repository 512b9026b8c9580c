"""Verbs of `aiokafka brokers` about log directories: what is in them, and moves between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.failures import parts
from aiokafka.cli.places import distinct, partition_of
from aiokafka.cli.session import Session, command
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.admin import LogDir

__all__ = ["commands", "move_of"]

commands = click.Group()

_DIRECTORY = ("broker", "path", "replicas", "bytes", "total_bytes", "usable_bytes", "error")
_REPLICA = ("broker", "topic", "partition", "path", "size", "offset_lag", "is_future")


@command(commands, "log-dirs")
@click.argument("broker_ids", nargs=-1, type=int, metavar="[BROKER]...")
@click.option("--replicas", is_flag=True, help="Each replica, and how far a move has got.")
async def log_dirs(session: Session, broker_ids: tuple[int, ...], replicas: bool) -> None:
    """Show the log directories of brokers, and what is in them.

    \b
    Example:
      aiokafka brokers log-dirs 0
    """
    async with session.admin() as admin:
        found, failed = await parts(admin.brokers.log_dirs(broker_ids or None), broker_ids or None)
    if replicas:
        session.output.rows(_replica_rows(found), _REPLICA)
    else:
        session.output.rows(_directory_rows(found), _DIRECTORY)
    if failed is not None:
        raise failed


def _directory_rows(found: Mapping[int, Mapping[str, LogDir]]) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker,
            "path": path,
            "replicas": len(each.replicas),
            "bytes": sum(replica.size for replica in each.replicas.values()),
            "total_bytes": each.total_bytes,
            "usable_bytes": each.usable_bytes,
            "error": str(each.error) if each.error else None,
        }
        for broker, paths in sorted(found.items())
        for path, each in sorted(paths.items())
    ]


def _replica_rows(found: Mapping[int, Mapping[str, LogDir]]) -> Iterator[dict[str, Any]]:
    for broker, paths in sorted(found.items()):
        for path, directory in sorted(paths.items()):
            for tp, each in sorted(directory.replicas.items()):
                place = {"topic": tp.topic, "partition": tp.partition, "path": path}
                yield {"broker": broker, **place, **each.as_dict()}


def move_of(text: str) -> tuple[TopicPartition, str]:
    """Return partition and directory of `topic-partition=path`.

    Raises click.BadParameter for anything else.
    """
    name, _, path = text.partition("=")
    if not path:
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION=PATH")
    return partition_of(name), path


@command(commands, "move-replicas", prints=False)
@click.argument("broker_id", type=int, metavar="BROKER")
@click.argument("moves", nargs=-1, required=True, metavar="TOPIC-PARTITION=PATH...")
async def move_replicas(session: Session, broker_id: int, moves: tuple[str, ...]) -> None:
    """Begin to move replicas to other log directories of a BROKER.

    Copying goes on after the command: see `aiokafka brokers log-dirs --replicas`.

    \b
    Example:
      aiokafka brokers move-replicas 1 orders-0=/disk2/kafka
    """
    wanted = distinct(move_of(text) for text in moves)
    async with session.admin() as admin:
        moved, failed = await parts(admin.brokers.move_replicas(broker_id, wanted), wanted)
    session.output.done(
        "\n".join(f"{tp.topic}-{tp.partition}: moves to {wanted[tp]}" for tp in moved)
    )
    if failed is not None:
        raise failed
