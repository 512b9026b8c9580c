"""Questions before something is lost: yes, no, Ctrl-C, and no terminal to ask at."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.cli.support import Cli, environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Unix")

DELETE = ("topics", "delete", "orders")


def names(cli: Cli) -> list[str]:
    return [row["name"] for row in cli.rows("topics", "list")]


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y", 0, []), ("n", 1, ["orders"]), ("^C", 130, ["orders"])]
)
def test_answers_at_a_terminal(cli: Cli, answer: str, code: int, left: list[str]) -> None:
    import pexpect

    cli.served.topic("orders")
    child = pexpect.spawn(
        sys.executable, ["-m", "aiokafka", *DELETE], env=environment(cli.served), timeout=30
    )
    child.expect("Delete orders with all records.*:")
    if answer == "^C":
        child.sendintr()
    else:
        child.sendline(answer)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == code
    assert names(cli) == left


def test_a_question_is_ended_by_a_signal(cli: Cli) -> None:
    import pexpect

    arguments = ["-m", "aiokafka", "topics", "list", "--username", "a", "--security-protocol"]
    child = pexpect.spawn(
        sys.executable, [*arguments, "SASL_SSL"], env=environment(cli.served), timeout=30
    )
    child.expect("Password of a")
    child.kill(signal.SIGTERM)
    child.expect(pexpect.EOF)
    child.close()
    assert child.signalstatus == signal.SIGTERM or child.exitstatus == 143


def test_without_a_terminal_and_an_answer_one_line_says_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.served.topic("orders")
    with open("/dev/null") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        done = cli.run(*DELETE)
    assert done.code == 2
    assert "--yes" in done.err.splitlines()[-1]
    assert names(cli) == ["orders"]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (DELETE, "give --yes"),
        (("topics", "list", "--username", "alice"), "use --password-stdin"),
        (("users", "set", "alice"), "give --new-password-file"),
    ],
)
def test_without_stdin_one_line_says_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], advice: str
) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as after <&-
    done = cli.run(*arguments)
    assert done.code == 2
    assert advice in done.err.splitlines()[-1]
