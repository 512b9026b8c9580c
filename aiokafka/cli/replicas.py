"""Verbs of `aiokafka topics` about replicas: who keeps them, and who leads."""

from __future__ import annotations

from collections.abc import Iterable

import click

from aiokafka import TopicPartition
from aiokafka.cli.asking import agree
from aiokafka.cli.failures import parts
from aiokafka.cli.places import distinct, partition_of
from aiokafka.cli.session import Session, command

__all__ = ["commands", "move_of"]

commands = click.Group()

_PLACE = "TOPIC-PARTITION"
_MOVE = f"{_PLACE}=BROKER,..."
_MOVING = ("topic", "partition", "replicas", "adding", "removing")


def move_of(text: str) -> tuple[TopicPartition, list[int]]:
    """Return partition and brokers of `topic-partition=1,2,3`.

    Raises click.BadParameter for anything else.
    """
    place, _, brokers = text.rpartition("=")
    ids = brokers.split(",")
    if not all(each.isascii() and each.isdigit() for each in ids):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION=BROKER,BROKER...")
    return partition_of(place), [int(each) for each in ids]


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


@command(commands, "reassign", prints=False)
@click.argument("moves", nargs=-1, required=True, metavar=f"{_MOVE}...")
@click.option("--same-factor", is_flag=True, help="Refuse another number of replicas (Kafka 4.1).")
async def reassign(session: Session, moves: tuple[str, ...], same_factor: bool) -> None:
    """Begin to move partitions to these brokers, of which the first is to lead.

    Copying goes on after the command: see `aiokafka topics reassignments`.

    \b
    Example:
      aiokafka topics reassign orders-0=1,2 orders-1=2,3
    """
    wanted = distinct(move_of(text) for text in moves)
    async with session.admin() as admin:
        call = admin.topics.reassign(wanted, allow_replication_factor_change=not same_factor)
        moved, failed = await parts(call, wanted)
    session.output.done("\n".join(f"{_name(tp)}: moves" for tp in moved))
    if failed is not None:
        raise failed


@command(commands, "reassignments")
@click.argument("places", nargs=-1, metavar=f"[{_PLACE}]...")
async def reassignments(session: Session, places: tuple[str, ...]) -> None:
    """Show the partitions that are being moved, of these or of all.

    \b
    Example:
      aiokafka topics reassignments
    """
    wanted = [partition_of(text) for text in places] or None
    async with session.admin() as admin:
        found = await admin.topics.reassignments(wanted)
    rows = [
        {"topic": tp.topic, "partition": tp.partition, **each.as_dict()}
        for tp, each in sorted(found.items())
    ]
    session.output.rows(rows, _MOVING)


@command(commands, "cancel-reassignments", prints=False)
@click.argument("places", nargs=-1, required=True, metavar=f"{_PLACE}...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def cancel(session: Session, places: tuple[str, ...], yes: bool) -> None:
    """Take back moves that are under way: partitions stay where they were.

    \b
    Example:
      aiokafka topics cancel-reassignments orders-0 --yes
    """
    wanted = _each_once(places)
    agree(f"Stop moving {', '.join(map(_name, wanted))}?", yes)
    async with session.admin() as admin:
        stayed, failed = await parts(admin.topics.cancel_reassignments(wanted), wanted)
    session.output.done("\n".join(f"{_name(tp)}: stays" for tp in stayed))
    if failed is not None:
        raise failed


@command(commands, "elect-leaders", prints=False)
@click.argument("places", nargs=-1, metavar=f"[{_PLACE}]...")
@click.option(
    "--unclean", is_flag=True, help="Where none leads, take a replica that may lack records."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def elect(session: Session, places: tuple[str, ...], unclean: bool, yes: bool) -> None:
    """Let the first replica of partitions lead again, of these or of all.

    \b
    Example:
      aiokafka topics elect-leaders orders-0 orders-1
    """
    from aiokafka.admin import ElectionType

    wanted = _each_once(places) or None
    if unclean:
        agree("Elect replicas that may lack records? Those are lost then.", yes)
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    async with session.admin() as admin:
        call = admin.topics.elect_leaders(wanted, election_type=kind)
        found, failed = await parts(call, wanted)
    said = {True: "has a new leader", False: "has the right leader already"}
    session.output.done("\n".join(f"{_name(tp)}: {said[found[tp]]}" for tp in sorted(found)))
    if failed is not None:
        raise failed


def _each_once(places: Iterable[str]) -> list[TopicPartition]:
    return list(dict.fromkeys(partition_of(text) for text in places))
