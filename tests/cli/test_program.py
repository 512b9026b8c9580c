"""The program as a whole: help, exit codes, signals, and what it costs to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.cli import main
from aiokafka.cli.app import root
from aiokafka.cli.failures import CODES, code_of, lines_of
from aiokafka.errors import (
    AdminItemsError,
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NonEmptyGroup,
    UnknownTopicOrPartitionError,
)
from tests.cli.support import ROOT, Cli, command_of, commands, environment, process

PAGE = ROOT / "docs" / "cli.rst"


@pytest.mark.parametrize("command", list(commands(root)), ids=" ".join)
def test_every_command_has_help_with_an_example(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"aiokafka {' '.join(command)}" in text.partition("Example")[2]
    assert "......" not in text


@pytest.mark.parametrize("command", list(commands(root)), ids=" ".join)
def test_the_help_begins_with_a_sentence_and_explains_every_option(
    command: tuple[str, ...],
) -> None:
    found = command_of(root, command)
    assert found.get_short_help_str(limit=200).endswith(".")
    silent = [
        each.opts for each in found.params if isinstance(each, click.Option) and not each.help
    ]
    assert silent == []


def test_the_page_shows_the_exit_codes() -> None:
    page = PAGE.read_text()
    for code, meaning in CODES.items():
        assert f"\n{code:<6}{meaning}\n" in page


@pytest.mark.skipif(sys.platform == "win32", reason="the page is written for a shell of Unix")
def test_the_commands_of_the_page_run(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    lines = [line[6:] for line in PAGE.read_text().splitlines() if line.startswith("    $ ")]
    assert len(lines) > 5
    for line in lines:
        cli.pipe(line)


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("topic list", "Did you mean 'topics'?"),
        ("consum orders", "Did you mean 'consume'?"),
        ("-b localhost:9092 topics list", "Options stand after the command"),
        ("fly", "No such command 'fly'. (see aiokafka --help)"),
    ],
)
def test_a_slip_before_the_verb_gets_advice(
    command: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    told = capsys.readouterr().err
    assert advice in told
    assert told.count("\n") == 1


def test_the_library_does_not_need_the_command_line() -> None:
    program = "import sys, aiokafka; aiokafka.AIOKafkaConsumer; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = done.stdout.split()
    assert not {"click", "aiokafka.cli"} & set(loaded)


def test_the_start_imports_neither_roles_nor_other_nouns() -> None:
    program = (
        "import sys; from aiokafka.cli import main; main(['topics', 'list', '--help']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stderr.split())
    assert "aiokafka.cli.topics" in loaded
    heavy = ("aiokafka.client", "aiokafka.consumer", "aiokafka.producer", "aiokafka.testing")
    assert not {name for name in loaded if name.startswith((*heavy, "aiokafka.cli.brokers"))}
    assert not {"asyncio", "ssl"} & loaded


def test_the_help_of_produce_imports_no_record_batches() -> None:
    program = (
        "import sys; from aiokafka.cli import main; main(['produce', '--help']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "aiokafka.cli.producing" in done.stderr
    assert "aiokafka.record" not in done.stderr


def test_commands_import_only_what_they_need(cli: Cli, tmp_path: Path) -> None:
    """A producer asks for the size of batches itself, files are read without a thread, tables are
    printed without the modules of other formats."""
    cli.served.topic("t")
    lines = tmp_path / "lines"
    lines.write_text("line\n" * 1000)
    env = environment(cli.served)
    # Names of unknown variables are compared with those of the settings, by `difflib`.
    env.pop("AIOKAFKA_KERBEROS", None)
    for arguments in (["produce", "t", str(lines)], ["topics", "list"]):
        program = (
            f"import sys; from aiokafka.cli import main; main({arguments}); "
            "print(*sys.modules, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=env,
            cwd=ROOT,
        )
        loaded = set(done.stderr.split())
        assert "aiokafka.client" in loaded
        assert {"csv", "difflib", "concurrent.futures.thread"} & loaded == set()
        assert ("aiokafka.admin" in loaded) == ("topics" in arguments)
    assert len(cli.served.values("t")) == 1000


def test_without_the_extra_one_line_says_how_to_install_it(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['click'] = None; sys.argv = ['aiokafka', 'info']\n"
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'click' else found(name)\n"
        "from aiokafka.cli import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr == 'aiokafka: the command line needs: pip install "aiokafka[cli]"\n'


def test_no_broker_is_code_3_and_one_line(cli: Cli) -> None:
    done = cli.run("topics", "list", "-b", "127.0.0.1:1", "-X", "request_timeout_ms=300")
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("aiokafka: ") and done.err.count("\n") == 1


def test_info_shows_the_brokers_and_survives_without(cli: Cli) -> None:
    rows = {row["name"]: row["value"] for row in cli.rows("info")}
    assert rows["form"] in ("compiled", "pure Python")
    assert "gzip" in rows["codecs"]
    assert rows["broker 1"] == cli.served.cluster.address(1)
    done = cli.run("info", "-b", "127.0.0.1:1", "-X", "request_timeout_ms=300")
    assert done.code == 3
    assert "no response" in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("topics", "list", "--nothing"),
        ("topics", "describe"),
        ("topics", "list", "-X", "nothing=1"),
        ("topics", "list", "-X", "request_timeout_ms=x"),
        ("topics", "list", "--username", "alice"),
        ("groups", "lag", "g", "--watch", "--interval", "nan"),
        ("tokens", "create", "--hours", "inf"),
        ("transactions", "find-hanging", "--minutes", "nan"),
        ("consume", "t", "--rate", "inf"),
        ("produce", "t", "--rate", "nan"),
        ("produce", "t", "--transaction-size", "5"),
        ("perf", "produce", "t", "--size", "99999999999"),
        ("users", "set", "alice", "--new-password-file", "/dev/zero"),
        ("topics", "apply", "/dev/zero", "--dry-run"),
        ("topics", "create", "t", "--partitions", "99999999999"),
        ("groups", "set-offsets", "g", "t-0=" + "9" * 30, "--yes"),
        ("groups", "set-offsets", "g", "t-0=1", "t-0=2", "--yes"),
        ("topics", "reassign", "t-0=1", "t-0=0"),
        ("topics", "create", "t", "--setting", "a=1", "--setting", "a=2"),
        ("topics", "list", "--security-protocol", "SSL", "--ca-file", "no-such-file"),
        ("topics", "list", "--security-protocol", "SSL", "--ca-file", "Makefile"),
        ("consume", "t", "--json", "--format", "%s"),
        ("consume", "t", "--json", "--key-delimiter", ":"),
        ("produce", "t", "--header", "=1"),
        ("produce", "t", "--json", "--null"),
        ("produce", "t", "--json", "--whole"),
        ("produce", "t", "--keep-partitions"),
        ("testing", "serve", "--as-version", "1"),
        ("testing", "serve", "--topic", "a:b"),
        ("testing", "serve", "--port", "65535", "--brokers", "2"),
        ("produce", "t", "Makefile", "--key-delimiter", ""),
        ("produce", "t", "Makefile", "--delimiter", "\\x"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_code_2_and_one_line(
    cli: Cli, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        done = cli.run(*arguments)
    assert done.code == 2, done.err
    assert done.err.startswith("aiokafka: ") and done.err.count("\n") == 1


def test_errors_have_codes_and_lines() -> None:
    missing = UnknownTopicOrPartitionError("no topic a")
    refused = AuthenticationFailedError("bad\npassword")
    assert code_of(KafkaConnectionError("x")) == 3
    assert (code_of(refused), lines_of(refused)) == (
        4,
        ["AuthenticationFailedError: bad password"],
    )
    both = AdminItemsError({"a": missing, "b": refused}, {})
    assert code_of(both) == 1
    assert [line[:2] for line in lines_of(both)] == ["a:", "b:"]
    assert code_of(AdminItemsError({"a": missing, "b": missing}, {})) == 5
    late = KafkaTimeoutError("a: timed out")
    assert code_of(late) == 3
    late.__cause__ = missing
    assert code_of(late) == 5
    assert lines_of(FileNotFoundError(2, "No such file", "x")) == ["x: No such file"]
    assert lines_of(ZeroDivisionError()) == ["ZeroDivisionError: ZeroDivisionError"]


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix")
def test_a_text_is_not_followed_by_a_description_that_says_the_same() -> None:
    text = "group 'billing' has members: stop its consumers"
    assert lines_of(NonEmptyGroup(text)) == [text]
    assert lines_of(NonEmptyGroup("billing")) == ["billing. The group has members"]


def test_closed_streams_are_one_line() -> None:
    program = f'"{sys.executable}" -m aiokafka'
    for line in (f"{program} completion bash >&-", f"{program} produce t -b 127.0.0.1:1 <&-"):
        done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=ROOT, timeout=50)
        assert done.returncode in (1, 2, 3)
        assert done.stderr.startswith(b"aiokafka: ") and done.stderr.count(b"\n") == 1


def test_debug_shows_the_traceback(cli: Cli) -> None:
    arguments = ("topics", "list", "-b", "127.0.0.1:1", "-X", "request_timeout_ms=300", "--debug")
    child = process(*arguments, stderr=subprocess.PIPE)
    _, err = child.communicate(timeout=50)
    assert child.returncode == 3
    assert b"Traceback" in err


def test_completion_is_printed_and_completes(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_AIOKAFKA_COMPLETE" in cli("completion", shell).out
    variables = {
        "_AIOKAFKA_COMPLETE": "bash_complete",
        "COMP_WORDS": "aiokafka topics de",
        "COMP_CWORD": "2",
    }
    child = process(env=environment(**variables), stdout=subprocess.PIPE)
    out, _ = child.communicate(timeout=50)
    assert {line.partition(",")[2] for line in out.decode().split()} == {"delete", "describe"}


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
async def test_a_fake_cluster_is_served_until_a_signal_comes() -> None:
    child = process(
        *("testing", "serve", "--port", "0", "--brokers", "2", "--topic", "orders:3:2"),
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        servers = child.stdout.readline().decode().strip()
        assert servers.count(":") == 2
        async with AIOKafkaConsumer("orders", bootstrap_servers=servers) as consumer:
            assert consumer.partitions_for_topic("orders") == {0, 1, 2}
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
    finally:
        child.kill()
        child.communicate()


def test_a_reader_that_has_seen_enough_ends_it_quietly(cli: Cli) -> None:
    for number in range(300):
        cli.served.topic(f"topic-with-a-rather-long-name-{number}", 1)
    reader, writer = os.pipe()
    os.close(reader)
    child = process(
        "topics", "list", env=environment(cli.served), stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    _, err = child.communicate(timeout=50)
    assert (child.returncode, err) == (0, b"")
