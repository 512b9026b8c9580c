"""A test that spins in a task is ended and named, whatever its time limit could do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent

SPINNING = """
import asyncio

async def test_before() -> None:
    pass

async def test_spinning() -> None:
    async def spin() -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    task = asyncio.create_task(spin())
    await asyncio.sleep(0)

async def test_after() -> None:
    pass
"""


def test_a_test_that_spins_is_named_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(SPINNING)
    command = [sys.executable, "-m", "pytest", "-p", "tests.watchdog", "-n", "1", "--timeout", "1"]
    command += ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "AIOKAFKA_WATCHDOG_GRACE": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert "crashed while running" in done.stdout
    assert "test_one.py::test_spinning" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert "in spin" in done.stderr + done.stdout
