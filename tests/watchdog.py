"""Ends a test that its own time limit could not end, and names it.

pytest-timeout raises inside whatever runs when the time is up. A task that spins takes the
exception for its own failure, or its loop runs on: the run would then hang until the machine's
limit, and no test would be named. This plugin waits a little longer, then writes all stacks and
ends the process. Under xdist that process is a worker, so the test is reported as the one that
crashed it, and the other tests go on.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

# Seconds between the time limit of a test and the end of its process.
_GRACE = float(os.environ.get("AIOKAFKA_WATCHDOG_GRACE", "20"))
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real standard error: while a test runs, pytest has another in its place."""
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run one test, fixtures included, under the watch of faulthandler's thread."""
    limit = time_limit(item)
    if not limit:
        return (yield)
    faulthandler.dump_traceback_later(limit + _GRACE, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def time_limit(item: pytest.Item) -> float:
    """Return the seconds that pytest-timeout gives this test, or 0 without a limit."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    chosen = item.config.getoption("timeout", None)
    return float(chosen if chosen is not None else item.config.getini("timeout") or 0)
