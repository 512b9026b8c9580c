"""Topics from the command line."""

from __future__ import annotations

import csv
from typing import Any

from tests.cli.support import Cli


def test_topics_are_created_listed_described_and_deleted(cli: Cli) -> None:
    cli("topics", "create", "orders", "payments", "-p", "3", "-r", "2")
    listed = cli.rows("topics", "list")
    assert [(row["name"], row["partitions"], row["replication_factor"]) for row in listed] == [
        ("orders", 3, 2),
        ("payments", 3, 2),
    ]
    described = cli.rows("topics", "describe", "orders")
    assert [row["partition"] for row in described] == [0, 1, 2]
    assert all(sorted(row["isr"]) == [0, 1] for row in described)
    cli("topics", "delete", "orders", "--yes")
    assert [row["name"] for row in cli.rows("topics", "list")] == ["payments"]


def test_a_table_has_a_head_and_a_line_for_each_topic(cli: Cli) -> None:
    cli.served.topic("orders", 12)
    cli.served.topic("a-topic-with-a-long-name", 3)
    lines = cli("topics", "list").out.splitlines()
    assert lines[0].split()[:2] == ["NAME", "PARTITIONS"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["a-topic-with-a-long-name", "3"],
        ["orders", "12"],
    ]
    assert lines[1].index("3") == lines[2].index("12") + 1, "numbers stand to the right"
    assert "\x1b" not in lines[0], "colour belongs to a terminal"


def test_csv_has_the_columns_of_the_table(cli: Cli) -> None:
    cli.served.topic("orders", 2, replication_factor=2)
    rows = list(csv.DictReader(cli("topics", "describe", "orders", "-o", "csv").out.splitlines()))
    assert [row["partition"] for row in rows] == ["0", "1"]
    assert {row["isr"] for row in rows} <= {"0,1", "1,0"}


def test_a_pattern_chooses_topics(cli: Cli) -> None:
    for name in ("orders", "order-lines", "payments"):
        cli.served.topic(name)
    found = [row["name"] for row in cli.rows("topics", "list", "order*")]
    assert found == ["order-lines", "orders"]


def test_offsets_are_looked_up(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    log = cli.served.cluster.log("orders", 1)
    for moment in (1_000, 2_000):
        log.extend([(None, b"value", ())] * 2, timestamp_ms=moment)

    def offsets(*arguments: str) -> list[Any]:
        return [row["offset"] for row in cli.rows("topics", "offsets", "orders", *arguments)]

    assert offsets() == offsets("--committed") == [0, 4]
    assert offsets("--at", "earliest") == [0, 0]
    assert offsets("--at", "@1500") == [None, 2]
    assert offsets("--at", "max-timestamp")[1] in (2, 3)
    assert cli.run("topics", "offsets", "nothing").code == 5
    for wrong in ("42", "-10", "stored", "nothing", ""):
        done = cli.run("topics", "offsets", "orders", "--at", wrong)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err


def test_replicas_move(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    cli("topics", "reassign", "orders-0=1,0", "orders-1=0")
    assert cli.rows("topics", "reassignments", "orders-1") == []
    replicas = [row["replicas"] for row in cli.rows("topics", "describe", "orders")]
    assert replicas == [[1, 0], [0]]
    cli("topics", "elect-leaders", "orders-0")
    assert cli.rows("topics", "describe", "orders")[0]["leader"] == 1
    assert "right leader already" in cli("topics", "elect-leaders", "orders-0").err
    cli("topics", "elect-leaders", "--unclean", "--yes")
    assert cli.run("topics", "cancel-reassignments", "orders-0", "--yes").code == 1
    assert cli.run("topics", "reassign", "orders-1=0,1", "--same-factor").code == 1
    for wrong in ("orders", "orders-0", "orders-0=", "orders=1", "orders-0=1,x", "orders-0=1,1"):
        assert cli.run("topics", "reassign", wrong).code == 2, wrong


def test_what_failed_is_named_and_the_rest_is_done(cli: Cli) -> None:
    cli.served.topic("orders")
    done = cli.run("topics", "create", "orders", "payments")
    assert done.code == 1
    assert "payments: created" in done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("aiokafka:")]
    assert "'orders' already exists" in line
    cli("topics", "create", "orders", "--if-not-exists")
    assert cli.run("topics", "delete", "nothing", "--yes").code == 5


def test_a_dry_run_creates_nothing(cli: Cli) -> None:
    assert "could be created" in cli("topics", "create", "orders", "--dry-run").err
    assert cli.rows("topics", "list") == []


def test_settings_are_the_topics(cli: Cli) -> None:
    cli("topics", "create", "orders", "-c", "retention.ms=1000")
    assert cli.served.cluster.state.topics["orders"].config["retention.ms"] == "1000"
    assert cli.run("topics", "create", "other", "-c", "retention.ms").code == 2


def test_a_topic_grows(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    cli("topics", "grow", "orders", "5", "--dry-run")
    assert len(cli.rows("topics", "describe", "orders")) == 2
    cli("topics", "grow", "orders", "5")
    assert len(cli.rows("topics", "describe", "orders")) == 5
    assert cli.run("topics", "grow", "orders", "3").code == 1


def test_an_unknown_topic_is_code_5(cli: Cli) -> None:
    cli.served.topic("orders")
    done = cli.run("topics", "describe", "orders", "nothing")
    assert done.code == 5
    assert "orders" in done.out
    assert done.err.count("\n") == 1 and "nothing" in done.err
