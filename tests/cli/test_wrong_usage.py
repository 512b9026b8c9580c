"""Arguments that contradict each other, or that cannot be."""

from __future__ import annotations

import pytest

from tests.cli.support import Cli

TWICE = {
    "configs": ("configs alter topic:orders cleanup.policy+=compact cleanup.policy+=delete"),
    "quotas": "quotas alter --user alice producer_byte_rate=1 producer_byte_rate",
    "features": "brokers set-features metadata.version=7 metadata.version=8 --dry-run",
    "replicas": "brokers move-replicas 0 orders-0=/a orders-0=/b",
    "serving": "testing serve --port 0 --as-version 9 --broker-config a=1 --broker-config a=2",
}


@pytest.mark.parametrize("command", TWICE.values(), ids=TWICE)
def test_what_is_given_twice_is_refused(cli: Cli, command: str) -> None:
    cli.served.topic("orders")
    done = cli.run(*command.split())
    assert done.code == 2
    assert "is given twice" in done.err
    assert cli.rows("configs", "describe", "topic:orders") == []
    assert cli.rows("quotas", "list") == []


def test_a_setting_of_brokers_has_a_value(cli: Cli) -> None:
    done = cli.run("testing", "serve", "--port", "0", "--as-version", "9", "--broker-config", "a")
    assert done.code == 2
    assert "'a' must be NAME=VALUE" in done.err


@pytest.mark.parametrize("change", ["cleanup.policy+", "cleanup.policy-", "+", ""])
def test_a_change_of_a_list_says_what_to_add(cli: Cli, change: str) -> None:
    cli.served.topic("orders")
    done = cli.run("configs", "alter", "topic:orders", change)
    assert done.code == 2  # it was taken for the default of a setting "cleanup.policy+"
    assert f"{change!r} must be NAME=VALUE, NAME+=VALUE" in done.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("testing", "serve", "--topic", "a:²"), "must be NAME, NAME:PARTITIONS"),
        (("request", "Metadata", "--to", "broker:²"), "must be any, controller"),
        (("configs", "describe", "broker:²"), "must be the id of a broker"),
    ],
)
def test_digits_are_those_of_ascii(cli: Cli, arguments: tuple[str, ...], text: str) -> None:
    done = cli.run(*arguments)
    assert done.code == 2
    assert text in done.err
