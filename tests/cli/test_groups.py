"""Groups from the command line."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import GroupDescription, GroupMember, GroupState, GroupType, StreamsTasks
from aiokafka.cli.groups import member_rows
from aiokafka.errors import ClusterAuthorizationFailedError
from aiokafka.protocol.messages.groups import DescribeGroupsRequest
from aiokafka.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from aiokafka.testing import Edit, Fail, Silence
from tests.cli.support import Cli, environment, process


@pytest.fixture
def billing(cli: Cli) -> None:
    """Make ten records, four of which the group billing has read."""
    cli.served.topic("orders")

    async def make() -> None:
        servers = cli.served.cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(10):
                await producer.send_and_wait("orders", b"%d" % number)

    asyncio.run(make())
    cli("consume", "orders", "--group", "billing", "--count", "4")


def keyed(rows: list[dict[str, Any]], name: str) -> dict[int, Any]:
    return {row["partition"]: row[name] for row in rows}


@pytest.mark.usefixtures("billing")
def test_groups_are_listed(cli: Cli) -> None:
    (row,) = cli.rows("groups", "list")
    assert (row["group_id"], row["state"], row["protocol_type"]) == ("billing", "EMPTY", "consumer")
    assert cli.rows("groups", "list", "--state", "stable") == []
    assert cli.rows("groups", "list", "other") == []
    assert cli.run("groups", "list", "--state", "nothing").code == 2


@pytest.mark.usefixtures("billing")
def test_lag_and_offsets(cli: Cli) -> None:
    rows = cli.rows("groups", "lag", "billing")
    assert keyed(rows, "lag") == {0: 6}
    assert keyed(rows, "end") == {0: 10}
    offsets = keyed(cli.rows("groups", "offsets", "billing"), "offset")
    assert offsets == {0: 4}
    assert offsets == keyed(rows, "committed")
    head, *lines = cli("groups", "lag", "billing").out.splitlines()
    assert head.split()[:6] == ["GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG"]
    assert len(lines) == 1


@pytest.mark.usefixtures("billing")
def test_single_offsets_are_set_and_deleted(cli: Cli) -> None:
    def offsets(group: str = "billing") -> dict[int, Any]:
        return keyed(cli.rows("groups", "offsets", group), "offset")

    cli("groups", "set-offsets", "billing", "orders-0=7", "--yes")
    assert offsets() == {0: 7}
    cli("groups", "set-offsets", "new", "orders-0=1", "--yes")
    assert offsets("new") == {0: 1}
    cli("groups", "delete-offsets", "billing", "orders-0", "--yes")
    assert offsets() == {}
    for wrong in ("orders-0", "orders-0=-5", "orders-0=x", "orders=1", "=1"):
        done = cli.run("groups", "set-offsets", "billing", wrong, "--yes")
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
    share = ("jobs", "--share")
    done = cli.run("groups", "offsets", *share)
    assert done.code == 5 and "jobs" in done.err  # there is no such group yet
    cli("groups", "set-offsets", "jobs", "orders-0=1", "--share", "--yes")
    assert keyed(cli.rows("groups", "offsets", *share), "start_offset") == {0: 1}
    cli("groups", "delete-offsets", "jobs", "orders", "--share", "--yes")
    assert keyed(cli.rows("groups", "offsets", *share), "start_offset") == {}


@pytest.mark.usefixtures("billing")
def test_a_group_of_the_other_kind_is_no_empty_table(cli: Cli) -> None:
    def no_offsets(response: Any) -> None:
        response.groups[0].error_code = 0

    def share_group(response: Any) -> None:
        group = response.groups[0]
        group.error_code, group.group_state, group.members = 0, "Empty", []

    cluster = cli.served.cluster
    cluster.intercept(DescribeShareGroupOffsetsRequest, Edit(no_offsets))
    done = cli.run("groups", "offsets", "billing", "--share")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "is a classic group: leave out --share" in done.err
    cluster.intercept(ShareGroupDescribeRequest, Edit(share_group))
    done = cli.run("groups", "offsets", "jobs")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "is a share group: give --share" in done.err
    assert cli.rows("groups", "offsets", "jobs", "--share") == []


def test_an_unknown_group_is_code_5(cli: Cli) -> None:
    for verb in ("describe", "lag", "offsets"):
        done = cli.run("groups", verb, "nothing")
        assert done.code == 5, done.err
        assert "nothing" in done.err and done.err.count("\n") == 1


@pytest.mark.usefixtures("billing")
def test_members_are_described(cli: Cli) -> None:
    (row,) = cli.rows("groups", "describe", "billing")
    assert row["state"] == "EMPTY"

    async def look() -> list[dict[str, Any]]:
        servers = cli.served.cluster.bootstrap_servers
        options: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "billing"}
        async with AIOKafkaConsumer("orders", client_id="reader", **options):
            return await asyncio.to_thread(cli.rows, "groups", "describe", "billing")

    (row,) = asyncio.run(look())
    assert (row["state"], row["client_id"]) == ("STABLE", "reader")
    assert row["partitions"] == ["orders-0"]


def test_tasks_of_streams_groups_are_shown() -> None:
    tasks = StreamsTasks(active={"0": (1, 2), "1": (0,)}, standby={}, warmup={})
    member = GroupMember("m", None, "c", "/h", tasks=tasks)
    group = GroupDescription("g", GroupType.STREAMS, GroupState.STABLE, "streams", "", 0, (member,))
    (row,) = member_rows(group)
    assert row["partitions"] == ["0_1", "0_2", "1_0"]


@pytest.mark.usefixtures("billing")
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_lag_is_watched_until_ctrl_c(cli: Cli) -> None:
    child = process(
        *("groups", "lag", "billing", "--watch", "--interval", "0.05", "--output", "json"),
        stdout=subprocess.PIPE,
        env=environment(cli.served),
    )
    assert child.stdout is not None
    assert [b'"orders"' in child.stdout.readline() for _ in range(6)] == [True] * 6
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode == 130


@pytest.mark.usefixtures("billing")
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_lag_is_watched_though_brokers_are_silent_for_a_while(cli: Cli) -> None:
    child = process(
        *("groups", "lag", "billing", "--watch", "--interval", "0.05", "--output", "json"),
        *("-X", "request_timeout_ms=1000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cli.served),
    )
    assert child.stdout is not None and child.stderr is not None
    assert b'"orders"' in child.stdout.readline()
    silent = cli.served.cluster.intercept(None, Silence())
    assert b"timed out" in child.stderr.readline()
    silent.remove()
    cli("groups", "set-offsets", "billing", "orders-0=9", "--yes")
    while b'"committed": 9' not in (line := child.stdout.readline()):
        assert line
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode == 130


@pytest.mark.usefixtures("billing")
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_a_watched_group_may_be_deleted_and_created_again(cli: Cli) -> None:
    child = process(
        *("groups", "lag", "billing", "--watch", "--interval", "0.05", "--output", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cli.served),
    )
    assert child.stdout is not None and child.stderr is not None
    assert b'"orders"' in child.stdout.readline()
    cli("groups", "delete", "billing", "--yes")
    assert b"group 'billing' does not exist" in child.stderr.readline()
    cli("groups", "set-offsets", "billing", "orders-0=9", "--yes")
    while b'"committed": 9' not in (line := child.stdout.readline()):
        assert line
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode == 130


@pytest.mark.usefixtures("billing")
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_watching_ends_with_a_fatal_error(cli: Cli) -> None:
    child = process(
        *("groups", "lag", "billing", "--watch", "--interval", "0.05", "--output", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cli.served),
    )
    assert child.stdout is not None
    assert b'"orders"' in child.stdout.readline()
    cli.served.cluster.intercept(DescribeGroupsRequest, Fail(ClusterAuthorizationFailedError))
    _, err = child.communicate(timeout=30)
    assert b"not authorized for this operation on the cluster" in err
    assert child.returncode == 4


@pytest.mark.usefixtures("billing")
@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Unix")
def test_a_terminal_gets_a_live_table(cli: Cli) -> None:
    import pexpect

    arguments = ["-m", "aiokafka", "groups", "lag", "billing", "--watch", "--interval", "0.1"]
    child = pexpect.spawn(sys.executable, arguments, env=environment(cli.served), timeout=30)
    child.expect("\x1b\\[2J")
    for _ in range(2):
        child.expect("\x1b\\[H\x1b\\[1mGROUP")
        child.expect("billing")
        child.expect("\x1b\\[J")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130


@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 10),
        (("--to", "7"), 7),
        (("--to", "-1h"), 0),
        (("--to", "2999-01-01"), 10),
        (("--shift", "-1"), 3),
        (("--shift", "100"), 10),
    ],
    ids=str,
)
def test_a_group_is_reset(cli: Cli, rule: tuple[str, ...], expected: int) -> None:
    (row,) = cli.rows("groups", "reset", "billing", *rule, "--dry-run")
    assert (row["topic"], row["old"], row["new"]) == ("orders", 4, expected)
    assert cli.served.cluster.groups.committed("billing", "orders", 0) == 4
    cli("groups", "reset", "billing", *rule)
    assert cli.served.cluster.groups.committed("billing", "orders", 0) == expected


@pytest.mark.usefixtures("billing")
def test_a_group_begins_where_another_is_and_is_deleted(cli: Cli) -> None:
    cli("groups", "reset", "copy", "--copy-of", "billing")
    assert cli.served.cluster.groups.committed("copy", "orders", 0) == 4
    cli("groups", "delete", "billing", "--yes")
    assert [row["group_id"] for row in cli.rows("groups", "list")] == ["copy"]
    assert cli.run("groups", "delete", "billing", "--yes").code == 5


@pytest.mark.parametrize(
    "rule", [(), ("--to", "soon"), ("--to", "-5"), ("--to", "1", "--shift", "1")]
)
def test_a_reset_wants_one_rule(cli: Cli, rule: tuple[str, ...]) -> None:
    assert cli.run("groups", "reset", "billing", *rule).code == 2
