"""Settings and old records from the command line."""

from __future__ import annotations

from typing import Any

import click
import pytest

from aiokafka import TopicPartition
from aiokafka.admin import ConfigChange
from aiokafka.cli.configs import change_of, resource
from aiokafka.cli.topics import before
from tests.cli.support import Cli


def settings(cli: Cli, *arguments: str) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in cli.rows("configs", "describe", *arguments)}


def test_settings_are_changed_and_shown(cli: Cli) -> None:
    cli.served.topic("orders")
    assert settings(cli, "topic:orders") == {}
    cli("configs", "alter", "topic:orders", "retention.ms=1000", "cleanup.policy+=compact")
    assert settings(cli, "topic:orders") == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "1000",
    }
    cli("configs", "alter", "topic:orders", "retention.ms", "cleanup.policy-=delete")
    assert settings(cli, "topic:orders") == {"cleanup.policy": "compact"}
    assert len(settings(cli, "topic:orders", "--all")) > 3


def test_settings_are_replaced(cli: Cli) -> None:
    cli.served.topic("orders", config={"retention.ms": 1, "segment.ms": 2})
    arguments = ("configs", "replace", "topic:orders", "retention.ms=3")
    cli(*arguments, "--dry-run")
    assert settings(cli, "topic:orders") == {"retention.ms": "1", "segment.ms": "2"}
    cli(*arguments, "--yes")
    assert settings(cli, "topic:orders") == {"retention.ms": "3"}
    cli("configs", "replace", "topic:orders", "--yes")
    assert settings(cli, "topic:orders") == {}
    assert cli.run("configs", "replace", "topic:orders", "retention.ms", "--yes").code == 2
    assert {"type": "topic", "name": "orders"} in cli.rows("configs", "list", "topic")
    assert cli.run("configs", "list", "nothing").code == 2


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    cli.served.topic("orders")
    cli("configs", "alter", "topic:orders", "retention.ms=1000", "--dry-run")
    assert settings(cli, "topic:orders") == {}
    assert cli.run("configs", "alter", "topic:orders", "retention.ms=x").code == 1
    assert cli.run("configs", "describe", "topic:nothing").code == 5


def test_texts_of_resources_and_changes() -> None:
    assert str(resource("topic:a:b")) == "topic a:b"
    assert str(resource("broker:")) == "every broker"
    assert str(resource("broker-logger:1")) == "broker_logger 1"
    assert change_of("a=b=c") == ("a", ConfigChange.set("b=c"))
    assert change_of("a=") == ("a", ConfigChange.set(""))
    for text in ("", "=x", "+=x"):
        with pytest.raises(click.BadParameter):
            change_of(text)
    with pytest.raises(click.BadParameter, match="types are"):
        resource("thing:a")


def test_old_records_are_deleted(cli: Cli, tmp_path: Any) -> None:
    cli.served.topic("orders", 1)
    file = tmp_path / "in"
    file.write_text("a\nb\nc\n")
    cli("produce", "orders", str(file))
    (row,) = cli.rows("records", "delete", "orders-0:2", "--yes")
    assert row == {"topic": "orders", "partition": 0, "first_offset": 2}
    assert cli("consume", "orders", "-e").out == "c\n"
    cli("records", "delete", "orders-0:end", "--yes")
    assert cli("consume", "orders", "-e").out == ""
    assert cli.run("records", "delete", "orders-0:9", "--yes").code == 1


def test_texts_of_places() -> None:
    assert before("a-b-3:7") == (TopicPartition("a-b", 3), 7)
    assert before("a-0:end") == (TopicPartition("a", 0), -1)
    for text in ("a:1", "a-x:1", "a-1:x", "a-1"):
        with pytest.raises(click.BadParameter):
            before(text)
