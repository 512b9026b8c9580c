"""`aiokafka brokers` and `aiokafka info`."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from aiokafka import __version__
from aiokafka.cli.arguments import distinct, is_number, name_of, partition_of
from aiokafka.cli.failures import code_of
from aiokafka.cli.running import YES, agree
from aiokafka.cli.session import Session, Verbs, command
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.admin import LogDir

commands = Verbs(
    help="Show and change brokers, features, the controllers' quorum, log directories."
)


@command(commands, "list")
async def list_(session: Session) -> None:
    """List the brokers.

    \b
    Example:
      aiokafka brokers list
    """
    async with session.admin() as admin:
        found = await admin.brokers.describe_cluster()
    rows = [
        {**broker.as_dict(), "controller": broker.id == found.controller_id}
        for broker in sorted(found.brokers, key=lambda broker: broker.id)
    ]
    session.output.rows(rows, ("id", "host", "port", "rack", "controller"))


@command(commands, "features")
async def features(session: Session) -> None:
    """Show the features of the cluster: the current level, and the levels that a broker supports.

    \b
    Example:
      aiokafka brokers features
    """
    async with session.admin() as admin:
        found = await admin.brokers.features()
    rows: list[dict[str, Any]] = []
    for name in sorted({*found.supported, *found.finalized}):
        supported, level = found.supported.get(name), found.finalized.get(name)
        rows.append(
            {
                "feature": name,
                "level": level.max_level if level else None,
                "lowest": supported.min_level if supported else None,
                "highest": supported.max_level if supported else None,
            }
        )
    session.output.rows(rows, ("feature", "level", "lowest", "highest"))


@command(commands, "quorum")
async def quorum(session: Session) -> None:
    """Show the voters and observers of the controllers' quorum, and the lag of each.

    \b
    Example:
      aiokafka brokers quorum
    """
    async with session.admin() as admin:
        found = await admin.brokers.quorum()
    rows = [
        {
            **replica.as_dict(),
            "role": "leader" if replica.replica_id == found.leader_id else role,
        }
        for role, replicas in (("voter", found.voters), ("observer", found.observers))
        for replica in replicas
    ]
    columns = ("replica_id", "role", "log_end_offset", "lag", "directory_id")
    session.output.rows(rows, columns)


def listener_of(text: str) -> tuple[str, str, int]:
    """Parse a listener from `NAME://HOST:PORT`. Raises click.BadParameter for other texts."""
    name, found, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (name and found and host and colon and is_number(port) and 0 < int(port) < 65536):
        raise click.BadParameter(f"{text!r} must be NAME://HOST:PORT")
    return name, host, int(port)


@command(commands, "add-voter", prints=False)
@click.argument("controller_id", type=int, metavar="CONTROLLER")
@click.argument("directory_id", type=click.UUID)
@click.argument("listeners", nargs=-1, required=True, metavar="NAME://HOST:PORT...")
async def add_voter(
    session: Session, controller_id: int, directory_id: uuid.UUID, listeners: tuple[str, ...]
) -> None:
    """Make a running CONTROLLER a voter of the quorum. The other voters will connect to these
    listeners.

    `aiokafka brokers quorum` shows the directory id of each observer.

    \b
    Example:
      aiokafka brokers add-voter 3 b8f1a1e0-0c1f-4a8e-9f0e-3c6d1c0f9a55 CONTROLLER://kafka3:9093
    """
    wanted = [listener_of(text) for text in listeners]
    async with session.admin() as admin:
        await admin.brokers.add_voter(controller_id, directory_id, wanted)
    session.output.done(f"controller {controller_id}: added to the voters")


@command(commands, "remove-voter", prints=False)
@click.argument("controller_id", type=int, metavar="CONTROLLER")
@click.argument("directory_id", type=click.UUID)
@YES
async def remove_voter(
    session: Session, controller_id: int, directory_id: uuid.UUID, yes: bool
) -> None:
    """Remove a CONTROLLER from the voters of the quorum.

    \b
    Example:
      aiokafka brokers remove-voter 3 b8f1a1e0-0c1f-4a8e-9f0e-3c6d1c0f9a55 --yes
    """
    agree(f"Remove controller {controller_id} from the voters of the quorum?", yes)
    async with session.admin() as admin:
        await admin.brokers.remove_voter(controller_id, directory_id)
    session.output.done(f"controller {controller_id}: removed from the voters")


@command(commands, "set-features", prints=False)
@click.argument("levels", nargs=-1, required=True, metavar="NAME=LEVEL...")
@click.option("--downgrade", is_flag=True, help="Allow lower levels if no metadata is lost.")
@click.option("--unsafe", is_flag=True, help="Allow lower levels, even if metadata is lost.")
@click.option("--dry-run", is_flag=True, help="Check the change on the controller; change nothing.")
async def set_features(
    session: Session, levels: tuple[str, ...], downgrade: bool, unsafe: bool, dry_run: bool
) -> None:
    """Change the levels of features; level 0 disables a feature. All levels are changed, or none of
    them (before Kafka 4.0, some may be changed).

    \b
    Example:
      aiokafka brokers set-features metadata.version=27 --dry-run
    """
    from aiokafka.admin import FeatureUpgradeType

    wanted = distinct(_level(text) for text in levels)
    kind = FeatureUpgradeType.UPGRADE
    if unsafe:
        kind = FeatureUpgradeType.UNSAFE_DOWNGRADE
    elif downgrade:
        kind = FeatureUpgradeType.SAFE_DOWNGRADE
    async with session.admin() as admin:
        await admin.brokers.update_features(wanted, upgrade_type=kind, validate_only=dry_run)
    done = "could be set" if dry_run else "set"
    session.output.done("\n".join(f"{name}={level}: {done}" for name, level in wanted.items()))


def _level(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if not name or not is_number(level):
        raise click.BadParameter(f"{text!r} must be NAME=LEVEL")
    return name, int(level)


@command(commands, "unregister", prints=False)
@click.argument("broker_id", type=int, metavar="BROKER")
@YES
async def unregister(session: Session, broker_id: int, yes: bool) -> None:
    """Remove the registration of a broker that will not run again (KRaft only).

    \b
    Example:
      aiokafka brokers unregister 7 --yes
    """
    agree(f"Unregister broker {broker_id}?", yes)
    async with session.admin() as admin:
        await admin.brokers.unregister(broker_id)
    session.output.done(f"broker {broker_id}: unregistered")


@command(commands, "unregister-controller", prints=False)
@click.argument("controller_id", type=int, metavar="CONTROLLER")
@YES
async def unregister_controller(session: Session, controller_id: int, yes: bool) -> None:
    """Remove the registration of a controller that will not run again (Kafka 4.4).

    \b
    Example:
      aiokafka brokers unregister-controller 3 --yes
    """
    agree(f"Unregister controller {controller_id}?", yes)
    async with session.admin() as admin:
        await admin.brokers.unregister_controller(controller_id)
    session.output.done(f"controller {controller_id}: unregistered")


# -- Log directories


_DIRECTORY = ("broker", "path", "replicas", "bytes", "total_bytes", "usable_bytes", "error")
_REPLICA = ("broker", "topic", "partition", "path", "size", "offset_lag", "is_future")


@command(commands, "log-dirs")
@click.argument("broker_ids", nargs=-1, type=int, metavar="[BROKER]...")
@click.option("--replicas", is_flag=True, help="Show each replica, and the progress of moves.")
async def log_dirs(session: Session, broker_ids: tuple[int, ...], replicas: bool) -> None:
    """Show the log directories of brokers, with their sizes and errors.

    \b
    Example:
      aiokafka brokers log-dirs 0
    """
    async with session.admin() as admin:
        found = await session.parts(admin.brokers.log_dirs(broker_ids or None), broker_ids or None)
    if replicas:
        session.output.rows(_replica_rows(found), _REPLICA)
    else:
        session.output.rows(_directory_rows(found), _DIRECTORY)


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
    """Parse a partition and a directory from `topic-partition=path`.

    Raises click.BadParameter for other texts.
    """
    name, _, path = text.partition("=")
    if not path:
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION=PATH")
    return partition_of(name), path


@command(commands, "move-replicas", prints=False)
@click.argument("broker_id", type=int, metavar="BROKER")
@click.argument("moves", nargs=-1, required=True, metavar="TOPIC-PARTITION=PATH...")
async def move_replicas(session: Session, broker_id: int, moves: tuple[str, ...]) -> None:
    """Start to move replicas to other log directories of a BROKER.

    The broker copies the replicas after the command: see `aiokafka brokers log-dirs --replicas`.

    \b
    Example:
      aiokafka brokers move-replicas 1 orders-0=/disk2/kafka
    """
    wanted = distinct(move_of(text) for text in moves)
    async with session.admin() as admin:
        moved = await session.parts(admin.brokers.move_replicas(broker_id, wanted), wanted)
    session.output.done("\n".join(f"{name_of(tp)}: moves to {wanted[tp]}" for tp in moved))


# -- `aiokafka info`


# Exit code -> prefix of the error that `info` shows if it cannot connect.
_OUTCOMES = {3: "no response: ", 4: "refused: "}


def installed() -> dict[str, str]:
    """Return the versions, the operating system and the codecs of this installation, by name."""
    from aiokafka.record import batch
    from aiokafka.record.compression import CODECS, has_codec

    return {
        "aiokafka": __version__,
        "form": "pure Python" if str(batch.__file__).endswith(".py") else "compiled",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(terse=True),
        "codecs": ",".join(name for name in sorted(CODECS) if has_codec(name)),
        "missing codecs": ",".join(name for name in sorted(CODECS) if not has_codec(name))
        or "none",
    }


@command(None, "info")
async def info(session: Session) -> int:
    """Show versions and codecs, and the brokers if they respond.

    The exit code is 3 if no broker responds, and 4 if brokers reject the credentials. Versions and
    codecs are shown in any case.

    \b
    Example:
      aiokafka info -b localhost:9092
    """
    facts: dict[str, Any] = installed()
    for kind in ("servers", "controllers"):
        if f"bootstrap_{kind}" in session.client_options:
            facts[f"bootstrap {kind}"] = session.client_options[f"bootstrap_{kind}"]
    try:
        async with session.admin() as admin:
            cluster = await admin.describe_cluster()
    except KafkaError as error:
        code = code_of(error)
        facts["cluster"] = f"{_OUTCOMES.get(code, '')}{error}"
        session.output.rows(_fact_rows(facts), ("name", "value"))
        return code
    facts["cluster"] = cluster["cluster_id"]
    facts["controller"] = cluster["controller_id"]
    role = "controller" if "bootstrap controllers" in facts else "broker"
    for broker in sorted(cluster["brokers"], key=lambda each: int(each["node_id"])):
        rack = f" (rack {broker['rack']})" if broker["rack"] else ""
        facts[f"{role} {broker['node_id']}"] = f"{broker['host']}:{broker['port']}{rack}"
    session.output.rows(_fact_rows(facts), ("name", "value"))
    return 0


def _fact_rows(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in facts.items()]
