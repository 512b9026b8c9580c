"""What a person sees at a terminal, and what a stranger's text cannot do to it."""

from __future__ import annotations

import asyncio
import io
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.cli.output import Output, printable, styled, table
from tests.cli.support import Cli, Done, environment

if TYPE_CHECKING:
    import pexpect as pexpect

needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Unix")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(cli: Cli, *arguments: str, **variables: str) -> pexpect.spawn[bytes]:
    import pexpect

    env = environment(cli.served, **variables)
    return pexpect.spawn(
        sys.executable, ["-m", "aiokafka", *arguments], env=env, timeout=60, dimensions=(8, 60)
    )


def ended(child: pexpect.spawn[bytes]) -> tuple[str, int | None]:
    import pexpect

    child.expect(pexpect.EOF)
    rest = child.before or b""
    child.close()
    return rest.decode(), child.exitstatus


@needs_terminal
def test_colour_is_for_terminals_whose_user_wants_it(cli: Cli) -> None:
    cli.served.topic("orders")
    text, code = ended(at_terminal(cli, "topics", "list", NO_COLOR=""))
    assert code == 0 and "\x1b[1mNAME" in text
    text, code = ended(at_terminal(cli, "topics", "list", NO_COLOR="1"))
    assert code == 0 and "NAME" in text and "\x1b" not in text
    assert "\x1b" not in cli("topics", "list").out


@needs_terminal
def test_ctrl_c_commits_what_is_on_the_screen_and_leaves(cli: Cli) -> None:
    cli.served.topic("orders")
    cli.served.run(_fill(cli, 3))
    child = at_terminal(cli, "consume", "orders", "--group", "g")
    for number in range(3):
        child.expect(f"value-{number}")
    child.sendintr()
    _, code = ended(child)
    assert code == 130
    groups = cli.served.cluster.groups
    assert (groups.committed("g", "orders", 0), groups.state_of("g")) == (3, "Empty")


@needs_terminal
def test_a_format_without_a_line_break_has_one_at_a_terminal(cli: Cli) -> None:
    cli.served.topic("orders")
    cli.served.run(_fill(cli, 2))
    text, code = ended(at_terminal(cli, "consume", "orders", "-e", "--format", "%o %s"))
    assert code == 0 and "0 value-0\r\n1 value-1\r\n" in text
    assert cli("consume", "orders", "-e", "--format", "%o %s").out == "0 value-01 value-1"


async def _fill(cli: Cli, count: int) -> None:
    records = [(None, b"value-%d" % number, ()) for number in range(count)]
    cli.served.cluster.log("orders").extend(records)


def test_a_table_is_drawn_over_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "4")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Terminal()
    output = Output("table", screen)
    output.redraw([{"a": "x" * 30}], ["a"])
    assert screen.getvalue().startswith("\x1b[2J\x1b[H\x1b[1mA")
    assert "\nxxxxxxxxxx\x1b[K\n\x1b[J" in screen.getvalue()
    before = len(screen.getvalue())
    output.redraw([{"a": each} for each in range(9)], ["a"])
    drawn = screen.getvalue()[before:]
    assert "2J" not in drawn
    assert drawn.startswith("\x1b[H") and drawn.count("\n") == 3 and "... 8 more" in drawn


def test_control_characters_are_shown_not_sent() -> None:
    hostile = "a\x1b]0;title\x07b\x9bc\r"
    lines = table([{"host": hostile}], ["host"])
    assert lines[1] == r"a\x1b]0;title\x07b\x9bc\r"
    assert printable("größe 世界") == "größe 世界"
    assert styled("a", io.StringIO(), bold=True) == "a"


def test_errors_of_brokers_cannot_steer_a_terminal(cli: Cli) -> None:
    done = cli.run("topics", "describe", "no\x1b[31msuch")
    assert done.code == 5 or done.code == 1
    assert "\x1b" not in done.err and "x1b" in done.err


def test_names_of_members_cannot_steer_a_terminal(cli: Cli) -> None:
    """Any client that may join the group chooses its own name."""
    cli.served.topic("orders")

    async def remove() -> Done:
        servers = cli.served.cluster.bootstrap_servers
        options: dict[str, Any] = {"bootstrap_servers": servers, "client_id": "a\x1b[31mb"}
        async with AIOKafkaConsumer("orders", group_id="g", **options):
            return await asyncio.to_thread(
                cli.run, "groups", "remove-members", "g", "--all", "--yes"
            )

    done = asyncio.run(remove())
    assert done.code == 0 and done.err.startswith(r"a\x1b[31mb-")
    assert "\x1b" not in done.err
