"""Run one async test once for each of many seeds, in virtual time."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka.testing.actions import check_seconds, check_whole
from aiokafka.testing.simulation.run import Simulation

__all__ = ["in_simulations"]

_FIXTURE = "simulation"
_LAST_LINES = 150
_FOREIGN_FIXTURES = ("kafka_cluster", "kafka_server")


def in_simulations(item: pytest.Function, marker: pytest.Mark) -> Callable[..., None]:
    """Return a synchronous function that runs an async test once for each seed.

    Raises pytest.UsageError for an unsuitable test or wrong arguments of the marker.
    """
    # Remove the wrappers of plugins around the async function, but not the decorators inside.
    test = inspect.unwrap(item.obj, stop=inspect.iscoroutinefunction)
    if not inspect.iscoroutinefunction(test):
        raise pytest.UsageError(f"{item.nodeid}: a test marked simulated must be an async function")
    if unfit := [name for name in _FOREIGN_FIXTURES if name in item.fixturenames]:
        raise pytest.UsageError(
            f"{item.nodeid}: the fixture {unfit[0]} runs in another loop: use simulation.cluster()"
        )
    try:
        options = _Options(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        given = str(error).removeprefix("_Options.__init__() ")
        raise pytest.UsageError(
            f"{item.nodeid}: the marker simulated takes seeds=10, first=0, limit_s=3600: {given}"
        ) from None
    seeds = options.chosen(item.config)
    if not seeds:
        raise pytest.UsageError(f"{item.nodeid}: seeds must be at least 1, or nothing is run")

    def run(**arguments: Any) -> None:
        for count, seed in enumerate(seeds, 1):
            simulation = Simulation(seed, limit_s=options.limit_s, recording=True)
            if _FIXTURE in arguments:
                arguments[_FIXTURE] = simulation
            try:
                simulation.run(test(**arguments))
            except (KeyboardInterrupt, pytest.skip.Exception, pytest.exit.Exception):
                raise
            except BaseException as error:
                _add_report(item, simulation, f"{count} of {len(seeds)}", error)
                raise

    return run


class _Options:
    """The arguments of the marker ``simulated``."""

    def __init__(self, seeds: int = 10, *, first: int = 0, limit_s: float = 3600.0) -> None:
        check_whole("seeds", seeds)
        check_whole("first", first)
        check_seconds("limit_s", limit_s)
        self.seeds = seeds
        self.first = first
        self.limit_s = limit_s

    def chosen(self, config: pytest.Config) -> list[int]:
        """Return the seeds to run: from the command line, else from the marker."""
        only = config.getoption("simulation_seed", None)
        if only is not None:
            return [int(only)]
        count = config.getoption("simulation_seeds", None)
        return list(range(self.first, self.first + int(self.seeds if count is None else count)))


def _add_report(
    item: pytest.Item, simulation: Simulation, place: str, error: BaseException
) -> None:
    """Add the failed seed and the end of the run's timeline to the report of the test."""
    lines = simulation.timeline.lines()
    again = f"pytest {shlex.quote(item.nodeid)} --simulation-seed={simulation.seed}"
    text = f"seed {simulation.seed} ({place}) failed; to run it again: {again}"
    if hasattr(error, "add_note"):
        error.add_note(text)
    left_out = len(lines) - _LAST_LINES
    if left_out > 0 and not item.config.getoption("simulation_timeline", False):
        lines = [
            f"({left_out} lines before; all with --simulation-timeline)",
            *lines[-_LAST_LINES:],
        ]
    item.add_report_section("call", "simulation", "\n".join([text, *lines]))
