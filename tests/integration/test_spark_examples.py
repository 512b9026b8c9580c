"""The pipelines in `examples/spark` at small size; each checks what it has written."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.integration.spark_session import REPOSITORY, why_no_spark
from tests.kafka.fixtures import Kafka

missing = why_no_spark()
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=missing or "Spark is there"),
    pytest.mark.timeout(300),
    # Spark's own.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

EXAMPLES = REPOSITORY / "examples" / "spark"
README = str(REPOSITORY / "README.rst")

# What is run here: with which arguments, and what the last line says.
PIPELINES: dict[str, tuple[list[str], str]] = {
    "minute_counts.py": ([README], r"\d+ words in \d+ minutes, each counted once"),
    "backfill.py": (["--events", "900"], r"900 events of 3 days, each in the files once"),
    "bad_records.py": ([], r"2850 orders and 150 rejects, each written once"),
    "update_mode.py": ([], r"20 shops sold for \d+, and that is what the totals say"),
    "sessions.py": (
        ["--users", "200", "--clicks", "9000"],
        r"\d+ sessions of 200 users, each written once",
    ),
}


def test_every_example_is_run() -> None:
    """Here, or by a test of its own beside this file."""
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_spark_*.py")]
    for example in EXAMPLES.glob("*.py"):
        assert example.name in PIPELINES or any(example.name in text for text in texts)


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline(
    kafka: Kafka, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a script, but in this process: all of them share a JVM, whose start takes the longest."""
    arguments, ending = PIPELINES[name]
    paths = filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    script = str(EXAMPLES / name)
    monkeypatch.setattr(sys, "argv", [script, "--bootstrap", kafka.bootstrap_servers, *arguments])
    runpy.run_path(script, run_name="__main__")
    output = capsys.readouterr().out
    # Spark tells listeners of progress in a thread of its own, at times after the last line.
    assert any(re.fullmatch(ending, line) for line in output.splitlines()[-3:]), output
