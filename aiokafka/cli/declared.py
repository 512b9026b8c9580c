"""`aiokafka topics apply`: make topics what a file says, after a look at the plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aiokafka.cli.asking import agree
from aiokafka.cli.session import Session, command
from aiokafka.cli.settings import read_file, read_stdin
from aiokafka.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

__all__ = ["Declared", "Step", "commands", "plan", "read"]

_FIELDS = {"partitions", "replication_factor", "config", "state"}


class Declared(NamedTuple):
    """What a file says of a topic. None leaves it as it is, or to the broker."""

    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = {}
    is_absent: bool = False


class Step(NamedTuple):
    """One change: `action` is create, grow, set or delete."""

    action: str
    topic: str
    detail: Any


def read(text: str, path: str) -> dict[str, Declared]:
    """Return the topics of a YAML (or JSON) file.

    Raises KafkaConfigurationError for what is not understood.
    """
    content = _content(text, path)
    topics = content.get("topics") if isinstance(content, dict) else None
    if not isinstance(topics, dict) or content.keys() != {"topics"}:
        raise KafkaConfigurationError(f"{path}: must have the key `topics`, a table by name, alone")
    return {str(name): _declared(name, given or {}, path) for name, given in topics.items()}


def _content(text: str, path: str) -> Any:
    """Return what a YAML file says. Names that YAML takes for something else, such as `on`, `~` and
    0123, would be those of other topics; of a name that is there twice one would be lost.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self.checked: set[Any] = set()

        def flatten_mapping(self, node: Any) -> None:
            # Once, before other mappings are merged into it.
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
                    reason = f"{key.value!r} is no text in YAML: put it in quotes"
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


def _load(file: str) -> dict[str, Declared]:
    return read(read_stdin(), "stdin") if file == "-" else read(read_file(Path(file)), file)


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
    texts = {str(key): _text(value, f"{where}: {key}") for key, value in config.items()}
    return Declared(numbers[0], numbers[1], texts, given.get("state") == "absent")


def _text(value: object, where: str) -> str:
    """Return a setting as Kafka writes it."""
    if isinstance(value, list) and not any(isinstance(each, list) for each in value):
        return ",".join(_text(each, where) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise KafkaConfigurationError(f"{where}: must be text, a number, true, false, or a list")


def plan(
    declared: Mapping[str, Declared],
    there: Mapping[str, tuple[int, int]],
    settings: Mapping[str, Mapping[str, str | None]],
) -> list[Step]:
    """Return the changes that make topics what is declared. Others, and settings that are not
    named, stay.

    Args:
        declared: what the topics are to be.
        there: partitions and replicas of the topics that there are.
        settings: values by name, of these topics.

    Raises KafkaConfigurationError for fewer partitions, and for other numbers of replicas.
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
                "that takes a reassignment"
            )
        if wanted.partitions is not None and wanted.partitions > partitions:
            steps.append(Step("grow", topic, wanted.partitions))
        found = settings.get(topic, {})
        changes = {name: text for name, text in wanted.config.items() if found.get(name) != text}
        if changes:
            steps.append(Step("set", topic, changes))
    return steps


def _row(step: Step) -> dict[str, Any]:
    detail = step.detail
    if isinstance(detail, Declared):
        detail = {
            "partitions": detail.partitions,
            "replication_factor": detail.replication_factor,
            **detail.config,
        }
    return {"action": step.action, "topic": step.topic, "detail": detail}


@command(None, "apply")
@click.argument("file", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Print the plan; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def commands(session: Session, file: str, dry_run: bool, yes: bool) -> None:
    """Create, grow, configure and delete topics as FILE (YAML) declares them; - is stdin.

    The plan is printed first. What the file does not name stays as it is.

    \b
    Example:
      aiokafka topics apply topics.yaml --dry-run
    """
    declared = _load(file)
    async with session.admin() as admin:
        steps = await _find_steps(admin, declared)
        session.output.rows(map(_row, steps), ("action", "topic", "detail"))
        if dry_run or not steps:
            return
        agree(f"Make these {len(steps)} changes?", yes)
        await _make(admin, steps)
    session.output.done(f"{len(steps)} changes made")


async def _find_steps(admin: AIOKafkaAdminClient, declared: Mapping[str, Declared]) -> list[Step]:
    from aiokafka.admin import ConfigKey

    listed = await admin.topics.list(include_internal=True)
    there = {
        topic.name: (topic.partitions, topic.replication_factor)
        for topic in listed
        if topic.name in declared
    }
    # Of the others no settings are needed, nor the right to see them.
    keys = [ConfigKey.topic(name) for name in there if declared[name].config]
    found = await admin.configs.describe(keys)
    settings = {
        key.name: {name: each.value for name, each in values.items()}
        for key, values in found.items()
    }
    return plan(declared, there, settings)


async def _make(admin: AIOKafkaAdminClient, steps: list[Step]) -> None:
    """Make the changes: each kind in one call, deletions last."""
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
