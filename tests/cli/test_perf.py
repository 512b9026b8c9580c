"""Measuring from the command line."""

from __future__ import annotations

import pytest

from aiokafka.cli.perf import percentiles, summary
from tests.cli.support import Cli


def test_percentiles() -> None:
    found = percentiles([float(number) for number in range(1, 1001)])
    assert found == {
        "avg": 500.5,
        "p50": 500.0,
        "p95": 950.0,
        "p99": 990.0,
        "p99.9": 999.0,
        "max": 1000.0,
    }
    assert set(percentiles([7.0]).values()) == {7.0}
    with pytest.raises(ValueError, match="no values"):
        percentiles([])


def test_rates_are_of_all_records() -> None:
    row = summary(1000, 2_000_000, 2.0, [0.001, 0.003])
    assert (row["records_per_s"], row["mb_per_s"], row["avg_ms"], row["max_ms"]) == (500, 1, 2, 3)


def test_what_is_sent_is_read(cli: Cli) -> None:
    cli.served.topic("scratch", 2)
    (sent,) = cli.rows("perf", "produce", "scratch", "-n", "500", "-s", "50", "--rate", "10000")
    assert sent["records"] == 500
    assert 0 < sent["p50_ms"] <= sent["p99_ms"] <= sent["max_ms"]
    # One more was sent to warm up.
    values = [*cli.served.values("scratch", 0), *cli.served.values("scratch", 1)]
    assert sorted(map(len, values), reverse=True)[:500] == [50] * 500
    (read,) = cli.rows("perf", "consume", "scratch", "-n", "501")
    assert read["records"] == 501


def test_latency_from_end_to_end(cli: Cli) -> None:
    cli.served.topic("scratch", 2)
    (row,) = cli.rows("perf", "latency", "scratch", "-n", "5")
    assert row["records"] == 5
    assert 0 < row["p50_ms"] <= row["max_ms"]


def test_too_few_records_end_with_code_3(cli: Cli) -> None:
    cli.served.topic("scratch")
    done = cli.run("perf", "consume", "scratch", "-n", "5", "--wait", "0.1")
    assert done.code == 3
    assert "0 records" in done.err
    assert cli.run("perf", "consume", "missing").code == 5
