"""`aiokafka groups`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from aiokafka.cli.arguments import (
    Finite,
    distinct,
    is_number,
    name_of,
    numbers,
    partition_of,
    place,
)
from aiokafka.cli.failures import PartlyFailedError, lines_of, parts
from aiokafka.cli.output import by_partition, note, printable
from aiokafka.cli.running import YES, agree
from aiokafka.cli.session import Session, Verbs, command
from aiokafka.errors import AdminItemsError, KafkaError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.admin import (
        AIOKafkaAdminClient,
        GroupDescription,
        GroupLag,
        GroupMember,
        ResetRule,
    )

commands = Verbs(help="List, describe, reset and delete groups; watch their lag.")

_LISTED = ("group_id", "type", "state", "protocol_type", "coordinator")
_MEMBER = ("group", "state", "member", "client_id", "host", "partitions")
_LAG = ("group", "topic", "partition", "committed", "end", "lag", "behind", "client_id", "host")


@command(commands, "list")
@click.argument("prefix", default="")
@click.option(
    "--state", "states", multiple=True, help="Only groups in this state: stable, empty, dead ..."
)
@click.option(
    "--type", "types", multiple=True, help="Only groups of this type: classic, consumer, share ..."
)
async def list_(
    session: Session, prefix: str, states: tuple[str, ...], types: tuple[str, ...]
) -> None:
    """List groups: all, or those whose ids begin with PREFIX.

    \b
    Example:
      aiokafka groups list --state stable
    """
    async with session.admin() as admin:
        listed = admin.groups.list(states=states, types=types, prefix=prefix)
        found = await session.parts(listed, None)
    session.output.rows([found[name].as_dict() for name in sorted(found)], _LISTED)
    if not found:
        session.output.done("no such groups, or none that this user may see")


def member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    """Return one row for each member of a group; for a group without members, one row without a
    member."""
    facts: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state.name,
        "type": group.type.name,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
    }
    return [
        {
            **facts,
            "member": member.instance_id or member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "partitions": _parts(member),
        }
        for member in group.members
    ] or [facts]


def _parts(member: GroupMember) -> list[str]:
    """Return the names of a member's assigned partitions; in a streams group, of its active
    tasks."""
    if member.tasks is None:
        return [name_of(tp) for tp in member.assignment or ()]
    active = member.tasks.active
    return [f"{name}_{number}" for name, numbers in active.items() for number in numbers]


@command(commands, "describe")
@click.argument("groups", nargs=-1, required=True)
async def describe(session: Session, groups: tuple[str, ...]) -> None:
    """Show the members of GROUPS and the partitions assigned to each member.

    \b
    Example:
      aiokafka groups describe billing
    """
    async with session.admin() as admin:
        found = await session.parts(admin.groups.describe(groups), groups)
    session.output.rows([row for group in found.values() for row in member_rows(group)], _MEMBER)


def lag_rows(lags: Mapping[str, GroupLag]) -> list[dict[str, Any]]:
    """Return one row for each partition of each group."""
    return [
        {
            "group": name,
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": each.committed,
            "end": each.end_offset,
            "lag": each.lag,
            "behind": _duration(each.time_lag_ms),
            "client_id": each.owner.client_id if each.owner else None,
            "host": each.owner.host if each.owner else None,
            "time_lag_ms": each.time_lag_ms,
            "lost": each.lost,
            "error": str(each.error) if each.error else None,
        }
        for name, group in lags.items()
        for tp, each in sorted(group.partitions.items())
    ]


async def _uncommitted_rows(
    admin: AIOKafkaAdminClient, lags: Mapping[str, GroupLag]
) -> list[dict[str, Any]]:
    """Return a row for each partition that is missing in `lags`, because the group has no committed
    offset for it and no member owns it.

    This concerns only topics of which the group has another partition in `lags`. The lag in these
    rows is counted from the first record of the partition.
    """
    from aiokafka.admin import OffsetSpec

    topics = {tp.topic for group in lags.values() for tp in group.partitions}
    if not topics:
        return []
    try:
        described = await admin.topics.describe(sorted(topics))
        every = [
            TopicPartition(topic.name, each.partition)
            for topic in described.values()
            for each in topic.partitions
        ]
        missing = {
            name: [tp for tp in every if tp not in group.partitions and _reads(group, tp.topic)]
            for name, group in lags.items()
        }
        wanted = {tp for partitions in missing.values() for tp in partitions}
        if not wanted:
            return []
        starts = await admin.offsets.list(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        ends = await admin.offsets.list(dict.fromkeys(wanted, OffsetSpec.LATEST))
    except KafkaError:
        return []  # the rows of committed partitions are shown nevertheless
    return [
        {
            "group": name,
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": None,
            "end": ends[tp].offset,
            "lag": (ends[tp].offset or 0) - (starts[tp].offset or 0),
        }
        for name, partitions in missing.items()
        for tp in partitions
    ]


def _reads(group: GroupLag, topic: str) -> bool:
    return any(tp.topic == topic for tp in group.partitions)


def _total_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row with the total lag for each group with several partitions."""
    totals: dict[str, list[int]] = {}
    for row in rows:
        totals.setdefault(row["group"], []).append(row["lag"] or 0)
    return [
        {"group": name, "topic": "TOTAL", "lag": sum(found)}
        for name, found in totals.items()
        if len(found) > 1
    ]


def _duration(ms: int | None) -> str | None:
    if ms is None:
        return None
    seconds = ms // 1000
    if seconds < 60:
        return f"{ms / 1000:.1f}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    return f"{seconds // 3600}h{seconds // 60 % 60:02}m"


@command(commands, "lag")
@click.argument("groups", nargs=-1, required=True)
@click.option("-w", "--watch", is_flag=True, help="Update the output at an interval, until Ctrl-C.")
@click.option(
    "--interval",
    type=Finite(0.05),
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="Time between two updates of --watch.",
)
async def lag(session: Session, groups: tuple[str, ...], watch: bool, interval: float) -> None:
    """Show the lag of GROUPS in each partition, as a number of offsets and as a time.

    \b
    Example:
      aiokafka groups lag billing --watch
    """
    async with session.admin() as admin:
        if watch:
            await _watch(session, admin, groups, interval)
        found = await session.parts(admin.groups.lag(groups), groups)
        rows = lag_rows(found) + await _uncommitted_rows(admin, found)
    rows.sort(key=lambda row: (row["group"], row["topic"], row["partition"]))
    if session.output.form == "table":
        rows += _total_rows(rows)
    session.output.rows(rows, _LAG)


async def _watch(
    session: Session, admin: AIOKafkaAdminClient, groups: Sequence[str], interval: float
) -> NoReturn:
    """Print the lag at an interval. After the first report, print errors and go on, because a later
    attempt may succeed. Fatal errors (`KafkaError.is_fatal`) are raised at any time."""
    was_shown = False
    while True:
        try:
            found, failed = await parts(admin.groups.lag(groups), groups)
            session.output.redraw(lag_rows(found), _LAG)
            if failed is not None:
                raise failed
        except KafkaError as error:
            if not was_shown or error.is_fatal:
                raise
            for line in lines_of(error):
                note(f"aiokafka: {printable(line)}")
        was_shown = True
        await asyncio.sleep(interval)


def reset_rule(given: Mapping[str, Any], now: float | None = None) -> ResetRule:
    """Return the rule for the one option that is given: `to`, `shift` or `copy_of`.

    `now` is the time to which `--to -2h` refers, in seconds since 1970; by default the current
    time. Raises click.UsageError for a malformed `to`, and if not exactly one option is given.
    """
    from aiokafka.admin import ResetRule

    named = [name for name in ("to", "shift", "copy_of") if given[name] is not None]
    if len(named) != 1:
        raise click.UsageError("give one of --to, --shift and --copy-of")
    if named == ["shift"]:
        return ResetRule.shift_by(given["shift"])
    if named == ["copy_of"]:
        return ResetRule.copy(given["copy_of"])
    try:
        at = place(given["to"], now)
    except ValueError as error:
        raise click.UsageError(f"--to: {error}") from None
    if at.kind in ("earliest", "latest"):
        return ResetRule.earliest() if at.kind == "earliest" else ResetRule.latest()
    if at.kind == "time":
        return ResetRule.timestamp(at.value)
    if at.kind == "offset":
        return ResetRule.to_offset(at.value)
    raise click.UsageError("--to: earliest, latest, an offset, -2h, @milliseconds, or a date")


@command(commands, "reset")
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Reset all partitions of this topic; default: all with offsets.",
)
@click.option(
    "-p",
    "--partitions",
    metavar="0,3-5",
    help="Reset only these partitions of the one topic of --topic.",
)
@click.option(
    "--to",
    metavar="PLACE",
    help="earliest, latest, an offset, -2h (ago), @milliseconds, a date and time.",
)
@click.option(
    "--shift", type=int, metavar="N", help="Add N to the committed offsets; N may be negative."
)
@click.option("--copy-of", metavar="GROUP", help="Copy the committed offsets of this group.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets; change nothing.")
async def reset(
    session: Session,
    group: str,
    topics: tuple[str, ...],
    partitions: str | None,
    dry_run: bool,
    **given: Any,
) -> None:
    """Move the committed offsets of GROUP to other positions. GROUP must have no members.

    \b
    Example:
      aiokafka groups reset billing --to earliest --topic orders --dry-run
    """
    rule = reset_rule(given)
    chosen: list[TopicPartition] | None = None
    if partitions is not None:
        if len(topics) != 1:
            raise click.UsageError("--partitions: needs one --topic")
        try:
            chosen = [TopicPartition(topics[0], number) for number in numbers(partitions)]
        except ValueError as error:
            raise click.UsageError(f"--partitions: {error}") from None
    async with session.admin() as admin:
        if topics and chosen is None and (given["shift"] or given["copy_of"]) is not None:
            chosen = await _committed_in(admin, given["copy_of"] or group, topics)
        found = await admin.groups.reset_offsets(
            group,
            rule,
            partitions=chosen,
            topics=None if chosen is not None else topics or None,
            dry_run=dry_run,
        )
    session.output.rows(by_partition(found), ("topic", "partition", "old", "new", "clamped"))


async def _committed_in(
    admin: AIOKafkaAdminClient, group: str, topics: Sequence[str]
) -> list[TopicPartition] | None:
    """Return the partitions of these topics with a committed offset. Print the other partitions.

    Returns None if no partition has a committed offset. The caller then resets whole topics, which
    raises the error of each partition.
    """
    committed = (await admin.groups.offsets([group]))[group]
    found = sorted(tp for tp, each in committed.items() if tp.topic in topics and each is not None)
    if not found:
        return None
    described = await admin.topics.describe(topics)
    for topic in described.values():
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition)
            if tp not in found:
                note(f"aiokafka: {name_of(tp)} is left out: group {group} has no offset for it")
    return found


@command(commands, "delete", prints=False)
@click.argument("groups", nargs=-1, required=True)
@YES
async def delete(session: Session, groups: tuple[str, ...], yes: bool) -> None:
    """Delete GROUPS with their committed offsets. The groups must have no members.

    \b
    Example:
      aiokafka groups delete old-billing --yes
    """
    agree(f"Delete {', '.join(groups)} with all offsets?", yes)
    async with session.admin() as admin:
        gone = await session.parts(admin.groups.delete(groups), groups)
    session.output.done(f"deleted: {', '.join(gone)}" if gone else "")


@command(commands, "remove-members", prints=False)
@click.argument("group")
@click.argument("members", nargs=-1, metavar="[MEMBER_ID]...")
@click.option("--instance", "instances", multiple=True, metavar="NAME", help="A static member.")
@click.option("--all", "every", is_flag=True, help="All members.")
@click.option("--reason", default="", help="Text for the broker's log.")
@YES
async def remove_members(
    session: Session,
    group: str,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    every: bool,
    reason: str,
    yes: bool,
) -> None:
    """Remove members from a classic GROUP before their sessions expire.

    \b
    Example:
      aiokafka groups remove-members billing --instance worker-3 --yes
    """
    if every == bool(members or instances):
        raise click.UsageError("give members, --instance or --all")
    agree(f"Remove {'all members' if every else 'these members'} of {group}?", yes)
    async with session.admin() as admin:
        try:
            gone = await admin.groups.remove_members(
                group, instance_ids=instances, member_ids=members, all_members=every, reason=reason
            )
        except AdminItemsError as error:
            gone, session.failure = tuple(error.results), error
    session.output.done("\n".join(f"{printable(member)}: removed" for member in gone))


# -- Committed offsets


_SHARE = click.option("--share", is_flag=True, help="For share groups (Kafka 4.1).")


@command(commands, "offsets")
@click.argument("groups", nargs=-1, required=True)
@_SHARE
async def offsets(session: Session, groups: tuple[str, ...], share: bool) -> None:
    """Show the committed offsets of GROUPS; with --share, the start offsets of share groups.

    \b
    Example:
      aiokafka groups offsets billing --output csv
    """
    async with session.admin() as admin:
        found: Mapping[str, Mapping[TopicPartition, Any]]
        if share:
            found = await session.parts(admin.groups.share_offsets(groups), groups)
            columns = ("group", "topic", "partition", "start_offset", "lag")
        else:
            found = await session.parts(admin.groups.offsets(groups), groups)
            columns = ("group", "topic", "partition", "offset", "metadata")
        wrong = await _errors_without_offsets(
            admin, [name for name in found if not found[name]], share
        )
    session.output.rows(_rows(found), columns)
    if wrong and session.failure is None:
        raise PartlyFailedError(map(str, wrong), wrong[0])


async def _errors_without_offsets(
    admin: AIOKafkaAdminClient, groups: Sequence[str], share: bool
) -> list[Exception]:
    """Return an error for each group that does not exist, and for each group of the wrong type:
    with `share`, a group that is no share group; otherwise, a share group.

    When their offsets are requested, brokers return neither an error nor offsets for these groups.
    """
    wrong: list[Exception] = []
    for name in groups:
        try:
            kind = (await admin.groups.describe([name]))[name].type.name.lower()
        except KafkaError as error:
            wrong.append(error)  # the offsets of the other groups are printed nevertheless
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
    """Parse a partition and an offset from `topic-partition=offset`.

    Raises click.BadParameter for other texts.
    """
    name, _, offset = text.rpartition("=")
    if not is_number(offset):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION=OFFSET")
    return partition_of(name), int(offset)


@command(commands, "set-offsets", prints=False)
@click.argument("group")
@click.argument("offsets", nargs=-1, required=True, metavar="TOPIC-PARTITION=OFFSET...")
@_SHARE
@YES
async def set_offsets(
    session: Session, group: str, offsets: tuple[str, ...], share: bool, yes: bool
) -> None:
    """Set committed offsets of GROUP, which must have no members.

    The command does not check whether records with these offsets exist. `aiokafka groups reset`
    does: it replaces an offset outside the partition by the first or the end offset.

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
        stored = await session.parts(call, wanted)
    session.output.done("\n".join(f"{name_of(tp)}: {wanted[tp]}" for tp in stored))


@command(commands, "delete-offsets", prints=False)
@click.argument("group")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC-PARTITION...")
@click.option(
    "--share", is_flag=True, help="For a share group; give topics, not partitions (Kafka 4.1)."
)
@YES
async def delete_offsets(
    session: Session, group: str, places: tuple[str, ...], share: bool, yes: bool
) -> None:
    """Delete the committed offsets of GROUP in these partitions (with --share: in these topics). No
    member of GROUP may be subscribed to their topics.

    \b
    Example:
      aiokafka groups delete-offsets billing orders-0 --yes
    """
    wanted = [] if share else [partition_of(text) for text in places]
    agree(f"Delete offsets of {group} in {', '.join(places)}?", yes)
    async with session.admin() as admin:
        if share:
            gone = await session.parts(admin.groups.delete_share_offsets(group, places), places)
            names = list(gone)
        else:
            deleted = await session.parts(admin.groups.delete_offsets(group, wanted), wanted)
            names = list(map(name_of, deleted))
    session.output.done("\n".join(f"{each}: forgotten" for each in names))
