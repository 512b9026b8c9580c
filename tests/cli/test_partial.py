"""Commands about several items of which some fail: the others are printed."""

from __future__ import annotations

import pytest

from aiokafka.cli.failures import CODES
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from aiokafka.testing import Edit
from tests.cli.support import Cli

REFUSED, MISSING = 4, 5

PRINTED = {
    "groups describe billing nope": "billing",
    "groups lag billing nope": "orders",
    "topics offsets orders nope": "orders",
    "records delete orders-0:end orders-7:end --yes": "orders",
    "configs describe topic:orders topic:nope --all": "topic orders",
    "transactions producers orders-0 orders-7": "PRODUCER ID",
}
DONE = {
    "topics delete orders nope --yes": "orders: deleted",
    "groups delete billing nope --yes": "deleted: billing",
}


@pytest.fixture(autouse=True)
def there(cli: Cli) -> None:
    cli.served.topic("orders", 2)
    cli("groups", "set-offsets", "billing", "orders-0=0", "--yes")


@pytest.mark.parametrize("command", PRINTED)
def test_what_was_found_is_printed(cli: Cli, command: str) -> None:
    done = cli.run(*command.split())
    assert done.code == MISSING, CODES
    assert PRINTED[command] in done.out
    assert len(done.err.splitlines()) == 1
    assert "nope" in done.err or "orders-7" in done.err


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
    assert "nope" in failed
