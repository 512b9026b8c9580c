"""`aiokafka acls`, `aiokafka users`, `aiokafka quotas` and `aiokafka tokens`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.arguments import Finite, distinct
from aiokafka.cli.running import YES, agree, can_ask, secret
from aiokafka.cli.session import Session, Verbs, command
from aiokafka.cli.settings import read_file, read_stdin
from aiokafka.errors import DelegationTokenNotFound

if TYPE_CHECKING:
    from aiokafka.admin import (
        AclBinding,
        AclFilter,
        AIOKafkaAdminClient,
        DelegationToken,
        QuotaEntity,
    )

acls = Verbs(help="List, add and delete entries of access control lists.")
users = Verbs(help="List users with SCRAM passwords; set and delete passwords.")
quotas = Verbs(help="Show and change quotas of users, client ids and IP addresses.")

_ACL = ("resource_type", "name", "pattern_type", "principal", "host", "operation", "permission")
_MECHANISM = click.option(
    "--mechanism",
    type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    default="SCRAM-SHA-512",
    show_default=True,
    help="Mechanism that the password is for.",
)


def _acl_row(binding: AclBinding) -> dict[str, Any]:
    found = binding.as_dict()
    return {**found.pop("pattern"), **found}


def _member(kind: Any, text: str) -> Any:
    """Return the member of an enum for its name in any case. Raises click.BadParameter for other
    texts."""
    try:
        return kind[text.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(name.lower() for name in kind.__members__ if name != "UNKNOWN")
        raise click.BadParameter(f"{text!r} must be one of {known}") from None


def _filter(resource: str | None, given: dict[str, Any]) -> AclFilter:
    """Return a filter for a resource `type:name` (None: all resources) and the given options.

    Raises click.BadParameter for an unknown resource type, operation, permission or pattern type.
    """
    from aiokafka.admin import AclFilter, AclOperation, AclPermission, PatternType, ResourceType

    found: dict[str, Any] = {}
    if resource is not None:
        kind, _, name = resource.partition(":")
        found |= {"resource_type": _member(ResourceType, kind), "name": name or None}
    kinds = {"operation": AclOperation, "permission": AclPermission, "pattern_type": PatternType}
    for field, value in given.items():
        if value is not None:
            found[field] = _member(kinds[field], value) if field in kinds else value
    return AclFilter(**found)


@command(acls, "list")
@click.argument("resource", required=False, metavar="[TYPE:NAME]")
@click.option("--principal", metavar="User:NAME", help="Only entries of this principal.")
@click.option("--operation", metavar="NAME", help="Only entries for it: read, write, describe ...")
async def list_acls(session: Session, resource: str | None, **given: str | None) -> None:
    """List ACL entries: all, or those for a resource such as topic:orders.

    \b
    Example:
      aiokafka acls list topic:orders --principal User:alice
    """
    wanted = _filter(resource, given)
    async with session.admin() as admin:
        found = await admin.acls.describe(wanted)
    session.output.rows(sorted(map(_acl_row, found), key=str), _ACL)


@command(acls, "add", prints=False)
@click.argument("resource", metavar="TYPE:NAME")
@click.argument("principal", metavar="User:NAME")
@click.argument("operations", nargs=-1, required=True)
@click.option("--deny", is_flag=True, help="Deny instead of allow.")
@click.option("--prefixed", is_flag=True, help="The name is a prefix of resource names.")
@click.option("--host", default="*", show_default=True, help="For clients with this IP address.")
async def add_acls(
    session: Session,
    resource: str,
    principal: str,
    operations: tuple[str, ...],
    deny: bool,
    prefixed: bool,
    host: str,
) -> None:
    """Allow or deny (--deny) OPERATIONS on a resource to a principal.

    \b
    Example:
      aiokafka acls add topic:orders User:alice read describe
    """
    from aiokafka.admin import (
        AclBinding,
        AclOperation,
        AclPermission,
        PatternType,
        ResourcePattern,
        ResourceType,
    )

    kind, _, name = resource.partition(":")
    pattern = ResourcePattern(
        _member(ResourceType, kind),
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
    )
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    bindings = [
        AclBinding(pattern, principal, _member(AclOperation, operation), permission, host)
        for operation in operations
    ]
    async with session.admin() as admin:
        made = await session.parts(admin.acls.create(bindings), bindings)
    session.output.done(f"{resource}: {len(made)} entries for {principal}" if made else "")


@command(acls, "delete")
@click.argument("resource", metavar="TYPE[:NAME]")
@click.option("--principal", metavar="User:NAME", help="Only entries of this principal.")
@click.option("--operation", metavar="NAME", help="Only entries for it: read, write, describe ...")
@click.option("--prefixed", is_flag=True, help="Delete entries for a prefix of names.")
@YES
async def delete_acls(
    session: Session, resource: str, prefixed: bool, yes: bool, **given: str | None
) -> None:
    """Delete the ACL entries for a resource, and show them. TYPE alone selects the entries for all
    resources of this type.

    \b
    Example:
      aiokafka acls delete topic:orders --principal User:alice --yes
    """
    if prefixed:
        given["pattern_type"] = "prefixed"
    elif ":" in resource:
        # Do not delete PREFIXED entries with the same name, which `acls add --prefixed` creates.
        given["pattern_type"] = "literal"
    wanted = _filter(resource, given)
    if resource.endswith(":"):
        # An empty name would select all resources of this type, which is probably a mistake.
        raise click.UsageError(
            f"{resource!r} has no name after the colon: leave the colon out for all of this type"
        )
    async with session.admin() as admin:
        if not yes:
            count = len(await admin.acls.describe(wanted))
            agree(f"Delete {count} entries about {resource}?", yes)
        found = await admin.acls.delete([wanted])
    rows = [_acl_row(binding) for bindings in found.values() for binding in bindings]
    session.output.rows(sorted(rows, key=str), _ACL)


@command(users, "list")
@click.argument("names", nargs=-1, metavar="[USER]...")
async def list_users(session: Session, names: tuple[str, ...]) -> None:
    """List users and the SCRAM mechanisms for which they have passwords.

    \b
    Example:
      aiokafka users list
    """
    async with session.admin() as admin:
        found = await session.parts(admin.users.describe(names or None), names or None)
    rows = [
        {"user": user, **credential.as_dict()}
        for user, credentials in sorted(found.items())
        for credential in credentials
    ]
    session.output.rows(rows, ("user", "mechanism", "iterations"))


@command(users, "set", prints=False)
@click.argument("user")
@_MECHANISM
@click.option("--new-password-file", metavar="FILE", help="File with the new password; - is stdin.")
async def set_user(
    session: Session, user: str, mechanism: str, new_password_file: str | None
) -> None:
    """Set the password of a new or existing user. Prompts for the password, or reads it from a
    file.

    \b
    Example:
      aiokafka users set alice --new-password-file alice.password
    """
    from aiokafka.admin import NewScramCredential, ScramMechanism

    if new_password_file is not None:
        is_stdin = new_password_file == "-"
        text = read_stdin() if is_stdin else read_file(Path(new_password_file))
        password = text.rstrip("\r\n")
    elif can_ask():
        password = secret(f"New password of {user}", twice=True)
    else:
        raise click.UsageError("give --new-password-file; - is stdin")
    credential = NewScramCredential(user, password, _member(ScramMechanism, mechanism))
    async with session.admin() as admin:
        await admin.users.upsert([credential])
    session.output.done(f"{user}: password set for {mechanism}")


@command(users, "delete", prints=False)
@click.argument("user")
@_MECHANISM
@YES
async def delete_user(session: Session, user: str, mechanism: str, yes: bool) -> None:
    """Delete the password of a user for one mechanism.

    \b
    Example:
      aiokafka users delete alice --yes
    """
    agree(f"Delete the password of {user}?", yes)
    async with session.admin() as admin:
        await admin.users.delete([(user, mechanism)])
    session.output.done(f"{user}: password for {mechanism} deleted")


def limits_of(texts: Iterable[str]) -> dict[str, float | None]:
    """Parse limits of quotas from `name=number`. A `name` alone becomes None, which removes the
    limit. Raises click.BadParameter for other texts, and for a repeated name."""
    return distinct(map(_limit, texts))


def _limit(text: str) -> tuple[str, float | None]:
    name, equals, value = text.partition("=")
    try:
        return name, float(value) if equals else None
    except ValueError:
        raise click.BadParameter(f"{text!r} must be NAME=NUMBER or NAME") from None


def _entity(given: dict[str, str | None]) -> QuotaEntity:
    from aiokafka.admin import QuotaEntity, QuotaName

    if not any(given.values()):
        raise click.UsageError("give --user, --client-id or --ip")
    found = {name: text for name, text in given.items() if text is not None}
    return QuotaEntity(
        **{name: QuotaName.DEFAULT if text == "<default>" else text for name, text in found.items()}
    )


@command(quotas, "list")
async def list_quotas(session: Session) -> None:
    """List all quotas.

    \b
    Example:
      aiokafka quotas list
    """
    async with session.admin() as admin:
        found = await admin.quotas.describe()
    rows = [
        {"entity": str(entity), "quota": name, "limit": limit}
        for entity, limits in sorted(found.items(), key=str)
        for name, limit in sorted(limits.items())
    ]
    session.output.rows(rows, ("entity", "quota", "limit"))


@command(quotas, "alter", prints=False)
@click.argument("changes", nargs=-1, required=True, metavar="NAME=NUMBER...")
@click.option(
    "--user",
    metavar="NAME",
    help="For this user; <default>: for users without limits of their own.",
)
@click.option(
    "--client-id", metavar="NAME", help="For this client id; can be combined with --user."
)
@click.option("--ip", metavar="ADDRESS", help="For clients with this IP address.")
@click.option("--dry-run", is_flag=True, help="Check the change on the broker; change nothing.")
async def alter_quotas(
    session: Session, changes: tuple[str, ...], dry_run: bool, **given: str | None
) -> None:
    """Set limits of quotas. A NAME alone removes its limit; other limits are not changed.

    \b
    Example:
      aiokafka quotas alter --user alice producer_byte_rate=1000000 request_percentage
    """
    entity, limits = _entity(given), limits_of(changes)
    async with session.admin() as admin:
        await admin.quotas.alter(entity, limits, validate_only=dry_run)
    session.output.done(f"{entity}: {'could be changed' if dry_run else 'changed'}")


# -- Delegation tokens (KIP-48)


tokens = Verbs(help="List, create, renew and expire delegation tokens.")

_TOKEN = ("token_id", "owner", "requester", "renewers", "expires", "ends")
_HOUR_MS = 3_600_000


def token_row(token: DelegationToken) -> dict[str, Any]:
    """Return the row of a token, without its secret."""
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "expires": token.expiry_timestamp,
        "ends": token.max_timestamp,
        "issued": token.issue_timestamp,
    }


@command(tokens, "list")
@click.option(
    "--owner", "owners", multiple=True, metavar="User:NAME", help="Only tokens of this owner."
)
async def list_tokens(session: Session, owners: tuple[str, ...]) -> None:
    """List delegation tokens without their secrets. Times are milliseconds since 1970.

    \b
    Example:
      aiokafka tokens list --owner User:alice
    """
    async with session.admin() as admin:
        found = await admin.tokens.describe(owners or None)
    session.output.rows(map(token_row, sorted(found, key=lambda each: each.token_id)), _TOKEN)


@command(tokens, "create")
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    metavar="User:NAME",
    help="A user who may renew it; may be repeated.",
)
@click.option("--owner", metavar="User:NAME", help="Create it for this user; default: for oneself.")
@click.option(
    "--hours",
    type=Finite(0),
    help="Maximum lifetime in hours; default: as the broker is configured.",
)
async def create_token(
    session: Session, renewers: tuple[str, ...], owner: str | None, hours: float | None
) -> None:
    """Create a delegation token, and show it with its secret. To use the token, log in by SCRAM,
    with its id as the user name and the secret as the password.

    \b
    Example:
      aiokafka tokens create --renewer User:worker --hours 12 --output json
    """
    lifetime = -1 if hours is None else int(hours * _HOUR_MS)
    async with session.admin() as admin:
        made = await admin.tokens.create(renewers, owner, lifetime)
    row = {**token_row(made), "password": made.password}
    session.output.rows([row], ("token_id", "password", "owner", "expires", "ends"))


@command(tokens, "renew", prints=False)
@click.argument("token_id")
@click.option(
    "--hours", type=Finite(0), help="Hours until it expires; default: as the broker is configured."
)
async def renew_token(session: Session, token_id: str, hours: float | None) -> None:
    """Renew a token, so that it expires later.

    \b
    Example:
      aiokafka tokens renew 1RLGmGJkTWqk-P3FhcBN2w --hours 12
    """
    period = -1 if hours is None else int(hours * _HOUR_MS)
    async with session.admin() as admin:
        until = await admin.tokens.renew(await _secret_of(admin, token_id), period)
    session.output.done(f"{token_id}: expires at {until} (milliseconds since 1970)")


@command(tokens, "expire", prints=False)
@click.argument("token_id")
@YES
async def expire_token(session: Session, token_id: str, yes: bool) -> None:
    """Expire a token at once.

    \b
    Example:
      aiokafka tokens expire 1RLGmGJkTWqk-P3FhcBN2w --yes
    """
    agree(f"Expire the token {token_id}?", yes)
    async with session.admin() as admin:
        await admin.tokens.expire(await _secret_of(admin, token_id))
    session.output.done(f"{token_id}: expired")


async def _secret_of(admin: AIOKafkaAdminClient, token_id: str) -> bytes:
    for token in await admin.tokens.describe():
        if token.token_id == token_id:
            return token.hmac
    raise DelegationTokenNotFound(f"no token {token_id!r} that this user may see")
