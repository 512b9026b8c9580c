"""What people look for in records, lag and help: filters, times, totals, and short pages."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.support import Cli, environment, process


def fill(cli: Cli) -> None:
    cli.served.topic("orders", 1)
    log = cli.served.cluster.log("orders", 0)
    log.append(b'{"n": 1}', key=b"ada", timestamp_ms=1_700_000_000_000)
    log.append(b'{"n": 2}', key=b"grace", timestamp_ms=1_700_000_001_500)
    log.append(b"no json", key=b"ada", timestamp_ms=1_700_000_002_000)


def test_filters(cli: Cli) -> None:
    fill(cli)
    read = ("consume", "orders", "-e")
    assert cli(*read, "--grep", r'"n": \d').out == '{"n": 1}\n{"n": 2}\n'
    assert cli(*read, "--key", "ada").out == '{"n": 1}\nno json\n'
    assert cli(*read, "--key", "ada", "--grep", "^no").out == "no json\n"
    assert cli("consume", "orders", "--key", "ada", "--count", "1").out == '{"n": 1}\n'
    done = cli.run(*read, "--grep", "(")
    assert done.code == 2 and "regular expression" in done.err


def test_a_filter_commits_what_it_has_skipped(cli: Cli) -> None:
    fill(cli)
    cli("consume", "orders", "-g", "g", "--from", "earliest", "-e", "--grep", "nothing")
    assert [row["offset"] for row in cli.rows("groups", "offsets", "g")] == [3]
    cli("consume", "orders", "-g", "h", "--from", "earliest", "--key", "grace", "-c", "1")
    assert [row["offset"] for row in cli.rows("groups", "offsets", "h")] == [2]


def test_pretty_json_and_iso_times(cli: Cli) -> None:
    fill(cli)
    out = cli("consume", "orders", "-e", "--pretty", "--count", "1").out
    assert json.loads(out) == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "time": "2023-11-14T22:13:20.000Z",
        "key": "ada",
        "value": {"n": 1},
    }
    assert out.count("\n") > 5
    times = cli("consume", "orders", "-e", "--format", r"%I %k\n").out
    assert times.splitlines()[1] == "2023-11-14T22:13:21.500Z grace"


def test_lag_has_a_total_and_partitions_without_a_commit(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    for partition, count in ((0, 3), (1, 2)):
        for _ in range(count):
            cli.served.cluster.log("orders", partition).append(b"x")
    cli("groups", "set-offsets", "billing", "orders-1=1", "--yes")
    rows = cli.rows("groups", "lag", "billing")
    assert [(row["partition"], row["committed"], row["lag"]) for row in rows] == [
        (0, None, 3),
        (1, 1, 1),
    ]
    last = cli("groups", "lag", "billing").out.splitlines()[-1].split()
    assert last[:2] == ["billing", "TOTAL"] and "4" in last


def test_reset_leaves_out_partitions_without_an_offset(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    for _ in range(5):
        cli.served.cluster.log("orders", 1).append(b"x")
    cli("groups", "set-offsets", "billing", "orders-1=1", "--yes")
    done = cli("groups", "reset", "billing", "--shift", "2", "--topic", "orders", "-o", "json")
    assert [(row["partition"], row["new"]) for row in done.rows] == [(1, 3)]
    assert "orders-0 is left out: group billing has no offset for it" in done.err
    reset = ("groups", "reset", "billing", "--to", "latest")
    rows = cli.rows(*reset, "--topic", "orders", "--partitions", "1")
    assert [(row["partition"], row["new"]) for row in rows] == [(1, 5)]
    assert "needs one --topic" in cli.run(*reset, "--partitions", "1").err


def test_a_line_without_key_delimiter_is_told_once(cli: Cli) -> None:
    cli.served.topic("users", 1)
    child = process(
        *("produce", "users", "-K", ":"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cli.served),
    )
    _, told = child.communicate(b"a:1\nb\nc\n", timeout=60)
    assert child.returncode == 0
    assert told.count(b"no key delimiter") == 1 and b"stdin:2: no key" in told
    assert cli.served.values("users") == [b"1", b"b", b"c"]


def test_cluster_health(cli: Cli) -> None:
    cli.served.topic("orders", 2, replication_factor=2)
    rows = {row["fact"]: row["value"] for row in cli.rows("cluster", "health")}
    assert rows["healthy"] and rows["partitions"] == 2 and rows["without a leader"] == []
    cli.served.run(cli.served.cluster.stop_broker(1))
    done = cli.run("cluster", "health", "-o", "json")
    rows = {row["fact"]: row["value"] for row in done.rows}
    assert done.code == 1
    assert not rows["healthy"] and rows["with replicas not in sync"] == ["orders-0", "orders-1"]


def test_help_separates_the_connection_and_cuts_no_summary(cli: Cli) -> None:
    page = cli("topics", "list", "--help").out
    own, _, connection = page.partition("\nConnection:\n")
    assert "--internal" in own and "--bootstrap-servers" in connection
    assert "--bootstrap-servers" not in own
    for noun in ("topics", "groups", "brokers", "configs", "transactions", "users"):
        listed = cli(noun, "--help").out.partition("Commands:")[2]
        assert not [line for line in listed.splitlines() if line.endswith(" ...")]
    assert cli("help", "topics", "list").out == page
    assert cli("version").out == cli("--version").out
    assert cli.run("help", "topics", "nothing").code == 2


def test_help_and_version_do_without_asyncio() -> None:
    code = (
        "import sys; from aiokafka.cli import main; main(['--version']); main(['--help']);"
        "print('asyncio' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "False"


def test_copy_of_a_topic(cli: Cli) -> None:
    fill(cli)
    for name in ("copy", "wide"):
        cli.served.topic(name, 2 if name == "wide" else 1)
    done = cli("topics", "copy", "orders", "copy")
    assert "copy: 3 records copied" in done.err
    copied = cli("consume", "copy", "-e", "--json").rows
    original = cli("consume", "orders", "-e", "--json").rows
    assert [{**row, "topic": "orders"} for row in copied] == original
    cli("topics", "copy", "orders", "wide", "--from", "-1", "--by-key")
    assert [row["value"] for row in cli("consume", "wide", "-e", "--json").rows] == ["no json"]
    servers = cli.served.cluster.bootstrap_servers
    cli("topics", "copy", "copy", "copy", "--to-servers", servers, "--from", "latest")
    assert "TARGET is SOURCE" in cli.run("topics", "copy", "orders", "orders").err
    assert "give --by-key" in cli.run("topics", "copy", "wide", "copy").err
    assert cli.run("topics", "copy", "nothing", "copy").code == 5
    assert cli.run("topics", "copy", "orders", "nothing").code == 5


def test_errors_are_sentences(cli: Cli) -> None:
    cli.served.topic("orders", 1)
    failed = {
        "topics create orders": "Topic 'orders' already exists",
        "groups describe nogroup": "group 'nogroup' does not exist",
        "consume nope": "no topic 'nope' (or this user may not see it)",
    }
    for command, text in failed.items():
        assert cli.run(*command.split()).err == f"aiokafka: {text}\n"


@pytest.mark.parametrize("noun", ["topics", "groups"])
def test_an_empty_list_says_that_topics_and_groups_may_be_hidden(cli: Cli, noun: str) -> None:
    done = cli(noun, "list")
    assert len(done.out.splitlines()) == 1
    assert done.err == f"no such {noun}, or none that this user may see\n"
    assert cli(noun, "list", "-o", "json").err == ""
