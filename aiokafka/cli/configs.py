"""`aiokafka configs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.arguments import distinct, pairs
from aiokafka.cli.running import YES, agree
from aiokafka.cli.session import Session, Verbs, command

if TYPE_CHECKING:
    from aiokafka.admin import ConfigChange, ConfigKey

commands = Verbs(help="Show and change the settings of topics, brokers, groups and others.")


def resource(text: str) -> ConfigKey:
    """Parse a resource such as `topic:orders`, `broker:1` or `group:billing`; `broker:` stands for
    the settings that all brokers share.

    Raises click.BadParameter for an unknown type.
    """
    from aiokafka.admin import ConfigKey, ConfigResourceType

    kind, colon, name = text.partition(":")
    try:
        return ConfigKey(ConfigResourceType[kind.upper().replace("-", "_")], name if colon else "")
    except KeyError:
        known = ", ".join(each.name.lower() for each in ConfigResourceType)
        raise click.BadParameter(f"{text!r} must be TYPE:NAME; types are {known}") from None


def change_of(text: str) -> tuple[str, ConfigChange]:
    """Parse a change: `name=value`, `name+=value` (add the value to a list), `name-=value` (remove
    the value from a list), or `name` alone (reset to the default).

    Raises click.BadParameter for other texts.
    """
    from aiokafka.admin import ConfigChange

    name, equals, value = text.partition("=")
    # Names of settings do not end with + or -, so `name+` without a = is a mistake.
    if not name.rstrip("+-") or (not equals and name[-1] in "+-"):
        raise click.BadParameter(f"{text!r} must be NAME=VALUE, NAME+=VALUE, NAME-=VALUE or NAME")
    if not equals:
        return name, ConfigChange.delete()
    if name.endswith("+"):
        return name[:-1], ConfigChange.append(value)
    if name.endswith("-"):
        return name[:-1], ConfigChange.subtract(value)
    return name, ConfigChange.set(value)


@command(commands, "describe")
@click.argument("resources", nargs=-1, required=True, metavar="TYPE:NAME...")
@click.option(
    "-a", "--all", "every", is_flag=True, help="Also show settings that have their defaults."
)
@click.option("--documentation", is_flag=True, help="Show Kafka's description of each setting.")
async def describe(
    session: Session, resources: tuple[str, ...], every: bool, documentation: bool
) -> None:
    """Show the settings of resources, such as topic:orders, broker:1 or group:billing.

    \b
    Example:
      aiokafka configs describe topic:orders --all
    """
    wanted = [resource(text) for text in resources]
    async with session.admin() as admin:
        found = await session.parts(
            admin.configs.describe(wanted, include_documentation=documentation), wanted
        )
    rows: list[dict[str, Any]] = [
        {"resource": str(key), **setting.as_dict()}
        for key, settings in found.items()
        for _, setting in sorted(settings.items())
        if every or not setting.is_default
    ]
    columns = ["resource", "name", "value", "source"]
    session.output.rows(rows, [*columns, "documentation"] if documentation else columns)


@command(commands, "list")
@click.argument("types", nargs=-1, metavar="[TYPE]...")
async def list_(session: Session, types: tuple[str, ...]) -> None:
    """List the resources that can have settings, of these types or of all types.

    \b
    Example:
      aiokafka configs list client-metrics
    """
    kinds = [resource(text).type for text in types] or None
    async with session.admin() as admin:
        found = await admin.configs.list_resources(kinds)
    rows = [{"type": each.type.name.lower(), "name": each.name} for each in found]
    session.output.rows(rows, ("type", "name"))


@command(commands, "alter", prints=False)
@click.argument("target", metavar="TYPE:NAME")
@click.argument("changes", nargs=-1, required=True, metavar="CHANGE...")
@click.option("--dry-run", is_flag=True, help="Check the change on the broker; change nothing.")
async def alter(session: Session, target: str, changes: tuple[str, ...], dry_run: bool) -> None:
    """Change settings of a resource. Its other settings are not changed.

    A CHANGE is name=value, name+=value to add a value to a list, name-=value to remove a value from
    a list, or a name alone to reset the setting to its default.

    \b
    Example:
      aiokafka configs alter topic:orders retention.ms=3600000 cleanup.policy+=compact
    """
    wanted = distinct(change_of(text) for text in changes)
    key = resource(target)
    async with session.admin() as admin:
        await admin.configs.alter({key: wanted}, validate_only=dry_run)
    session.output.done(f"{key}: {'could be changed' if dry_run else 'changed'}")


@command(commands, "replace", prints=False)
@click.argument("target", metavar="TYPE:NAME")
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--dry-run", is_flag=True, help="Check the change on the broker; change nothing.")
@YES
async def replace(
    session: Session, target: str, settings: tuple[str, ...], dry_run: bool, yes: bool
) -> None:
    """Set exactly these settings of a resource; reset its other settings to their defaults.

    \b
    Example:
      aiokafka configs replace topic:orders retention.ms=3600000 --yes
    """
    wanted = pairs(settings)
    key = resource(target)
    if not dry_run:
        agree(f"Reset all other settings of {key} to their defaults?", yes)
    async with session.admin() as admin:
        await admin.configs.set_exactly(key, wanted, validate_only=dry_run)
    session.output.done(f"{key}: {'could be replaced' if dry_run else 'replaced'}")
