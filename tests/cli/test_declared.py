"""Topics that a file declares, and brokers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokafka.cli.topics import Declared, Step, plan_changes, read_declared
from aiokafka.errors import KafkaConfigurationError, TopicAuthorizationFailedError
from aiokafka.protocol.messages.configs import DescribeConfigsRequest
from aiokafka.testing import Fail
from tests.cli.support import Cli

FILE = """
topics:
  orders:
    partitions: 4
    config:
      retention.ms: 1000
      preallocate: true
  old: {state: absent}
  new:
"""


def test_a_file_is_applied_once(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("orders", 2, config={"retention.ms": "1000"})
    for name in ("old", "other"):
        cli.served.topic(name)
    file = tmp_path / "topics.yaml"
    file.write_text(FILE)
    rows = cli.rows("topics", "apply", str(file), "--dry-run")
    assert [(row["action"], row["topic"]) for row in rows] == [
        ("grow", "orders"),
        ("set", "orders"),
        ("delete", "old"),
        ("create", "new"),
    ]
    assert len(cli.rows("topics", "describe", "orders")) == 2
    cli("topics", "apply", str(file), "--yes")
    assert [row["name"] for row in cli.rows("topics", "list")] == ["new", "orders", "other"]
    assert len(cli.rows("topics", "describe", "orders")) == 4
    assert cli.served.cluster.state.topics["orders"].config["preallocate"] == "true"
    assert cli.rows("topics", "apply", str(file), "--yes") == []
    assert cli.pipe(f"cat {file} | aiokafka topics apply - --yes -o json") == ""


def test_plans() -> None:
    there = {"a": (2, 3)}
    assert plan_changes({"a": Declared(2, 3)}, there, {}) == []
    assert plan_changes({"b": Declared(is_absent=True)}, there, {}) == []
    wanted = {"a": Declared(config={"x": "1", "y": "2"})}
    assert plan_changes(wanted, there, {"a": {"x": "1", "y": "3"}}) == [
        Step("set", "a", {"y": "2"})
    ]
    with pytest.raises(KafkaConfigurationError, match="cannot become 1"):
        plan_changes({"a": Declared(1)}, there, {})
    with pytest.raises(KafkaConfigurationError, match="reassignment"):
        plan_changes({"a": Declared(replication_factor=1)}, there, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "must have the key `topics`"),
        ("topics: {}\nother: 1", "must have the key `topics`"),
        ("topics: {a: {partition: 1}}", "topic a: may have"),
        ("topics: {a: {partitions: 0}}", "at least 1"),
        ("topics: {a: {partitions: true}}", "at least 1"),
        ("topics: {a: {state: gone}}", "present or absent"),
        ("topics: [", "f.yaml"),
        ("topics: {a: {config: {x: }}}", "topic a: x: must be text"),
        ("topics: {a: {config: {x: {y: 1}}}}", "topic a: x: must be text"),
        ("topics: {a: {config: {x: [[1]]}}}", "topic a: x: must be text"),
        ("topics: {on: {}}", "'on' is not text in YAML: put it in quotes"),
        ("topics: {0123: {}}", "'0123' is not text in YAML"),
        ("topics: {~: {}}", "'~' is not text in YAML"),
        ("topics: {[a]: {}}", "not text in YAML"),
        ("topics: {a: {config: {on: 1}}}", "'on' is not text in YAML"),
        ("topics:\n  a: {partitions: 3}\n  a: {partitions: 5}", "'a' is given twice"),
        ("topics: {a: {partitions: 3, partitions: 5}}", "'partitions' is given twice"),
    ],
)
def test_a_file_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=re.escape(message)):
        read_declared(text, "f.yaml")


def test_names_in_quotes_and_merged_tables() -> None:
    text = 'topics: {"on": &few {partitions: 3}, "0123": {<<: *few, partitions: 5}}'
    found = read_declared(text, "f.yaml")
    assert {name: each.partitions for name, each in found.items()} == {"on": 3, "0123": 5}


def test_a_number_that_is_its_own_text_is_a_name() -> None:
    assert set(read_declared("topics: {2024: {}, a: {}}", "f.yaml")) == {"2024", "a"}


def test_tables_may_be_merged_more_than_once() -> None:
    text = "c: {<<: &b {<<: &a {partitions: 3}, partitions: 5}, replication_factor: 1}"
    found = read_declared("topics: {" + text + ", d: *b, e: *a}", "f.yaml")
    assert {name: each.partitions for name, each in found.items()} == {"c": 5, "d": 5, "e": 3}


def test_settings_are_written_as_kafka_does() -> None:
    text = "topics: {a: {config: {x: [compact, delete], y: 1.5, z: false, s: yes please}}}"
    config = read_declared(text, "f.yaml")["a"].config
    assert config == {"x": "compact,delete", "y": "1.5", "z": "false", "s": "yes please"}


def test_brokers_and_features(cli: Cli) -> None:
    rows = cli.rows("brokers", "list")
    assert [f"{row['host']}:{row['port']}" for row in rows] == [
        cli.served.cluster.address(0),
        cli.served.cluster.address(1),
    ]
    assert sum(row["controller"] for row in rows) == 1
    (row,) = [row for row in cli.rows("brokers", "features") if row["feature"] == "group.version"]
    assert (row["level"], row["lowest"], row["highest"]) == (1, 0, 1)


def test_settings_are_read_of_topics_alone_that_are_to_have_some(cli: Cli, tmp_path: Path) -> None:
    """Another right is needed for that."""
    cli.served.topic("orders", 2)
    cli.served.topic("old")
    file = tmp_path / "topics.yaml"
    file.write_text("topics: {orders: {partitions: 4}, old: {state: absent}}")
    cli.served.cluster.intercept(DescribeConfigsRequest, Fail(TopicAuthorizationFailedError))
    cli("topics", "apply", str(file), "--yes")
    assert set(cli.served.cluster.state.topics) == {"orders"}
    assert len(cli.served.cluster.state.topics["orders"].partitions) == 4
