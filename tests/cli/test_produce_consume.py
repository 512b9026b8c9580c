"""Records through the command line, to and from a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka.errors import TopicAuthorizationFailedError, UnknownMemberIdError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.group_members import HeartbeatRequest, LeaveGroupRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import EndTxnRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail
from tests.cli.support import Cli, environment, process
from tests.kafka.fixtures import Scale

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of Unix")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def lines(tmp_path: Path) -> str:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}\n" for number in range(10)))
    return str(file)


def printed(cli: Cli, *arguments: str) -> list[str]:
    return cli("consume", *arguments, "--exit-at-end").out.splitlines()


@pytest.mark.parametrize("served", ["0.9"], indirect=True)
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (("--json",), '{"topic": "t", "partition": 0, "offset": 0, "timestamp": -1, '),
        (("--pretty",), '"time": null'),
        (("--format", "%T %I"), "-1 -"),
    ],
)
def test_records_of_the_oldest_brokers_have_no_time(
    cli: Cli, form: tuple[str, ...], expected: str, lines: str
) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines, "-X", "enable_idempotence=false")
    assert expected in cli("consume", "t", *form, "--exit-at-end").out


def test_lines_of_files_come_out_again(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines, lines)
    assert printed(cli, "t") == [str(number) for number in range(10)] * 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--from", "-3"), "789"),
        (("--from", "2", "--to", "5"), "234"),
        (("--from", "8", "--to", "100"), "89"),
        (("--count", "2"), "01"),
        (("--from", "latest"), ""),
        (("--to", "earliest"), ""),
        (("--from", "-1h"), "0123456789"),
        (("--to", "-1h"), ""),
        (("--from", "@9999999999999"), ""),
    ],
    ids=str,
)
def test_ranges(cli: Cli, lines: str, arguments: tuple[str, ...], expected: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines)
    assert "".join(printed(cli, "t", *arguments)) == expected


def test_keys_headers_and_partitions(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t", 3)
    file = tmp_path / "pairs"
    file.write_text("a=1;b=;c")
    options = ("-D", ";", "-K", "=", "-H", "h=x", "-p", "2", "-Z", "-z", "gzip")
    cli("produce", "t", str(file), *options)
    text = "%p %k %s %h\\n"
    assert printed(cli, "t", "-f", text, "-Z", "NULL", "-p", "1-2") == [
        "2 a 1 h=x",
        "2 b NULL h=x",
        "2 NULL c h=x",
    ]
    assert printed(cli, "t", "-p", "0,1") == []
    assert printed(cli, "t", "-K", ":") == ["a:1", "b:", ":c"]


def test_json_lines_copy_a_topic(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t", 3)
    cli.served.topic("copy", 3)
    file = tmp_path / "in"
    file.write_bytes(b"".join(b"key%d:value %d\xff\n" % (i, i) for i in range(50)))
    cli("produce", "t", str(file), "-K", ":", "-H", "h=1")
    first = printed(cli, "t", "--json")
    file.write_text("\n".join(first))
    cli("produce", "copy", str(file), "--json", "--keep-partitions")
    second = printed(cli, "copy", "--json")
    assert sorted(line.replace('"copy"', '"t"') for line in second) == sorted(first)


def test_json_lines_may_get_new_timestamps(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text('{"value": "x", "timestamp": 1000}\n')
    cli("produce", "t", str(file), "--json")
    cli("produce", "t", str(file), "--json", "--new-timestamps")
    kept, new = (int(line) for line in printed(cli, "t", "-f", "%T\\n"))
    assert kept == 1000 < new
    done = cli.run("produce", "t", str(file), "--new-timestamps")
    assert done.code == 2 and "need --json" in done.err


def test_the_cr_of_a_line_is_no_part_of_the_value(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_bytes(b"one\r\ntwo\r\n")
    cli("produce", "t", str(file))
    cli("produce", "t", str(file), "-D", "\\n")
    assert cli.served.values("t") == [b"one", b"two", b"one\r", b"two\r"]


def test_a_file_may_be_one_record(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines, lines, "--whole")
    assert cli.served.values("t") == [Path(lines).read_bytes()] * 2


def test_memory_for_a_file_that_is_one_record_has_a_bound(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    with file.open("wb") as opened:
        opened.truncate(65 * 1024 * 1024)
    done = cli.run("produce", "t", str(file), "--whole")
    assert done.code == 1
    assert f"{file}: is longer than" in done.err and done.err.count("\n") == 1
    assert cli.served.cluster.count(ProduceRequest) == 0


def test_transactions_of_so_many_records(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines, "--transactional-id", "x", "--transaction-size", "4")
    assert printed(cli, "t", "--read-committed") == [str(number) for number in range(10)]
    commits = [
        seen for seen in cli.served.cluster.requests(EndTxnRequest) if seen.request.committed
    ]
    assert len(commits) == 3


def test_a_transaction_that_fails_is_aborted(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text('{"value": "a"}\n{"value": "b"}\nno json\n')
    done = cli.run("produce", "t", str(file), "--json", "--transactional-id", "x")
    assert done.code == 1 and "not JSON" in done.err and done.err.count("\n") == 1
    assert printed(cli, "t", "--read-committed") == []


def test_many_lines_go_where_single_records_go(cli: Cli, tmp_path: Path) -> None:
    """Lines of long files are sent as batches, those of short files one by one."""
    for topic in ("lines", "json", "single"):
        cli.served.topic(topic, 3)
    pairs = [(f"k{number % 70}", f"v{number}") for number in range(3000)]
    lines = [f"{key}:{value}\n" for key, value in pairs]
    file = tmp_path / "in"
    file.write_text("".join(lines))
    cli("produce", "lines", str(file), "-K", ":", "-X", "max_batch_size=2000")
    short = [tmp_path / f"{start}" for start in range(0, len(lines), 50)]
    for start, each in enumerate(short):
        each.write_text("".join(lines[start * 50 : start * 50 + 50]))
    cli("produce", "single", *map(str, short), "-K", ":")
    file.write_text("".join(json.dumps({"key": k, "value": v}) + "\n" for k, v in pairs))
    cli("produce", "json", str(file), "--json", "-X", "max_batch_size=2000")
    for partition in range(3):
        found = cli.served.values("lines", partition)
        assert found == cli.served.values("json", partition) != []
        assert found == cli.served.values("single", partition)


@pytest.mark.parametrize("count", [1, 100])
def test_json_lines_may_differ_in_every_field(cli: Cli, tmp_path: Path, count: int) -> None:
    """Also if there are so many that they are sent as batches."""
    cli.served.topic("t", 3)
    file = tmp_path / "in"
    records: list[dict[str, Any]] = [
        {"key": "k", "value": "a", "partition": 2, "timestamp": 1000},
        {"value": "b", "partition": 2, "headers": {"h": "1", "i": None}},
        {"key": "k", "value": None, "partition": 1},
        {"value_base64": "/w==", "partition": 2, "timestamp": 2000.7},
        {"key": "", "value": "", "partition": 1, "headers": [["h", {"base64": "/w=="}]]},
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in records) * count)
    cli("produce", "t", str(file), "--json", "--keep-partitions")
    found = cli("consume", "t", "-e", "--json", "-p", "1,2").rows
    two = [each for each in found if each["partition"] == 2]
    assert [each.get("value") for each in two] == ["a", "b", None] * count
    assert [each["timestamp"] for each in two[::3]] == [1000] * count
    assert [each["timestamp"] for each in two[2::3]] == [2000] * count
    assert two[1]["headers"] == [["h", "1"], ["i", None]] and two[1]["timestamp"] > 2000
    one = [(each["key"], each["value"]) for each in found if each["partition"] == 1]
    assert one == [("k", None), ("", "")] * count


@pytest.mark.parametrize("count", [3, 300])
def test_parts_of_lines_may_be_empty_or_missing(cli: Cli, tmp_path: Path, count: int) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text("k:v\n:v\nk:\n:\nv\n" * count)
    cli("produce", "t", str(file), "-K", ":", "-k", "other", "-H", "a=1", "-H", "b", "-p", "0")
    text = "%k(%K) %s(%S) %h\\n"
    expected = ["k(1) v(1)", "(0) v(1)", "k(1) (0)", "(0) (0)", "other(5) v(1)"]
    assert printed(cli, "t", "-f", text) == [f"{each} a=1,b=" for each in expected] * count
    cli.served.topic("u")
    file.write_text("k:v\n:v\nk:\nv\n" * count)
    cli("produce", "u", str(file), "-K", ":", "-Z")
    expected = ["k v", "NULL v", "k NULL", "NULL v"]
    assert printed(cli, "u", "-f", "%k %s\\n", "-Z", "NULL") == expected * count


def test_of_many_lines_the_one_that_is_too_large_is_named(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t", 3)
    file = tmp_path / "in"
    lines = [f"k{number}:v" for number in range(1, 301)]
    lines[199] += "x" * 2_000_000
    file.write_text("\n".join(lines))
    done = cli.run("produce", "t", str(file), "-K", ":")
    assert done.code == 1
    assert f"{file}:200: record not delivered" in done.err and done.err.count("\n") == 1


def test_what_is_not_delivered_is_named(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    cli.served.cluster.intercept(ProduceRequest, Fail(TopicAuthorizationFailedError))
    done = cli.run("produce", "t", lines)
    assert done.code == 4
    assert f"{lines}:1: record not delivered" in done.err and done.err.count("\n") == 1


def test_a_record_that_is_too_large_is_named(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text(f"a\nb\n{'x' * 2_000_000}\nc\n")
    done = cli.run("produce", "t", str(file))
    assert done.code == 1
    assert f"{file}:3: record not delivered" in done.err and done.err.count("\n") == 1
    assert printed(cli, "t") == ["a", "b"]


def test_many_lines_go_as_batches(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t", 3)
    cli.served.topic("u", 3)
    file = tmp_path / "in"
    wanted = [f"{number}" for number in range(5_000)]
    file.write_text("\n".join(wanted))
    cli("produce", "t", str(file), "-X", "max_batch_size=3000")
    assert sorted(printed(cli, "t"), key=int) == wanted
    for partition in range(3):
        values = [int(value or b"") for value in cli.served.values("t", partition)]
        assert values == sorted(values) and values, "each partition has its lines in order"
    cli("produce", "u", str(file), "--partition", "2", "--compression", "gzip")
    assert cli.served.values("u", 2) == [line.encode() for line in wanted]
    cli("produce", "u", str(file), "--partition", "1", "--transactional-id", "x")
    assert cli.served.values("u", 1)[:5_000] == [line.encode() for line in wanted]


@pytest.mark.parametrize(
    ("config", "more"),
    [
        ({"max.message.bytes": "10000"}, ()),
        ({}, ("-X", "max_request_size=20000")),
        ({}, ("-X", "buffer_memory=20000")),
    ],
)
def test_what_is_smaller_than_a_batch_takes_all_lines(
    cli: Cli, tmp_path: Path, config: dict[str, str], more: tuple[str, ...]
) -> None:
    cli.served.topic("t", config=config)
    file = tmp_path / "in"
    wanted = [f"{number} and more, so that all are too much" for number in range(5_000)]
    file.write_text("\n".join(wanted))
    cli("produce", "t", str(file), *more)
    assert cli.served.values("t") == [line.encode() for line in wanted]


def test_batches_and_single_records_keep_their_order(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    # A thousand go as batches, and fifty one by one.
    sizes = [1_000, 50, 1_000, 50]
    wanted = [f"{number}" for number in range(sum(sizes))]
    files, start = [], 0
    for size in sizes:
        file = tmp_path / f"in-{start}"
        file.write_text("\n".join(wanted[start : start + size]))
        files.append(str(file))
        start += size
    cli("produce", "t", *files, "--linger", "100")
    assert cli.served.values("t") == [line.encode() for line in wanted]


def test_the_line_of_a_batch_that_is_too_large_is_named(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text("a\n" * 250 + "x" * 2_000_000 + "\n" + "b\n" * 250)
    done = cli.run("produce", "t", str(file))
    assert done.code == 1
    assert f"{file}:251: record not delivered" in done.err and done.err.count("\n") == 1
    assert printed(cli, "t") == ["a"] * 250


def test_a_batch_that_fails_names_its_first_line(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text("a\n" * 3_000)
    small = ("-X", "max_batch_size=10000")
    refused = Fail(TopicAuthorizationFailedError)

    def second(request: object, context: object) -> Fail | None:
        return refused if cli.served.cluster.count(ProduceRequest) > 1 else None

    cli.served.cluster.intercept(ProduceRequest, second)
    done = cli.run("produce", "t", str(file), *small)
    assert done.code == 4 and done.err.count("\n") == 1
    number = int(re.findall(r"in:(\d+): record not delivered", done.err)[0])
    assert number == len(cli.served.values("t")) + 1 > 1


def test_progress_tells_the_sums_on_stderr(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    assert "produced 10 records" in cli("produce", "t", lines, "--progress").err
    done = cli("consume", "t", "-e", "--progress")
    assert "consumed 10 records" in done.err
    assert done.out.count("\n") == 10


def test_counts_and_rates(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines, "--count", "5", "--rate", "1000")
    assert printed(cli, "t", "--rate", "1000") == list("01234")


def test_a_group_goes_on_where_it_was(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines)
    assert printed(cli, "t", "--group", "g", "--count", "4") == list("0123")
    assert cli.served.cluster.groups.committed("g", "t", 0) == 4
    assert printed(cli, "t", "--group", "g") == list("456789")
    assert printed(cli, "t", "--group", "g") == []
    assert printed(cli, "t", "--group", "other", "--from", "latest") == []


def test_a_member_that_is_removed_goes_on_to_the_end(cli: Cli, tmp_path: Path) -> None:
    """For a moment it has no partitions, and of none everything has been read."""
    cli.served.topic("t")
    lines = [f"{number}" for number in range(600)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    cli("produce", "t", str(tmp_path / "lines.txt"))
    removed = cli.served.cluster.intercept(HeartbeatRequest, Fail(UnknownMemberIdError), times=1)
    options = ("--group", "g", "--rate", "1000", "-X", "heartbeat_interval_ms=50")
    assert set(printed(cli, "t", *options)) == set(lines)
    assert removed.hits == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("consume", "missing"), 5),
        (("consume", "t", "-p", "7"), 5),
        (("consume", "t", "-p", "x"), 2),
        (("consume", "t", "--from", "soon"), 2),
        (("consume", "t", "--from", "stored"), 2),
        (("consume", "t", "--to", "stored"), 2),
        (("consume", "t", "-g", "g", "--to", "stored"), 2),
        (("consume", "t", "-g", "g", "--from", "5"), 2),
        (("consume", "t", "-g", "g", "-p", "0"), 2),
        (("consume", "t", "-f", "%x"), 2),
        (("produce", "t", "no-such-file"), 1),
        (("produce", "t", "."), 1),
        (("produce", "t", "--json", "-k", "x"), 2),
        (("produce", "t", "-D", ""), 2),
    ],
    ids=str,
)
def test_mistakes_are_one_line(cli: Cli, arguments: tuple[str, ...], code: int) -> None:
    cli.served.topic("t")
    done = cli.run(*arguments)
    assert done.code == code, done.err
    assert done.err.startswith("aiokafka: ") and done.err.count("\n") == 1
    assert "missing" not in cli.served.cluster.state.topics, "reading creates no topic"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_lines_go_through_pipes_and_none_is_lost(cli: Cli, scale: Scale) -> None:
    count = scale(20_000, 1_000_000)
    cli.served.topic("t", 3)
    env = environment(cli.served)
    text = "".join(f"line {number}\n" for number in range(count)).encode()
    sender = process("produce", "t", stdin=subprocess.PIPE, env=env)
    sender.communicate(text)
    assert sender.returncode == 0
    reader = process("consume", "t", "--exit-at-end", stdout=subprocess.PIPE, env=env)
    out, _ = reader.communicate()
    assert reader.returncode == 0
    assert sorted(out.split(b"\n")) == sorted(text.split(b"\n"))


def test_ctrl_c_commits_what_was_printed_and_leaves(cli: Cli, lines: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines)
    child = process(
        "consume", "t", "--group", "g", stdout=subprocess.PIPE, env=environment(cli.served)
    )
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(10)][-1] == b"9\n"
    child.send_signal(signal.SIGINT)
    rest, _ = child.communicate(timeout=30)
    assert (child.returncode, rest) == (130, b"")
    assert cli.served.cluster.groups.committed("g", "t", 0) == 10
    assert cli.served.cluster.count(LeaveGroupRequest) == 1


def test_groups_describe_tells_each_command_from_programs_and_other_commands(cli: Cli) -> None:
    cli.served.topic("t", 2)
    env = environment(cli.served)
    readers = [process("consume", "t", "-g", "g", stdout=subprocess.PIPE, env=env) for _ in "ab"]
    rows: list[dict[str, Any]] = []

    def both_have_joined() -> bool:
        rows[:] = cli.run("groups", "describe", "g", "--output", "json").rows
        return len(rows) == 2

    try:
        until(both_have_joined)
    finally:
        for reader in readers:
            reader.send_signal(signal.SIGINT)
            reader.communicate(timeout=30)
    assert {row["client_id"] for row in rows} == {f"aiokafka-cli-{each.pid}" for each in readers}


@pytest.mark.parametrize("group", ["--group", "--share-group"])
def test_a_client_id_that_the_user_gives_gets_no_number(cli: Cli, lines: str, group: str) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines)
    cli("configs", "alter", "group:g", "share.auto.offset.reset=earliest")
    cli("consume", "t", group, "g", "--count", "1", "-X", "client_id=aiokafka-cli")
    requests = cli.served.cluster.requests()
    assert {each.context.client_id for each in requests} == {"aiokafka-cli"}


def test_a_reader_that_stops_gets_nothing_committed_that_it_did_not_take(
    cli: Cli, tmp_path: Path
) -> None:
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text("".join(f"{number:0>999}\n" for number in range(3000)))
    cli("produce", "t", str(file))
    child = process(
        *("consume", "t", "--group", "g"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cli.served),
    )
    assert child.stdout is not None and child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(30) == 0
    assert (cli.served.cluster.groups.committed("g", "t", 0) or 0) < 3000


def test_an_offset_beyond_the_end_is_the_end(cli: Cli, lines: str, tmp_path: Path) -> None:
    cli.served.topic("t")
    cli("produce", "t", lines)
    child = process(
        *("consume", "t", "--from", "1000", "--count", "1"),
        stdout=subprocess.PIPE,
        env=environment(cli.served),
    )
    cluster = cli.served.cluster
    cli.served.run(cluster.wait_for(lambda: cluster.count(FetchRequest)))
    (tmp_path / "new").write_text("new")
    cli("produce", "t", str(tmp_path / "new"))
    assert child.communicate(timeout=30)[0] == b"new\n"


def test_ctrl_c_delivers_what_was_read(cli: Cli) -> None:
    cli.served.topic("t")
    child = process("produce", "t", stdin=subprocess.PIPE, env=environment(cli.served))
    assert child.stdin is not None
    child.stdin.write(b"one\ntwo\nthr")
    child.stdin.flush()
    until(lambda: cli.served.values("t") == [b"one", b"two"])
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    child.stdin.close()
    assert cli.served.values("t") == [b"one", b"two"]


def test_ctrl_c_ends_the_wait_for_the_writer_of_a_named_pipe(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("t")
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    os.mkfifo(first)
    os.mkfifo(second)
    child = process("produce", "t", first, second, env=environment(cli.served))
    with open(first, "wb") as writer:
        writer.write(b"one\n")
        writer.flush()
        until(lambda: cli.served.values("t") == [b"one"])
    child.send_signal(signal.SIGINT)
    try:
        assert child.wait(10) == 130
    finally:
        child.kill()
    assert cli.served.values("t") == [b"one"]


def test_ctrl_c_aborts_the_transaction(cli: Cli) -> None:
    cli.served.topic("t")
    child = process(
        *("produce", "t", "--transactional-id", "x"),
        stdin=subprocess.PIPE,
        env=environment(cli.served),
    )
    assert child.stdin is not None
    child.stdin.write(b"one\n")
    child.stdin.flush()
    until(lambda: cli.served.values("t") == [b"one"])
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    child.stdin.close()
    assert printed(cli, "t", "--read-committed") == []


def test_a_reader_that_is_slow_keeps_its_place_in_the_group(cli: Cli, tmp_path: Path) -> None:
    """The pipe is full, and heartbeats go on: writing does not hold up the event loop."""
    cli.served.topic("t")
    file = tmp_path / "in"
    file.write_text("".join(f"{number:0>999}\n" for number in range(1000)))
    cli("produce", "t", str(file))
    reader, writer = os.pipe()
    options = ("-X", "heartbeat_interval_ms=50", "-X", "session_timeout_ms=6000")
    child = process(
        "consume", "t", "-g", "g", "-e", *options, stdout=writer, env=environment(cli.served)
    )
    os.close(writer)
    try:
        cluster = cli.served.cluster
        until(lambda: cluster.count(HeartbeatRequest) > 10)
        assert child.poll() is None
        with open(reader, "rb") as pipe:
            assert len(pipe.readlines()) == 1000
        assert child.wait(30) == 0
        assert cluster.groups.committed("g", *TopicPartition("t", 0)) == 1000
    finally:
        child.kill()
        child.wait()
