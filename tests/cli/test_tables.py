"""The tables that the page of the command line shows are those that it prints."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import Any

from aiokafka import AIOKafkaConsumer
from tests.cli.support import ROOT, Cli

PAGE = ROOT / "docs" / "cli.rst"


def shown() -> dict[str, list[str]]:
    """Return the commands of the section with their lines."""
    text = PAGE.read_text().partition(".. _tables:")[2].partition("\n.. _")[0]
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^    (.+)$", text, re.MULTILINE):
        if line.startswith("$ aiokafka "):
            command = line.removeprefix("$ aiokafka ")
            found[command] = []
        elif found:
            found[command].append(line)
    return found


def test_pictures_show_what_the_page_shows() -> None:
    """Its lines are compared with what is printed."""
    for name in ("topics", "groups"):
        words = [
            shlex.split(line)
            for line in (PAGE.parent / "pictures" / f"tables_{name}.txt").read_text().splitlines()
        ]
        drawn = [each[3] for each in words if each[0] == "line"]
        tables = shown()
        for command in [each.removeprefix("$ aiokafka ") for each in drawn if each[0] == "$"]:
            start = drawn.index(f"$ aiokafka {command}") + 1
            assert drawn[start : start + len(tables[command])] == tables[command]


def is_alike(line: str, printed: str) -> bool:
    """Compare words; ids differ, and so does time. Widths of columns follow what is in them."""
    pattern = r"\s+".join(
        r"billing-1-\S+"
        if word.endswith("...")
        else r"\d+\.\ds"
        if word == "46.3s"
        else re.escape(word)
        for word in line.split()
    )
    return re.fullmatch(pattern, printed.strip()) is not None


def test_the_page_shows_what_is_printed(cli: Cli) -> None:
    tables = shown()
    assert len(tables) == 4

    async def look() -> dict[str, list[str]]:
        servers: dict[str, Any] = {"bootstrap_servers": cli.served.cluster.bootstrap_servers}
        options = {"group_id": "billing", "enable_auto_commit": False, **servers}
        async with AIOKafkaConsumer("orders", client_id="billing-1", **options) as consumer:
            done = {0: 2, 1: 4, 2: 1}
            await consumer.commit({("orders", number): offset for number, offset in done.items()})
            return {
                command: (await asyncio.to_thread(cli, *command.split())).out.splitlines()
                for command in tables
            }

    cli("topics", "create", "orders", "--partitions", "3", "--replicas", "1")
    cli("topics", "create", "invoices", "--partitions", "1", "--replicas", "1")
    for partition, count in enumerate((2, 11, 1)):
        cli.pipe(f"seq {count} | aiokafka produce orders --partition {partition}")
    printed = asyncio.run(look())
    for command, lines in tables.items():
        assert len(lines) == len(printed[command]), command
        for line, found in zip(lines, printed[command], strict=True):
            assert is_alike(line, found), f"{command}: {line!r} is {found!r}"
