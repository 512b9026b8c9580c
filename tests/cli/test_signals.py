"""Ctrl-C and SIGTERM in every command: its exit code, nothing on stderr, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.cli.app import root
from aiokafka.cli.consuming import Committer
from aiokafka.errors import KafkaTimeoutError
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.cli.support import Cli, commands, environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")

# These send no request, or only serve them; `produce` waits for what brokers owe it (see below).
WITHOUT = {("completion",), ("help",), ("version",), ("testing", "serve"), ("produce",)}
COMMANDS = [each for each in commands(root) if each not in WITHOUT and each[0] != "profile"]
# The second request of every command is its own or metadata, the fifth, if there is one, its own.
FIRST, LATER = 2, 5


def example(path: tuple[str, ...]) -> list[str]:
    """Return the arguments of the command in the first example of its help."""
    found: Any = root
    for name in path:
        found = found.get_command(click.Context(found), name)
    line = next(each for each in found.help.partition("Example:")[2].splitlines() if each.strip())
    arguments = shlex.split(line.rpartition("| ")[2])[1:]
    if any("--yes" in each.opts for each in found.params) and "--yes" not in arguments:
        arguments.append("--yes")
    return [each for each in arguments if each not in ("-b", "localhost:9092")]


@pytest.fixture
def prepared(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return what runs commands, where what their examples name is there."""
    monkeypatch.chdir(tmp_path)
    Path("alice.password").write_text("secret\n")
    Path("topics.yaml").write_text("topics: {declared: {partitions: 2, replication_factor: 1}}\n")
    for name in ("orders", "payments", "scratch", "numbers"):
        cli.served.topic(name, 2)
    cli.served.cluster.log("orders").extend([(None, b"value", ())] * 10)
    return cli


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_signal_ends_every_command(
    prepared: Cli, command: tuple[str, ...], number: signal.Signals
) -> None:
    """It comes while a request waits for its response, which never comes."""
    cluster = prepared.served.cluster
    arguments = example(command)
    for nth in (FIRST, LATER):
        seen = 0

        def interrupt(request: object, context: object, nth: int = nth) -> Silence | None:
            nonlocal seen
            seen += 1
            if seen != nth:
                return None
            os.kill(os.getpid(), number)
            return Silence()

        with cluster.intercept(None, interrupt):
            done = prepared.run(*arguments)
        if seen < nth:
            assert nth == LATER, f"{arguments} sends {seen} requests"
            break
        assert (done.code, done.err) == (128 + number, "")
        prepared.served.run(cluster.wait_for(lambda: cluster.connections == 0))


def test_the_last_commit_has_an_end() -> None:
    async def main(_: Simulation) -> float:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
            consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **options)
            async with consumer:
                cluster.log("t").extend([(None, b"value", ())])
                committer = Committer(consumer)
                committer.wrote(await consumer.getmany(timeout_ms=5000))
                cluster.intercept(None, Silence())
                began = asyncio.get_running_loop().time()
                with pytest.raises(KafkaTimeoutError, match="will be printed again"):
                    await committer.commit_soon()
                return asyncio.get_running_loop().time() - began

    assert simulate(main) < 11


def test_what_cannot_be_delivered_after_ctrl_c_is_told(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text("one\ntwo\n")

    def interrupt(request: object, context: object) -> Silence:
        os.kill(os.getpid(), signal.SIGINT)
        return Silence()

    # The command waits for ten seconds.
    cli.served.cluster.intercept(ProduceRequest, interrupt, times=1)
    cli.served.cluster.intercept(ProduceRequest, Silence())
    done = cli.run("produce", "t", str(file))
    assert done.code == 130
    assert f"{file}:1: record not delivered" in done.err and done.err.count("\n") == 1


def test_what_was_delivered_before_ctrl_c_is_a_beginning(cli: Cli, tmp_path: Path) -> None:
    """Lines of several partitions wait for room in the producer when the signal comes."""
    cli.served.topic("t", 2)
    file = tmp_path / "in"
    lines = [f"k{number}:{number:0>95}" for number in range(8000)]
    file.write_text("".join(f"{line}\n" for line in lines))
    seen = 0

    def interrupt(request: object, context: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            os.kill(os.getpid(), signal.SIGINT)

    small = ("-X", "buffer_memory=60000", "-X", "max_batch_size=10000")
    with cli.served.cluster.intercept(ProduceRequest, interrupt):
        done = cli.run("produce", "t", str(file), "--key-delimiter", ":", *small)
    assert (done.code, done.err) == (130, "")
    values = [value for number in range(2) for value in cli.served.values("t", number)]
    expected = [line.partition(":")[2].encode() for line in lines]
    assert sorted(value or b"" for value in values) == expected[: len(values)]


def test_ctrl_c_while_the_program_is_loaded() -> None:
    """It comes while a finalizer runs, which cannot propagate KeyboardInterrupt."""
    program = """
import os, signal, sys

class Garbage:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

class Interrupted:
    def find_spec(self, name, *rest):
        if name == "click":
            Garbage()

sys.meta_path.insert(0, Interrupted())
sys.argv[1:] = ["topics", "list"]
from aiokafka.cli import main
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
