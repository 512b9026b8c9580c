"""Commands about several items of which some fail: the others are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokafka.cli.failures import CODES
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.fetch import ListOffsetsRequest
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchResponse
from aiokafka.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from aiokafka.protocol.messages.log_dirs import DescribeLogDirsRequest
from aiokafka.testing import Edit, Fail, Silence
from tests.cli.support import Cli

LATE, REFUSED, MISSING = 3, 4, 5

PRINTED = {
    "groups describe billing nope": "billing",
    "groups lag billing nope": "orders",
    "topics offsets orders nope": "orders",
    "records delete orders-0:end orders-7:end --yes": "orders",
    "configs describe topic:orders topic:nope --all": "topic orders",
    "transactions producers orders-0 orders-7": "PRODUCER ID",
    "brokers log-dirs 0 77": "/fake/logs-0",
    "users list alice nope": "alice",
}
DONE = {
    "topics delete orders nope --yes": "orders: deleted",
    "groups delete billing nope --yes": "deleted: billing",
    "groups set-offsets billing orders-0=1 orders-7=1 --yes": "orders-0: 1",
    "groups delete-offsets billing orders-0 orders-7 --yes": "orders-0: forgotten",
    "topics reassign orders-0=0 orders-7=0": "orders-0: moves",
    "topics elect-leaders orders-0 orders-7": "orders-0: has the right leader already",
}


@pytest.fixture(autouse=True)
def there(cli: Cli, tmp_path: Path) -> None:
    cli.served.topic("orders", 2)
    cli("groups", "set-offsets", "billing", "orders-0=0", "--yes")
    (tmp_path / "password").write_text("secret")
    cli("users", "set", "alice", "--new-password-file", str(tmp_path / "password"))


@pytest.mark.parametrize("command", PRINTED)
def test_what_was_found_is_printed(cli: Cli, command: str) -> None:
    done = cli.run(*command.split())
    assert done.code == MISSING, CODES
    assert PRINTED[command] in done.out
    assert len(done.err.splitlines()) == 1
    assert re.search("nope|orders-7|broker 77", done.err)


@pytest.mark.parametrize("command", ["groups offsets billing", "groups lag billing"])
def test_partitions_of_a_single_group_are_no_groups(cli: Cli, command: str) -> None:
    cli("groups", "set-offsets", "billing", "orders-1=0", "--yes")

    def refuse(response: OffsetFetchResponse) -> None:
        for partition in response.groups[0].topics[0].partitions:
            partition.error_code = TopicAuthorizationFailedError.errno * partition.partition_index

    async def edit() -> None:
        cli.served.cluster.intercept(OffsetFetchRequest, Edit(refuse))

    cli.served.run(edit())
    done = cli.run(*command.split())
    assert (done.code, done.out) == (REFUSED, "")
    assert "orders-1" in done.err


@pytest.mark.parametrize("command", DONE)
def test_what_was_done_is_said(cli: Cli, command: str) -> None:
    done = cli.run(*command.split())
    assert done.code == MISSING
    said, failed = done.err.splitlines()
    assert said == DONE[command]
    assert re.search("nope|orders-7", failed)


def test_every_broker_that_can_be_asked_is_shown(cli: Cli) -> None:
    refused = Fail(ClusterAuthorizationFailedError)
    cli.served.cluster.intercept(DescribeLogDirsRequest, refused, broker=1)
    done = cli.run("brokers", "log-dirs", "--output", "json")
    assert done.code == REFUSED
    assert {row["broker"] for row in done.rows} == {0}


def test_the_responses_of_brokers_are_shown_though_one_gives_none(cli: Cli) -> None:
    cli.served.cluster.intercept(ListGroupsRequest, Silence(), broker=1)
    done = cli.run("request", "ListGroups", "--to", "all", "-X", "request_timeout_ms=500")
    assert done.code == LATE
    assert [row["broker"] for row in done.rows] == [0]
    assert "node 1" in done.err


def test_groups_are_listed_though_one_broker_keeps_silent(cli: Cli) -> None:
    names = list("abcdefgh")
    for name in names:
        cli("groups", "set-offsets", name, "orders-0=0", "--yes")
    places = {row["group_id"]: row["coordinator"] for row in cli.rows("groups", "list")}
    cli.served.cluster.intercept(ListGroupsRequest, Silence(), broker=1)
    done = cli.run("groups", "list", "-X", "request_timeout_ms=500", "--output", "json")
    assert done.code == LATE
    assert {row["group_id"] for row in done.rows} == {n for n, node in places.items() if node == 0}
    assert done.rows
    assert "node 1" in done.err and done.err.count("\n") == 1


def test_offsets_are_shown_though_a_group_without_any_cannot_be_looked_at(cli: Cli) -> None:
    cli.served.cluster.intercept(DescribeGroupsRequest, Fail(GroupAuthorizationFailedError))
    done = cli.run("groups", "offsets", "billing", "empty", "--output", "json")
    assert [(row["group"], row["offset"]) for row in done.rows] == [("billing", 0)]
    assert done.code == REFUSED
    assert "empty" in done.err and done.err.count("\n") == 1


def test_every_topic_without_offsets_is_named(cli: Cli) -> None:
    cli.served.topic("refused")
    cli.served.cluster.intercept(ListOffsetsRequest, Fail(TopicAuthorizationFailedError))
    done = cli.run("topics", "offsets", "refused", "nope")
    assert done.code == 1
    first, second = done.err.splitlines()
    assert "nope" in first and "refused-0" in second


def test_a_resource_that_failed_is_named_as_the_others_are(cli: Cli) -> None:
    done = cli.run("configs", "describe", "topic:orders", "topic:nope")
    assert done.err.startswith("aiokafka: topic nope: ")
