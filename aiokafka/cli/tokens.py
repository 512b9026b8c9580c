"""`aiokafka tokens`: delegation tokens, with which others log in for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aiokafka.cli.asking import agree
from aiokafka.cli.places import Finite
from aiokafka.cli.session import Session, command, noun
from aiokafka.errors import DelegationTokenNotFound

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient, DelegationToken

__all__ = ["commands", "token_row"]

commands = noun("List, create, renew and expire delegation tokens.")

_LISTED = ("token_id", "owner", "requester", "renewers", "expires", "ends")
_HOUR_MS = 3_600_000


def token_row(token: DelegationToken) -> dict[str, Any]:
    """Return what may be shown of a token: not its secret."""
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "expires": token.expiry_timestamp,
        "ends": token.max_timestamp,
        "issued": token.issue_timestamp,
    }


@command(commands, "list")
@click.option("--owner", "owners", multiple=True, metavar="User:NAME", help="Only those of these.")
async def list_(session: Session, owners: tuple[str, ...]) -> None:
    """List tokens without their secrets. Times are milliseconds since 1970.

    \b
    Example:
      aiokafka tokens list --owner User:alice
    """
    async with session.admin() as admin:
        found = await admin.tokens.describe(owners or None)
    session.output.rows(map(token_row, sorted(found, key=lambda each: each.token_id)), _LISTED)


@command(commands, "create")
@click.option("--renewer", "renewers", multiple=True, metavar="User:NAME", help="Who may renew it.")
@click.option("--owner", metavar="User:NAME", help="For this user instead of oneself.")
@click.option("--hours", type=Finite(0), help="Its longest life; else the broker's.")
async def create(
    session: Session, renewers: tuple[str, ...], owner: str | None, hours: float | None
) -> None:
    """Create a token, and show it with its secret: it logs in by SCRAM as token id and password.

    \b
    Example:
      aiokafka tokens create --renewer User:worker --hours 12 --output json
    """
    lifetime = -1 if hours is None else int(hours * _HOUR_MS)
    async with session.admin() as admin:
        made = await admin.tokens.create(renewers, owner, lifetime)
    row = {**token_row(made), "password": made.password}
    session.output.rows([row], ("token_id", "password", "owner", "expires", "ends"))


@command(commands, "renew", prints=False)
@click.argument("token_id")
@click.option("--hours", type=Finite(0), help="For how long; else as configured.")
async def renew(session: Session, token_id: str, hours: float | None) -> None:
    """Let a token live on.

    \b
    Example:
      aiokafka tokens renew 1RLGmGJkTWqk-P3FhcBN2w --hours 12
    """
    period = -1 if hours is None else int(hours * _HOUR_MS)
    async with session.admin() as admin:
        until = await admin.tokens.renew(await _secret_of(admin, token_id), period)
    session.output.done(f"{token_id}: expires at {until} (milliseconds since 1970)")


@command(commands, "expire", prints=False)
@click.argument("token_id")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def expire(session: Session, token_id: str, yes: bool) -> None:
    """End a token at once.

    \b
    Example:
      aiokafka tokens expire 1RLGmGJkTWqk-P3FhcBN2w --yes
    """
    agree(f"End the token {token_id}?", yes)
    async with session.admin() as admin:
        await admin.tokens.expire(await _secret_of(admin, token_id))
    session.output.done(f"{token_id}: expired")


async def _secret_of(admin: AIOKafkaAdminClient, token_id: str) -> bytes:
    for token in await admin.tokens.describe():
        if token.token_id == token_id:
            return token.hmac
    raise DelegationTokenNotFound(f"no token {token_id!r} that this user may see")
