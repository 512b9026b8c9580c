"""The simulation in CI: what failed once, some new seeds, and the same trace for the same seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
# How many seeds, and the first of them. They are the same everywhere, so that a check of a change
# does not depend on the machine's speed; others find other things (`make simulate`).
_SEEDS = os.environ.get("AIOKAFKA_SIMULATION_SEEDS", "120")
_FIRST = os.environ.get("AIOKAFKA_SIMULATION_FIRST", "0")


def simulate(*arguments: str, limit: float) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: the order of sets of strings is part of a run."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def assert_fine(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]


@pytest.mark.timeout(180)
def test_what_failed_once_is_mended() -> None:
    assert_fine(simulate("--kept", limit=170))


@pytest.mark.timeout(180)
def test_seeds() -> None:
    assert_fine(simulate("--first", _FIRST, "--seeds", _SEEDS, "--workers", "2", limit=170))


@pytest.mark.timeout(180)
def test_seeds_of_share_groups() -> None:
    assert_fine(simulate("--workload", "share", "--seeds", "30", "--workers", "2", limit=170))


@pytest.mark.timeout(180)
def test_the_same_seed_is_the_same_run() -> None:
    done = simulate("--first", "0", "--seeds", "8", "--workers", "1", "--twice", limit=170)
    assert "two runs differ" not in done.stdout


def test_a_scenario_survives_as_text() -> None:
    from tests.simulation.scenario import Scenario, draw

    for seed in range(50):
        scenario = draw(seed)
        assert Scenario.from_json(scenario.to_json()) == scenario
        assert json.loads(scenario.to_json())["seed"] == seed


def test_a_run_leaves_its_scenario_as_it_was() -> None:
    """With faults that count how often they have struck, so that it can be run again."""
    from tests.simulation.execution import execute
    from tests.simulation.scenario import draw

    scenario = next(
        scenario
        for scenario in (draw(seed) for seed in range(10_000))
        if "unsure offsets" in {fault.kind for fault in scenario.faults}
    )
    before = scenario.to_json()
    execute(scenario)
    assert scenario.to_json() == before
