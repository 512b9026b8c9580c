"""`aiokafka brokers`: brokers, features of the cluster, the controllers' quorum, disks."""

from __future__ import annotations

from typing import Any

import click

from aiokafka.cli.asking import agree
from aiokafka.cli.session import Session, command, noun

__all__ = ["commands"]

commands = noun("Show brokers, features, the controllers' quorum and log directories.")


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
    session.output.rows(rows, ("replica_id", "role", "log_end_offset", "lag"))


def _role(replica_id: int, role: str, leader_id: int) -> str:
    return "leader" if replica_id == leader_id else role


@command(commands, "log-dirs")
@click.argument("broker_ids", nargs=-1, type=int, metavar="[BROKER]...")
async def log_dirs(session: Session, broker_ids: tuple[int, ...]) -> None:
    """Show the log directories of brokers, and how much is in them.

    \b
    Example:
      aiokafka brokers log-dirs 0
    """
    async with session.admin() as admin:
        found = await admin.brokers.log_dirs(broker_ids or None)
    rows = [
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
    columns = ("broker", "path", "replicas", "bytes", "total_bytes", "usable_bytes", "error")
    session.output.rows(rows, columns)


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

    wanted = dict(_level(text) for text in levels)
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
    if not name or not (level.isascii() and level.isdigit()):
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
