"""`aiokafka brokers`: brokers, features of the cluster, the controllers' quorum, disks."""

from __future__ import annotations

import uuid
from typing import Any

import click

from aiokafka.cli import disks
from aiokafka.cli.asking import agree
from aiokafka.cli.places import distinct, is_number
from aiokafka.cli.session import Session, command, noun

__all__ = ["commands", "listener_of"]

commands = noun("Show and change brokers, features, the controllers' quorum, log directories.")
for each in disks.commands.commands.values():
    commands.add_command(each)


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
    """Show the features of the cluster: the level in force, and the levels that brokers support.

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
    """Show the voters and observers of the controllers' quorum, and who is behind.

    \b
    Example:
      aiokafka brokers quorum
    """
    async with session.admin() as admin:
        found = await admin.brokers.quorum()
    rows = [
        {**replica.as_dict(), "role": _role(replica.replica_id, role, found.leader_id)}
        for role, replicas in (("voter", found.voters), ("observer", found.observers))
        for replica in replicas
    ]
    columns = ("replica_id", "role", "log_end_offset", "lag", "directory_id")
    session.output.rows(rows, columns)


def _role(replica_id: int, role: str, leader_id: int) -> str:
    return "leader" if replica_id == leader_id else role


def listener_of(text: str) -> tuple[str, str, int]:
    """Return name, host and port of `NAME://HOST:PORT`; raise click.BadParameter otherwise."""
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
    """Let a CONTROLLER that runs vote in the quorum; others reach it at these listeners.

    The directory id is what `aiokafka brokers quorum` shows of an observer.

    \b
    Example:
      aiokafka brokers add-voter 3 b8f1a1e0-0c1f-4a8e-9f0e-3c6d1c0f9a55 CONTROLLER://kafka3:9093
    """
    wanted = [listener_of(text) for text in listeners]
    async with session.admin() as admin:
        await admin.brokers.add_voter(controller_id, directory_id, wanted)
    session.output.done(f"controller {controller_id}: votes")


@command(commands, "remove-voter", prints=False)
@click.argument("controller_id", type=int, metavar="CONTROLLER")
@click.argument("directory_id", type=click.UUID)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def remove_voter(
    session: Session, controller_id: int, directory_id: uuid.UUID, yes: bool
) -> None:
    """Take a CONTROLLER out of the quorum.

    \b
    Example:
      aiokafka brokers remove-voter 3 b8f1a1e0-0c1f-4a8e-9f0e-3c6d1c0f9a55 --yes
    """
    agree(f"Take controller {controller_id} out of the quorum?", yes)
    async with session.admin() as admin:
        await admin.brokers.remove_voter(controller_id, directory_id)
    session.output.done(f"controller {controller_id}: votes no more")


@command(commands, "set-features", prints=False)
@click.argument("levels", nargs=-1, required=True, metavar="NAME=LEVEL...")
@click.option("--downgrade", is_flag=True, help="Let levels go down, if nothing is lost by it.")
@click.option("--unsafe", is_flag=True, help="Let levels go down, even if something is lost.")
@click.option("--dry-run", is_flag=True, help="Let the controller check it; change nothing.")
async def set_features(
    session: Session, levels: tuple[str, ...], downgrade: bool, unsafe: bool, dry_run: bool
) -> None:
    """Change the levels of features, all or none; level 0 turns one off.

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
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def unregister(session: Session, broker_id: int, yes: bool) -> None:
    """Forget a broker that is gone for good.

    \b
    Example:
      aiokafka brokers unregister 7 --yes
    """
    agree(f"Forget broker {broker_id}?", yes)
    async with session.admin() as admin:
        await admin.brokers.unregister(broker_id)
    session.output.done(f"broker {broker_id}: unregistered")
