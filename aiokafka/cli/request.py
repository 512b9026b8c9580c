"""`aiokafka request`: sends any request of Kafka's protocol, given as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from aiokafka.admin._messages import as_plain, request_of
from aiokafka.cli.arguments import is_number, partition_of
from aiokafka.cli.session import Session, command

if TYPE_CHECKING:
    from aiokafka.admin import SendTo


def target(text: str) -> SendTo | None:
    """Parse the destination of a request: `any`, `controller`, `broker:1`, `leader:orders-0`,
    `group:billing` or `transaction:loader`. Returns None for `all`.

    Raises click.BadParameter for other texts.
    """
    from aiokafka.admin import SendTo

    kind, _, name = text.partition(":")
    if kind == "all" and not name:
        return None
    if kind in ("any", "controller") and not name:
        return SendTo.any() if kind == "any" else SendTo.controller()
    if kind == "broker" and is_number(name):
        return SendTo.broker(int(name))
    if kind == "leader" and name:
        return SendTo.leader(partition_of(name))
    if kind == "group" and name:
        return SendTo.coordinator(name)
    if kind == "transaction" and name:
        return SendTo.transaction_coordinator(name)
    raise click.BadParameter(
        f"--to {text}: must be any, controller, all, broker:ID, leader:TOPIC-PARTITION, "
        "group:NAME or transaction:ID"
    )


@command(None, "request", prints=False)
@click.argument("api", metavar="API")
@click.argument("fields", default="{}", metavar="[JSON]")
@click.option(
    "--to", default="any", show_default=True, help="Destination of the request (see above)."
)
async def commands(session: Session, api: str, fields: str, to: str) -> None:
    """Send a request of Kafka's protocol, and print the response as JSON.

    API is a name such as DescribeGroups. JSON is an object with the fields of the request, named as
    in aiokafka.protocol.messages. --to is any, controller, all, broker:ID, leader:TOPIC-PARTITION,
    group:NAME or transaction:ID.

    \b
    Example:
      aiokafka request DescribeGroups '{"groups": ["billing"]}' --to group:billing
    """
    where = target(to)
    try:
        values = json.loads(fields)
        request = request_of(api, values)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        text = error.args[0] if isinstance(error, LookupError) and error.args else error
        raise click.UsageError(str(text)) from None
    async with session.admin() as admin:
        if where is None:
            found: Mapping[int, Any] = await session.parts(admin.send_to_all(request), None)
            lines = [{"broker": broker, **as_plain(response)} for broker, response in found.items()]
        else:
            lines = [as_plain(await admin.send(request, where))]
    for line in lines:
        click.echo(json.dumps(line))
