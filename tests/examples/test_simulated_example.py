"""The service of the guide on simulation: by itself, and under pytest as its readers run it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.examples.scripts import EXAMPLES, REPOSITORY, run_script


async def test_every_order_is_shipped() -> None:
    output = await run_script("simulated_service.py")
    lines = output.splitlines()
    assert len(lines) == 3
    assert all(line.endswith("virtual seconds, every order shipped") for line in lines)


def test_the_example_is_a_test() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "aiokafka.testing.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(EXAMPLES), "--simulation-seed=1"]
    command += ["-c", os.devnull, str(EXAMPLES / "simulated_service.py")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
