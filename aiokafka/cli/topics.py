"""`aiokafka topics` and `aiokafka records`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aiokafka.cli.arguments import (
    Place,
    distinct,
    is_number,
    name_of,
    offsets_at,
    pairs,
    partition_of,
    place,
)
from aiokafka.cli.formats import time_of
from aiokafka.cli.output import by_partition
from aiokafka.cli.running import YES, agree
from aiokafka.cli.session import Session, Verbs, command
from aiokafka.cli.settings import read_file, read_stdin
from aiokafka.errors import (
    AdminItemsError,
    KafkaConfigurationError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, OffsetSpec, TopicDescription

commands = Verbs(help="List, describe, create, grow, apply, move and delete topics.")

_LISTED = ("name", "partitions", "replication_factor")
_PARTITION = ("topic", "partition", "leader", "replicas", "isr", "offline_replicas")


def partition_rows(topic: TopicDescription) -> list[dict[str, Any]]:
    """Return one row for each partition of a topic, with the fields of its description."""
    identity = None if topic.topic_id is None else str(topic.topic_id)
    return [
        {"topic": topic.name, "topic_id": identity, **each.as_dict()} for each in topic.partitions
    ]


@command(commands, "list")
@click.argument("pattern", required=False)
@click.option("--internal", is_flag=True, help="Also show internal topics.")
async def list_(session: Session, pattern: str | None, internal: bool) -> None:
    """List topics: all, or those whose names match PATTERN, a shell pattern such as orders-*.

    \b
    Example:
      aiokafka topics list 'orders-*'
    """
    async with session.admin() as admin:
        found = await admin.topics.list(pattern, include_internal=internal)
    rows = [topic.as_dict() for topic in sorted(found, key=lambda topic: topic.name)]
    session.output.rows(rows, (*_LISTED, "is_internal") if internal else _LISTED)
    if not rows:
        session.output.done("no such topics, or none that this user may see")


@command(commands, "describe")
@click.argument("topics", nargs=-1, required=True)
async def describe(session: Session, topics: tuple[str, ...]) -> None:
    """Show the leader and the replicas of each partition of TOPICS.

    \b
    Example:
      aiokafka topics describe orders
    """
    async with session.admin() as admin:
        found = await session.parts(admin.topics.describe(topics), topics)
    rows = [row for topic in found.values() for row in partition_rows(topic)]
    session.output.rows(rows, _PARTITION)


def offset_spec(text: str, now: float | None = None) -> OffsetSpec | int:
    """Parse the name of an `OffsetSpec`, such as `earliest-local`, or a time. A time is returned in
    milliseconds since 1970.

    `now` is the time to which `-2h` refers, in seconds since 1970; by default the current time.
    Raises click.BadParameter for other texts.
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
@click.option(
    "--committed", is_flag=True, help="latest is the start of the first open transaction."
)
async def offsets(session: Session, topics: tuple[str, ...], at: str, committed: bool) -> None:
    """Show the offset of a position or a time in each partition of TOPICS.

    \b
    Example:
      aiokafka topics offsets orders --at -2h
    """
    spec = offset_spec(at)
    level = "read_committed" if committed else "read_uncommitted"
    async with session.admin() as admin:
        described = await session.parts(admin.topics.describe(topics), topics)
        wanted = {
            TopicPartition(topic.name, each.partition): spec
            for topic in described.values()
            for each in topic.partitions
        }
        try:
            found = await session.parts(admin.offsets.list(wanted, isolation_level=level), wanted)
        except KafkaError as error:
            if session.failure is None:
                raise
            # If the call was about one partition, `error` is the error of this partition. Add it to
            # the errors of unknown topics.
            found = {}
            session.fail_at_end(AdminItemsError(dict.fromkeys(wanted, error), {}))
    session.output.rows(by_partition(found), ("topic", "partition", "offset", "timestamp"))


@command(commands, "create", prints=False)
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="Number of partitions; default: as the broker is configured.",
)
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(1),
    help="Replicas of each partition; default: as the broker is configured.",
)
@click.option(
    "-c", "--setting", "settings", multiple=True, metavar="NAME=VALUE", help="Setting of the topic."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if a topic exists already.")
@click.option("--dry-run", is_flag=True, help="Check the topics on the broker; create nothing.")
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
    """Return the created topics, and the error of the failed topics (None if no topic failed).

    With `if_not_exists`, a topic that exists already does not count as failed.
    """
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
@click.option("--dry-run", is_flag=True, help="Check the change on the broker; change nothing.")
async def grow(session: Session, topic: str, partitions: int, dry_run: bool) -> None:
    """Raise the number of partitions of TOPIC to PARTITIONS. Afterwards, the records of most keys
    go to other partitions than before.

    \b
    Example:
      aiokafka topics grow orders 12
    """
    async with session.admin() as admin:
        await admin.topics.create_partitions({topic: partitions}, validate_only=dry_run)
    session.output.done(f"{topic}: {'could have' if dry_run else 'has'} {partitions} partitions")


@command(commands, "delete", prints=False)
@click.argument("topics", nargs=-1, required=True)
@YES
async def delete(session: Session, topics: tuple[str, ...], yes: bool) -> None:
    """Delete TOPICS with all their records.

    \b
    Example:
      aiokafka topics delete old-orders --yes
    """
    agree(f"Delete {', '.join(topics)} with all records?", yes)
    async with session.admin() as admin:
        gone = await session.parts(admin.topics.delete(topics), topics)
    session.output.done("\n".join(f"{topic}: deleted" for topic in gone))


# -- Replicas and leaders


_PLACE = "TOPIC-PARTITION"
_MOVE = f"{_PLACE}=BROKER[,BROKER]"
_MOVING = ("topic", "partition", "replicas", "adding", "removing")


def move_of(text: str) -> tuple[TopicPartition, list[int]]:
    """Parse a partition and broker ids from `topic-partition=1,2,3`.

    Raises click.BadParameter for other texts.
    """
    place, _, brokers = text.rpartition("=")
    ids = brokers.split(",")
    if not all(map(is_number, ids)):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION=BROKER,BROKER...")
    return partition_of(place), [int(each) for each in ids]


@command(commands, "reassign", prints=False)
@click.argument("moves", nargs=-1, required=True, metavar=f"{_MOVE}...")
@click.option(
    "--same-factor",
    is_flag=True,
    help="Reject a move that changes the number of replicas (Kafka 4.1).",
)
async def reassign(session: Session, moves: tuple[str, ...], same_factor: bool) -> None:
    """Start to move partitions to these brokers. The first broker is the preferred leader.

    The brokers copy the partitions after the command: see `aiokafka topics reassignments`.

    \b
    Example:
      aiokafka topics reassign orders-0=1,2 orders-1=2,3
    """
    wanted = distinct(move_of(text) for text in moves)
    async with session.admin() as admin:
        call = admin.topics.reassign(wanted, allow_replication_factor_change=not same_factor)
        moved = await session.parts(call, wanted)
    session.output.done("\n".join(f"{name_of(tp)}: moves" for tp in moved))


@command(commands, "reassignments")
@click.argument("places", nargs=-1, metavar=f"[{_PLACE}]...")
async def reassignments(session: Session, places: tuple[str, ...]) -> None:
    """Show the unfinished reassignments of these partitions, or of all partitions.

    \b
    Example:
      aiokafka topics reassignments
    """
    wanted = [partition_of(text) for text in places] or None
    async with session.admin() as admin:
        found = await admin.topics.reassignments(wanted)
    session.output.rows(by_partition(found), _MOVING)


@command(commands, "cancel-reassignments", prints=False)
@click.argument("places", nargs=-1, required=True, metavar=f"{_PLACE}...")
@YES
async def cancel(session: Session, places: tuple[str, ...], yes: bool) -> None:
    """Cancel the reassignments of these partitions: they keep their previous replicas.

    \b
    Example:
      aiokafka topics cancel-reassignments orders-0 --yes
    """
    wanted = _each_once(places)
    agree(f"Stop moving {', '.join(map(name_of, wanted))}?", yes)
    async with session.admin() as admin:
        stayed = await session.parts(admin.topics.cancel_reassignments(wanted), wanted)
    session.output.done("\n".join(f"{name_of(tp)}: stays" for tp in stayed))


@command(commands, "elect-leaders", prints=False)
@click.argument("places", nargs=-1, metavar=f"[{_PLACE}]...")
@click.option(
    "--unclean",
    is_flag=True,
    help="For partitions without a leader: elect a replica that may lack records.",
)
@YES
async def elect(session: Session, places: tuple[str, ...], unclean: bool, yes: bool) -> None:
    """Elect the preferred (first) replicas as leaders, of these partitions or of all.

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
        found = await session.parts(call, wanted)
    said = {True: "has a new leader", False: "has the right leader already"}
    session.output.done("\n".join(f"{name_of(tp)}: {said[found[tp]]}" for tp in sorted(found)))


def _each_once(places: Iterable[str]) -> list[TopicPartition]:
    return list(dict.fromkeys(partition_of(text) for text in places))


# -- `aiokafka records`


records = Verbs(help="Delete old records.")


def before(text: str) -> tuple[TopicPartition, int]:
    """Parse a partition and an offset from `topic-partition:offset`. The offset `end` becomes -1.

    Raises click.BadParameter for other texts.
    """
    name, _, offset = text.rpartition(":")
    topic, _, number = name.rpartition("-")
    if not topic or not (is_number(number) and (offset == "end" or is_number(offset))):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION:OFFSET or TOPIC-PARTITION:end")
    return TopicPartition(topic, int(number)), -1 if offset == "end" else int(offset)


@command(records, "delete")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC-PARTITION:OFFSET...")
@YES
async def delete_records(session: Session, places: tuple[str, ...], yes: bool) -> None:
    """Delete the records of each partition before an offset; `end` deletes all records.

    \b
    Example:
      aiokafka records delete orders-0:1000 orders-1:end --yes
    """
    wanted = distinct(before(text) for text in places)
    agree(f"Delete records of {len(wanted)} partitions?", yes)
    async with session.admin() as admin:
        found = await session.parts(admin.records.delete(wanted), wanted)
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "first_offset": offset}
        for tp, offset in sorted(found.items())
    ]
    session.output.rows(rows, ("topic", "partition", "first_offset"))


# -- Topics declared in a file (`aiokafka topics apply`)


_FIELDS = {"partitions", "replication_factor", "config", "state"}


class Declared(NamedTuple):
    """The declared state of a topic in a file. A number that is None is not changed; for a new
    topic it is the broker's default."""

    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = {}
    is_absent: bool = False


class Step(NamedTuple):
    """One change. `detail` depends on `action`: for "create" it is the Declared topic, for "grow"
    the new number of partitions, for "set" the settings by name, for "delete" None."""

    action: str
    topic: str
    detail: Any


def read_declared(text: str, path: str) -> dict[str, Declared]:
    """Parse the topics of a YAML (or JSON) file. Raises KafkaConfigurationError if it is malformed.

    `path` is for error texts.
    """
    content = _content(text, path)
    topics = content.get("topics") if isinstance(content, dict) else None
    if not isinstance(topics, dict) or content.keys() != {"topics"}:
        raise KafkaConfigurationError(f"{path}: must have the key `topics`, a table by name, alone")
    return {str(name): _declared(name, given or {}, path) for name, given in topics.items()}


def _content(text: str, path: str) -> Any:
    """Parse YAML. Raises KafkaConfigurationError for repeated keys, and for keys that are not text.

    YAML reads the unquoted keys `on`, `~` and `0123` as true, null and 83. As text, these would be
    the names of other topics.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self.checked: set[Any] = set()

        def flatten_mapping(self, node: Any) -> None:
            # Check the keys of a mapping only once, and before YAML merges the keys of other
            # mappings into it (`<<`).
            if node not in self.checked:
                self.checked.add(node)
                self.check(node)
            super().flatten_mapping(node)

        def check(self, node: Any) -> None:
            names: set[str] = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                name = self.construct_object(key, deep=True)
                if str(name) != key.value:
                    reason = f"{key.value!r} is not text in YAML: put it in quotes"
                elif key.value in names:
                    reason = f"{name!r} is given twice"
                else:
                    names.add(key.value)
                    continue
                raise yaml.constructor.ConstructorError(None, None, reason, key.start_mark)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise KafkaConfigurationError(f"{path}: {error}") from None


def _declared_in(file: str) -> dict[str, Declared]:
    return (
        read_declared(read_stdin(), "stdin")
        if file == "-"
        else read_declared(read_file(Path(file)), file)
    )


def _declared(name: object, given: Any, path: str) -> Declared:
    where = f"{path}: topic {name}"
    if not isinstance(given, dict) or given.keys() - _FIELDS:
        raise KafkaConfigurationError(f"{where}: may have {', '.join(sorted(_FIELDS))}")
    numbers = [given.get("partitions"), given.get("replication_factor")]
    if any(each is not None and (type(each) is not int or each < 1) for each in numbers):
        raise KafkaConfigurationError(f"{where}: numbers must be at least 1")
    config = given.get("config") or {}
    if not isinstance(config, dict) or given.get("state", "present") not in ("present", "absent"):
        raise KafkaConfigurationError(f"{where}: config is a table, state is present or absent")
    texts = {str(key): _setting_text(value, f"{where}: {key}") for key, value in config.items()}
    return Declared(numbers[0], numbers[1], texts, given.get("state") == "absent")


def _setting_text(value: object, where: str) -> str:
    """Return the value of a setting as Kafka's text; a list becomes text with commas.

    Raises KafkaConfigurationError for other types.
    """
    if isinstance(value, list) and not any(isinstance(each, list) for each in value):
        return ",".join(_setting_text(each, where) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise KafkaConfigurationError(f"{where}: must be text, a number, true, false, or a list")


def plan_changes(
    declared: Mapping[str, Declared],
    there: Mapping[str, tuple[int, int]],
    settings: Mapping[str, Mapping[str, str | None]],
) -> list[Step]:
    """Return the changes that lead to the declared state. Topics and settings that are not declared
    are not changed.

    Args:
        declared: the declared topics.
        there: the existing topics: (number of partitions, number of replicas) by name.
        settings: the settings of existing topics: the value of each setting, by topic and name.

    Raises KafkaConfigurationError if `declared` has fewer partitions, or another number of
    replicas, for an existing topic.
    """
    steps: list[Step] = []
    for topic, wanted in declared.items():
        if topic not in there:
            if not wanted.is_absent:
                steps.append(Step("create", topic, wanted))
            continue
        if wanted.is_absent:
            steps.append(Step("delete", topic, None))
            continue
        partitions, replicas = there[topic]
        if wanted.partitions is not None and wanted.partitions < partitions:
            raise KafkaConfigurationError(
                f"topic {topic}: has {partitions} partitions, which cannot become "
                f"{wanted.partitions}"
            )
        if wanted.replication_factor not in (None, replicas):
            raise KafkaConfigurationError(
                f"topic {topic}: has {replicas} replicas, not {wanted.replication_factor}; "
                "that needs a reassignment"
            )
        if wanted.partitions is not None and wanted.partitions > partitions:
            steps.append(Step("grow", topic, wanted.partitions))
        found = settings.get(topic, {})
        changes = {name: text for name, text in wanted.config.items() if found.get(name) != text}
        if changes:
            steps.append(Step("set", topic, changes))
    return steps


def _step_row(step: Step) -> dict[str, Any]:
    detail = step.detail
    if isinstance(detail, Declared):
        detail = {
            "partitions": detail.partitions,
            "replication_factor": detail.replication_factor,
            **detail.config,
        }
    return {"action": step.action, "topic": step.topic, "detail": detail}


@command(commands, "apply")
@click.argument("file", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Print the steps; change nothing.")
@YES
async def apply(session: Session, file: str, dry_run: bool, yes: bool) -> None:
    """Create, grow, configure and delete topics as FILE (YAML) declares; - is stdin.

    The command prints the changes first. Topics and settings that FILE does not name are not
    changed.

    \b
    Example:
      aiokafka topics apply topics.yaml --dry-run
    """
    declared = _declared_in(file)
    async with session.admin() as admin:
        steps = await _find_steps(admin, declared)
        session.output.rows(map(_step_row, steps), ("action", "topic", "detail"))
        if dry_run or not steps:
            return
        agree(f"Make these {len(steps)} changes?", yes)
        await _make_changes(admin, steps)
    session.output.done(f"{len(steps)} changes made")


async def _find_steps(admin: AIOKafkaAdminClient, declared: Mapping[str, Declared]) -> list[Step]:
    from aiokafka.admin import ConfigKey

    listed = await admin.topics.list(include_internal=True)
    there = {
        topic.name: (topic.partitions, topic.replication_factor)
        for topic in listed
        if topic.name in declared
    }
    # Describe only topics with declared settings, because the user may not be allowed to describe
    # the settings of other topics.
    keys = [ConfigKey.topic(name) for name in there if declared[name].config]
    found = await admin.configs.describe(keys)
    settings = {
        key.name: {name: each.value for name, each in values.items()}
        for key, values in found.items()
    }
    return plan_changes(declared, there, settings)


async def _make_changes(admin: AIOKafkaAdminClient, steps: list[Step]) -> None:
    """Make the changes, in one admin call for each kind of change. Deletions are last."""
    from aiokafka.admin import ConfigKey, NewTopic

    def of(action: str) -> list[Step]:
        return [step for step in steps if step.action == action]

    if new := of("create"):
        await admin.topics.create(
            [
                NewTopic(
                    step.topic,
                    step.detail.partitions,
                    step.detail.replication_factor,
                    topic_configs=step.detail.config,
                )
                for step in new
            ]
        )
    if more := of("grow"):
        await admin.topics.create_partitions({step.topic: step.detail for step in more})
    if changed := of("set"):
        await admin.configs.alter({ConfigKey.topic(step.topic): step.detail for step in changed})
    if gone := of("delete"):
        await admin.topics.delete([step.topic for step in gone])


# -- Copy


@command(commands, "copy", prints=False)
@click.argument("source")
@click.argument("target")
@click.option("--to-profile", metavar="NAME", help="Profile of the cluster of TARGET.")
@click.option("--to-servers", metavar="HOST:PORT,...", help="Brokers of the cluster of TARGET.")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="PLACE",
    help="Where to start.",
)
@click.option(
    "--keep-partitions/--by-key",
    default=True,
    help="Copy to the same partition numbers (default), or by key.",
)
async def copy(
    session: Session,
    source: str,
    target: str,
    to_profile: str | None,
    to_servers: str | None,
    start: str,
    keep_partitions: bool,
) -> None:
    """Copy the committed records that are in SOURCE now to TARGET, which must exist.

    Keys, values, headers, timestamps and the order within a partition are kept; offsets are not. If
    the command is interrupted or fails, a part has been copied; copying again appends all records
    again.

    \b
    Example:
      aiokafka topics copy orders orders-copy
      aiokafka topics copy orders orders --to-profile staging
    """
    if to_servers is not None and to_profile is not None:
        raise click.UsageError("give one of --to-profile and --to-servers")
    there = session
    if to_profile is not None or to_servers is not None:
        there = session.other({"profile": to_profile, "bootstrap_servers": to_servers})
    elif source == target:
        raise click.UsageError("TARGET is SOURCE: the copy would never end")
    try:
        at = place(start)
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from None
    if at.kind == "stored":
        raise click.UsageError("--from: cannot be stored, because the copy has no group")
    async with there.admin_for_client() as admin:
        (described,) = (await admin.topics.describe([target])).values()
    consumer = session.consumer(
        isolation_level="read_committed", enable_auto_commit=False, auto_offset_reset="earliest"
    )
    async with consumer, there.producer(linger_ms=5, compression_type=None) as producer:
        numbers = consumer.partitions_for_topic(source)
        if not numbers:
            raise UnknownTopicOrPartitionError(f"no topic {source!r}")
        if keep_partitions and max(numbers) >= len(described.partitions):
            raise click.UsageError(
                f"{target} has {len(described.partitions)} partitions, {source} has "
                f"{max(numbers) + 1}: grow {target}, or give --by-key"
            )
        consumer.assign([TopicPartition(source, number) for number in sorted(numbers)])
        count = await _copy_all(consumer, producer, target, at, keep_partitions)
    session.output.done(f"{target}: {count} records copied")


async def _copy_all(
    consumer: AIOKafkaConsumer[Any, Any],
    producer: AIOKafkaProducer[Any, Any],
    target: str,
    start: Place,
    keep_partitions: bool,
) -> int:
    """Copy the records of each partition from the position `start` to the current end. Return the
    number of copied records."""
    partitions = consumer.assignment()
    ends = await consumer.end_offsets(partitions)
    for tp, offset in (await offsets_at(consumer, partitions, start)).items():
        consumer.seek(tp, min(offset, ends[tp]))
    count = 0
    while waiting := [tp for tp in partitions if await consumer.position(tp) < ends[tp]]:
        batches = await consumer.getmany(*waiting, timeout_ms=1000, max_records=5000)
        futures = [
            await producer.send(
                target,
                record.value,
                record.key,
                record.partition if keep_partitions else None,
                when if (when := time_of(record)) >= 0 else None,
                list(record.headers),
            )
            for tp, records in batches.items()
            for record in records
            if record.offset < ends[tp]
        ]
        for future in futures:
            await future
        count += len(futures)
    return count
