"""`aiokafka testing serve`: a fake cluster for programs in any language."""

from __future__ import annotations

import asyncio
import sys

import click

from aiokafka.cli.arguments import is_number, pairs
from aiokafka.cli.running import run

commands = click.Group(help="Serve a fake cluster to programs in any language.")


def new_topic(text: str) -> tuple[str, int, int]:
    """Parse a topic from `name[:partitions[:replicas]]`; each number is 1 by default.

    Raises click.BadParameter for other texts.
    """
    name, *numbers = text.split(":")
    if not name or len(numbers) > 2 or not all(is_number(each) and int(each) for each in numbers):
        raise click.BadParameter(
            f"{text!r} must be NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICAS"
        )
    partitions, replicas = (*map(int, numbers), *(1, 1)[len(numbers) :])
    return name, partitions, replicas


@commands.command("serve")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the first broker; others get the next ports. 0: any free ports.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Number of brokers.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS[:REPLICAS]]",
    help="Create a topic; may be repeated.",
)
@click.option(
    "--as-version",
    default="4.4",
    show_default=True,
    metavar="RELEASE",
    help="Behave like this release of Kafka, 0.9 to 4.4.",
)
@click.option(
    "--broker-config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of all brokers, by Kafka's name.",
)
def serve(
    port: int,
    host: str,
    brokers: int,
    topics: tuple[str, ...],
    as_version: str,
    settings: tuple[str, ...],
) -> None:
    """Serve a fake cluster until Ctrl-C. It keeps records in memory only.

    When all brokers accept connections, prints the address for clients as the first line on stdout.

    \b
    Example:
      aiokafka testing serve --port 9092 --topic orders:3
    """
    if port + brokers > 65536:
        raise click.UsageError(f"--port: {brokers} brokers take {brokers} ports, up to 65535")
    config = pairs(settings)
    wanted = [new_topic(text) for text in topics]
    run(_serve(port, host, brokers, wanted, as_version, config))


async def _serve(
    port: int,
    host: str,
    brokers: int,
    topics: list[tuple[str, int, int]],
    as_version: str,
    config: dict[str, str],
) -> None:
    from aiokafka.testing import FakeCluster

    try:
        cluster = FakeCluster(brokers, as_version=as_version, host=host, config=config)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    for number in range(brokers if port else 0):
        cluster.broker(number).port = port + number
    async with cluster:
        for name, partitions, replicas in topics:
            await cluster.create_topic(name, partitions, replicas)
        print(cluster.bootstrap_servers)
        sys.stdout.flush()
        await asyncio.Event().wait()
