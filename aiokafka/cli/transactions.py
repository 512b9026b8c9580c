"""`aiokafka transactions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.arguments import Finite, name_of, partition_of
from aiokafka.cli.running import YES, agree
from aiokafka.cli.session import Session, Verbs, command
from aiokafka.errors import AdminItemsError

if TYPE_CHECKING:
    from aiokafka.admin import HangingTransaction
    from aiokafka.structs import TopicPartition

commands = Verbs(help="List, describe, abort and fence transactions; find hanging ones.")

_PLACE = "TOPIC-PARTITION"
_LISTED = ("transactional_id", "state", "producer_id", "coordinator")
_DESCRIBED = (*_LISTED, "producer_epoch", "timeout_ms", "start_ms", "partitions")
_PRODUCER = ("partition", "producer_id", "producer_epoch", "last_timestamp", "transaction_start")
_HANGING = (*_PRODUCER, "transactional_id")


@command(commands, "list")
@click.option(
    "--state", "states", multiple=True, help="Only transactions in this state: ongoing, empty ..."
)
@click.option(
    "--open-for",
    type=int,
    metavar="MS",
    help="Only transactions open for longer than this (Kafka 3.8).",
)
@click.option(
    "--pattern", metavar="REGEX", help="Only ids that match this regular expression (Kafka 4.1)."
)
async def list_(
    session: Session, states: tuple[str, ...], open_for: int | None, pattern: str | None
) -> None:
    """List transactional ids.

    \b
    Example:
      aiokafka transactions list --state ongoing
    """
    async with session.admin() as admin:
        try:
            found = await admin.transactions.list(
                states=[_state(text) for text in states],
                duration_ms=open_for,
                transactional_id_pattern=pattern,
            )
        except AdminItemsError as error:
            found, session.failure = list(error.results.values()), error
    rows = [each.as_dict() for each in sorted(found, key=lambda each: each.transactional_id)]
    session.output.rows(rows, _LISTED)


def _state(text: str) -> Any:
    from aiokafka.admin import TransactionState

    try:
        return TransactionState[text.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(each.name.lower() for each in TransactionState)
        raise click.BadParameter(f"{text!r} must be one of {known}") from None


@command(commands, "describe")
@click.argument("ids", nargs=-1, required=True)
async def describe(session: Session, ids: tuple[str, ...]) -> None:
    """Show the state of transactional IDS at their coordinators, with open partitions.

    \b
    Example:
      aiokafka transactions describe loader
    """
    async with session.admin() as admin:
        found = await session.parts(admin.transactions.describe(ids), ids)
    session.output.rows([each.as_dict() for each in found.values()], _DESCRIBED)


@command(commands, "producers")
@click.argument("places", nargs=-1, required=True, metavar=f"{_PLACE}...")
async def producers(session: Session, places: tuple[str, ...]) -> None:
    """Show the producers that have written to partitions, as the leaders of the partitions know
    them.

    \b
    Example:
      aiokafka transactions producers orders-0
    """
    wanted = [partition_of(text) for text in places]
    async with session.admin() as admin:
        found = await session.parts(admin.transactions.producers(wanted), wanted)
    rows = [_producer_row(tp, each) for tp, known in found.items() for each in known]
    session.output.rows(rows, _PRODUCER)


def _producer_row(tp: TopicPartition, producer: Any) -> dict[str, Any]:
    found = producer.as_dict()
    start = found.pop("transaction_start_offset")
    return {"partition": name_of(tp), **found, "transaction_start": start}


def hanging_row(found: HangingTransaction) -> dict[str, Any]:
    """Return the row of a hanging transaction. Its columns include the arguments of `abort`."""
    row = _producer_row(found.partition, found.producer)
    return {**row, "transactional_id": found.transactional_id}


@command(commands, "find-hanging")
@click.argument("places", nargs=-1, metavar=f"[{_PLACE}]...")
@click.option(
    "--minutes",
    type=Finite(0),
    default=20,
    show_default=True,
    help="Only transactions without a write for this long.",
)
async def find_hanging(session: Session, places: tuple[str, ...], minutes: float) -> None:
    """Find transactions that no coordinator will end, in these partitions or in all.

    Partitions that cannot be checked are listed on stderr; the result has the other partitions.

    \b
    Example:
      aiokafka transactions find-hanging --minutes 30
    """
    wanted = [partition_of(text) for text in places] or None
    async with session.admin() as admin:
        try:
            found = await admin.transactions.find_hanging(wanted, older_than_ms=minutes * 60_000)
        except AdminItemsError as error:
            session.failure = error
            found = [one for each in error.results.values() for one in each]
    session.output.rows([hanging_row(each) for each in found], _HANGING)


@command(commands, "abort", prints=False)
@click.argument("place", metavar=_PLACE)
@click.argument("producer_id", type=int)
@click.argument("producer_epoch", type=int)
@click.option("--coordinator-epoch", type=int, help="The epoch that `producers` shows, if any.")
@YES
async def abort(
    session: Session,
    place: str,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int | None,
    yes: bool,
) -> None:
    """Abort a hanging transaction in one partition, without its coordinator.

    \b
    Example:
      aiokafka transactions abort orders-0 4711 3 --yes
    """
    tp = partition_of(place)
    agree(f"Abort the open transaction of producer {producer_id} in {place}?", yes)
    async with session.admin() as admin:
        await admin.transactions.abort(tp, producer_id, producer_epoch, coordinator_epoch)
    session.output.done(f"{place}: aborted")


@command(commands, "fence", prints=False)
@click.argument("ids", nargs=-1, required=True)
@YES
async def fence(session: Session, ids: tuple[str, ...], yes: bool) -> None:
    """Fence the producers of transactional IDS, and abort their open transactions.

    \b
    Example:
      aiokafka transactions fence loader --yes
    """
    agree(f"Fence the producers of {', '.join(ids)}?", yes)
    async with session.admin() as admin:
        fenced = await session.parts(admin.transactions.fence(ids), ids)
    session.output.done("\n".join(f"{each}: fenced" for each in fenced))


@command(commands, "terminate", prints=False)
@click.argument("id")
@YES
async def terminate(session: Session, id: str, yes: bool) -> None:
    """Abort the open transaction of an existing transactional ID, and fence its producer.

    \b
    Example:
      aiokafka transactions terminate loader --yes
    """
    agree(f"Abort the open transaction of {id}?", yes)
    async with session.admin() as admin:
        await admin.transactions.force_terminate(id)
    session.output.done(f"{id}: terminated")
