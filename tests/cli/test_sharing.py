"""`aiokafka consume --share-group` on the fake cluster."""

from __future__ import annotations

import pytest

from tests.cli.support import Cli


@pytest.fixture
def shared(cli: Cli) -> Cli:
    """Return what runs commands, with a topic of ten records, and a group that starts there."""
    cli.served.topic("t")
    cli.served.cluster.log("t").extend([(None, b"%d" % number, ()) for number in range(10)])
    cli.served.cluster.state.other_configs[32, "g"] = {"share.auto.offset.reset": "earliest"}
    return cli


def test_printed_records_are_accepted(shared: Cli) -> None:
    first = shared("consume", "t", "--share-group", "g", "--count", "4").out.splitlines()
    rest = shared("consume", "t", "--share-group", "g", "--count", "6").out.splitlines()
    assert sorted(first + rest) == [str(number) for number in range(10)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--group", "other"),
        ("--partitions", "0"),
        ("--from", "earliest"),
        ("--to", "latest"),
        ("--exit-at-end",),
        ("--grep", "x"),
        ("--key", ""),
        ("--read-committed",),
    ],
    ids=" ".join,
)
def test_options_without_a_meaning_are_refused(shared: Cli, arguments: tuple[str, ...]) -> None:
    done = shared.run("consume", "t", "--share-group", "g", *arguments)
    assert done.code == 2
    assert arguments[0] in done.err


def test_groups_show_members_and_lag(shared: Cli) -> None:
    shared("consume", "t", "--share-group", "g", "--count", "4")
    (listed,) = shared.rows("groups", "list", "--type", "share")
    assert (listed["group_id"], listed["type"], listed["state"]) == ("g", "SHARE", "EMPTY")
    (member,) = shared.rows("groups", "describe", "g")
    assert (member["type"], member.get("member")) == ("SHARE", None)
    (row,) = shared.rows("groups", "lag", "g")
    # The number of records still to be delivered (KIP-1226), from the first that is not accepted.
    assert (row["topic"], row["partition"], row["lag"]) == ("t", 0, 6)
    assert row["committed"] == 4
    (offset,) = shared.rows("groups", "offsets", "g", "--share")
    assert (offset["start_offset"], offset["lag"]) == (4, 6)
