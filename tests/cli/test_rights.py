"""Rights, users and quotas from the command line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from aiokafka.cli.security import limits_of
from tests.cli.support import Cli


def test_acls_are_added_listed_and_deleted(cli: Cli) -> None:
    cli("acls", "add", "topic:orders", "User:alice", "read", "describe")
    cli("acls", "add", "topic:or", "User:bob", "write", "--deny", "--prefixed")
    rows = cli.rows("acls", "list", "topic")
    assert {(row["principal"], row["operation"], row["permission"]) for row in rows} == {
        ("User:alice", "READ", "ALLOW"),
        ("User:alice", "DESCRIBE", "ALLOW"),
        ("User:bob", "WRITE", "DENY"),
    }
    assert len(cli.rows("acls", "list", "--principal", "User:bob")) == 1
    gone = cli.rows("acls", "delete", "topic:orders", "--operation", "read", "--yes")
    assert [row["operation"] for row in gone] == ["READ"]
    assert len(cli.rows("acls", "list")) == 2


def test_what_was_added_with_prefixed_is_deleted_with_it(cli: Cli) -> None:
    cli("acls", "add", "topic:orders", "User:alice", "read")
    cli("acls", "add", "topic:orders", "User:bob", "read", "--prefixed")
    gone = cli.rows("acls", "delete", "topic:orders", "--yes")
    assert [row["principal"] for row in gone] == ["User:alice"]
    gone = cli.rows("acls", "delete", "topic:orders", "--prefixed", "--yes")
    assert [row["principal"] for row in gone] == ["User:bob"]


def test_no_name_is_not_all_names(cli: Cli) -> None:
    cli("acls", "add", "topic:orders", "User:alice", "read")
    done = cli.run("acls", "delete", "topic:", "--yes")  # topic:$NAME, without a NAME
    assert done.code == 2
    assert "has no name after the colon" in done.err
    assert len(cli.rows("acls", "list")) == 1
    assert len(cli.rows("acls", "delete", "topic", "--yes")) == 1


def test_users_get_passwords_and_lose_them(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    cli("users", "set", "alice", "--new-password-file", str(file))
    (row,) = cli.rows("users", "list")
    assert (row["user"], row["mechanism"]) == ("alice", "SCRAM_SHA_512")
    assert cli.run("users", "list", "bob").code == 5
    cli("users", "delete", "alice", "--yes")
    assert cli.rows("users", "list") == []


def test_quotas_are_set_and_removed(cli: Cli) -> None:
    cli("quotas", "alter", "--user", "alice", "producer_byte_rate=1000", "request_percentage=50")
    cli("quotas", "alter", "--client-id", "<default>", "consumer_byte_rate=5", "--dry-run")
    assert [(row["entity"], row["quota"], row["limit"]) for row in cli.rows("quotas", "list")] == [
        ("user=alice", "producer_byte_rate", 1000.0),
        ("user=alice", "request_percentage", 50.0),
    ]
    cli("quotas", "alter", "--user", "alice", "producer_byte_rate")
    assert [row["quota"] for row in cli.rows("quotas", "list")] == ["request_percentage"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("acls", "list", "thing:x"),
        ("acls", "add", "topic:x", "alice", "read"),
        ("acls", "add", "topic:x", "User:alice", "any"),
        ("quotas", "alter", "producer_byte_rate=1"),
        ("quotas", "alter", "--ip", "x", "--user", "y", "producer_byte_rate=1"),
    ],
    ids=" ".join,
)
def test_mistakes_are_code_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli.run(*arguments)
    assert done.code == 2, done.err
    assert done.err.startswith("aiokafka: ") and done.err.count("\n") == 1


def test_limits() -> None:
    assert limits_of(["a=1.5", "b"]) == {"a": 1.5, "b": None}
    with pytest.raises(click.BadParameter):
        limits_of(["a=x"])
