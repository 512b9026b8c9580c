"""The error of a record that `produce` cannot send names its file and its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka.cli.producing import Origins
from aiokafka.protocol.messages.produce import ProduceRequest
from tests.cli.support import Cli, environment, process

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes of Unix")

# Lines are sent one by one, or as batches if they are many.
FEW_AND_MANY = pytest.mark.parametrize("before", [2, 300], ids=["few", "many"])


def split(tmp_path: Path, *lines: str) -> list[str]:
    """Write the lines to two files, the first of which has three lines; return their names."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("".join(f"{line}\n" for line in lines[:3]))
    second.write_text("".join(f"{line}\n" for line in lines[3:]))
    return [str(first), str(second)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at column 2: b'{'"),
        ("[]", "not a JSON object: b'[]'"),
        ('{"valeu": 1}', "unknown field 'valeu'; did you mean value?: b'{\"valeu\": 1}'"),
        ("{}", "a record needs a key or a value: b'{}'"),
        (
            '{"value": 1, "partition": -1}',
            'partition: must be from 0 to 999999: b\'{"value": 1, "partition": -1}\'',
        ),
        (
            '{"value": 1, "timestamp": 1e30}',
            'timestamp: must be milliseconds since 1970: b\'{"value": 1, "timestamp": 1e30}\'',
        ),
    ],
)
@FEW_AND_MANY
def test_json_that_is_no_record(
    cli: Cli, tmp_path: Path, before: int, line: str, reason: str
) -> None:
    cli.served.topic("t")
    good = [f'{{"value": "{number}"}}' for number in range(3 + before)]
    files = split(tmp_path, *good, line, '{"value": "after"}')
    done = cli.run("produce", "t", *files, "--json", "--keep-partitions")
    assert (done.code, done.err) == (1, f"aiokafka: {files[1]}:{before + 1}: {reason}\n")
    assert cli.served.values("t") == [b"%d" % number for number in range(3 + before)]


@FEW_AND_MANY
def test_a_partition_that_does_not_exist(cli: Cli, tmp_path: Path, before: int) -> None:
    cli.served.topic("t")
    good = ['{"value": "a", "partition": 0}'] * (3 + before)
    files = split(tmp_path, *good, '{"value": "b", "partition": 7}')
    done = cli.run("produce", "t", *files, "--json", "--keep-partitions")
    assert done.code == 2
    assert f"{files[1]}:{before + 1}: record not delivered: Unrecognized partition" in done.err


def test_records_after_a_partition_that_does_not_exist_are_not_sent(
    cli: Cli, tmp_path: Path
) -> None:
    cli.served.topic("t")
    good = ['{"value": "good"}'] * 150
    files = split(tmp_path, *good, '{"value": "x", "partition": 1}', *good)
    done = cli.run("produce", "t", *files, "--json", "--keep-partitions")
    assert done.code != 0
    assert f"{files[1]}:148: record not delivered: Unrecognized partition" in done.err
    assert cli.served.values("t") == [b"good"] * 150


@FEW_AND_MANY
def test_a_line_without_key_and_value(cli: Cli, tmp_path: Path, before: int) -> None:
    cli.served.topic("t")
    files = split(tmp_path, *["a"] * (3 + before), "", "b")
    done = cli.run("produce", "t", *files, "--null")
    reason = "a record needs a key or a value"
    assert (done.code, done.err) == (1, f"aiokafka: {files[1]}:{before + 1}: {reason}\n")
    assert cli.served.values("t") == [b"a"] * (3 + before)


@FEW_AND_MANY
def test_a_record_that_the_broker_refuses(cli: Cli, tmp_path: Path, before: int) -> None:
    """The broker refuses the whole batch because of one record, and names the record."""
    cli.served.topic("t", config={"cleanup.policy": "compact"})
    files = split(tmp_path, *["k:v"] * (3 + before), "no key", "k:v")
    done = cli.run("produce", "t", *files, "--key-delimiter", ":", "--linger", "100")
    reason = "t-0: Compacted topic cannot accept message without key in topic t"
    warning, error = done.err.splitlines()
    assert done.code == 1
    assert f"{files[1]}:{before + 1}: no key delimiter" in warning
    assert error.startswith(f"aiokafka: {files[1]}:{before + 1}: record not delivered: {reason}")


def test_a_line_that_does_not_end(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    with file.open("wb") as opened:
        opened.write(b"a\n")
        opened.truncate(65 * 1024 * 1024)
    done = cli.run("produce", "t", str(file))
    assert done.code == 1
    assert f"{file}:2: no delimiter b'\\n' in" in done.err


def test_a_record_of_stdin(cli: Cli) -> None:
    cli.served.topic("t")
    options = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = process("produce", "t", "--json", env=environment(cli.served), **options)
    _, err = child.communicate(b'{"value": 1}\n[]\n', timeout=60)
    assert (child.returncode, err) == (1, b"aiokafka: stdin:2: not a JSON object: b'[]'\n")


def test_a_record_that_is_no_line(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text('{"value": 1};[]')
    done = cli.run("produce", "t", str(file), "--json", "--delimiter", ";")
    assert done.err == f"aiokafka: {file}, record 2: not a JSON object: b'[]'\n"
    file.write_text("x" * 2_000_000)
    done = cli.run("produce", "t", str(file), "--whole")
    assert done.err.startswith(f"aiokafka: {file}: record not delivered: ")
    assert cli.served.cluster.count(ProduceRequest) == 1


def test_files_without_records_have_no_lines() -> None:
    origins = Origins()
    for name, count in (("empty", 0), ("a", 2), ("none", 0), ("also none", 0), ("-", 1)):
        origins.begin(name)
        origins.add(count)
    assert [origins.of(number) for number in range(1, 5)] == ["a:1", "a:2", "stdin:1", "stdin:2"]
