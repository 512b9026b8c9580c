"""The same seed gives the same run: in one process, and in two with other hashes."""

from __future__ import annotations

import pytest

from tests.testing import traces


@pytest.mark.timeout(300)
def test_processes_with_other_hashes_run_alike() -> None:
    assert traces.differences(20) == []


def test_a_process_runs_alike_again_and_again() -> None:
    first = [traces.trace(seed)[0] for seed in range(3)]
    assert [traces.trace(seed)[0] for seed in range(3)] == first
    assert len({line.split()[1] for line in first}) == 3
