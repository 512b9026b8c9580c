"""Verbs of `aiokafka groups` about single offsets: show, set and delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.asking import agree
from aiokafka.cli.failures import PartlyFailedError, parts
from aiokafka.cli.places import distinct, is_number, partition_of
from aiokafka.cli.session import Session, command
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

__all__ = ["commands", "offset_of"]

commands = click.Group()

_SHARE = click.option("--share", is_flag=True, help="Of share groups (Kafka 4.1).")
_YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@command(commands, "offsets")
@click.argument("groups", nargs=-1, required=True)
@_SHARE
async def offsets(session: Session, groups: tuple[str, ...], share: bool) -> None:
    """Show what GROUPS have committed, or where share groups begin.

    \b
    Example:
      aiokafka groups offsets billing --output csv
    """
    async with session.admin() as admin:
        found: Mapping[str, Mapping[TopicPartition, Any]]
        if share:
            found, failed = await parts(admin.groups.share_offsets(groups), groups)
            columns = ("group", "topic", "partition", "start_offset", "lag")
        else:
            found, failed = await parts(admin.groups.offsets(groups), groups)
            columns = ("group", "topic", "partition", "offset", "metadata")
        wrong = await _explained(admin, [name for name in found if not found[name]], share)
    session.output.rows(_rows(found), columns)
    if failed is not None:
        raise failed
    if wrong:
        raise PartlyFailedError(map(str, wrong), wrong[0])


async def _explained(
    admin: AIOKafkaAdminClient, groups: Sequence[str], share: bool
) -> list[Exception]:
    """Return what is wrong with groups without offsets: brokers say nothing of it."""
    wrong: list[Exception] = []
    for name in groups:
        try:
            kind = (await admin.groups.describe([name]))[name].type.name.lower()
        except KafkaError as error:
            wrong.append(error)  # what was found of the others is shown all the same
            continue
        if (kind == "share") is not share:
            hint = "leave out --share" if share else "give --share"
            wrong.append(ValueError(f"group {name!r} is a {kind} group: {hint}"))
    return wrong


def _rows(found: Mapping[str, Mapping[TopicPartition, Any]]) -> list[dict[str, Any]]:
    return [
        {"group": group, "topic": tp.topic, "partition": tp.partition, **_fields(each)}
        for group, offsets in found.items()
        for tp, each in sorted(offsets.items())
    ]


def _fields(found: Any) -> dict[str, Any]:
    if found is None:
        return {}
    if hasattr(found, "as_dict"):
        return dict(found.as_dict())
    return {"offset": found.offset, "metadata": found.metadata}


def offset_of(text: str) -> tuple[TopicPartition, int]:
    """Return partition and offset of `topic-partition=offset`.

    Raises click.BadParameter for anything else.
    """
    name, _, offset = text.rpartition("=")
    if not is_number(offset):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION=OFFSET")
    return partition_of(name), int(offset)


@command(commands, "set-offsets", prints=False)
@click.argument("group")
@click.argument("offsets", nargs=-1, required=True, metavar="TOPIC-PARTITION=OFFSET...")
@_SHARE
@_YES
async def set_offsets(
    session: Session, group: str, offsets: tuple[str, ...], share: bool, yes: bool
) -> None:
    """Let GROUP, which must have no members, go on at these offsets.

    They are stored as they are; `aiokafka groups reset` checks that they exist.

    \b
    Example:
      aiokafka groups set-offsets billing orders-0=42 --yes
    """
    wanted = distinct(offset_of(text) for text in offsets)
    agree(f"Set {len(wanted)} offsets of {group}?", yes)
    async with session.admin() as admin:
        if share:
            call = admin.groups.alter_share_offsets(group, wanted)
        else:
            call = admin.groups.alter_offsets(group, {**wanted})
        stored, failed = await parts(call, wanted)
    session.output.done("\n".join(f"{_name(tp)}: {wanted[tp]}" for tp in stored))
    if failed is not None:
        raise failed


@command(commands, "delete-offsets", prints=False)
@click.argument("group")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC-PARTITION...")
@click.option("--share", is_flag=True, help="Of a share group, by names of topics (Kafka 4.1).")
@_YES
async def delete_offsets(
    session: Session, group: str, places: tuple[str, ...], share: bool, yes: bool
) -> None:
    """Let GROUP forget its offsets in partitions that no member reads.

    \b
    Example:
      aiokafka groups delete-offsets billing orders-0 --yes
    """
    wanted = [] if share else [partition_of(text) for text in places]
    agree(f"Delete offsets of {group} in {', '.join(places)}?", yes)
    async with session.admin() as admin:
        if share:
            gone, failed = await parts(admin.groups.delete_share_offsets(group, places), places)
            names = list(gone)
        else:
            deleted, failed = await parts(admin.groups.delete_offsets(group, wanted), wanted)
            names = list(map(_name, deleted))
    session.output.done("\n".join(f"{each}: forgotten" for each in names))
    if failed is not None:
        raise failed


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
