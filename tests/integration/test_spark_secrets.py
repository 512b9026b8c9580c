"""Passwords among the options are not in plans, pages, logs, events or errors."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.spark_secrets import SECRET, SHOWN
from tests.integration.spark_session import REPOSITORY, why_no_spark
from tests.kafka.fixtures import Kafka

missing = why_no_spark()
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=missing or "Spark is there"),
    pytest.mark.timeout(300),
]


def test_secrets_are_shown_nowhere(kafka: Kafka, tmp_path: Path) -> None:
    """A user name, which is not redacted, tells that the files show options at all."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with (tmp_path / "output.txt").open("wb") as output:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.integration.spark_secrets"),
                *(kafka.bootstrap_servers, str(tmp_path)),
            ],
            env=environment,
            cwd=REPOSITORY,
            stdout=output,
            stderr=output,
            timeout=240,
            check=False,
        )
    texts = texts_in(tmp_path)
    assert done.returncode == 0, texts["output.txt"][-5000:].decode(errors="replace")
    assert [name for name, text in texts.items() if SECRET.encode() in text] == []
    showing = {Path(name).parts[0] for name, text in texts.items() if SHOWN.encode() in text}
    assert {"pages.txt", "events"} <= showing, showing
    assert b"redacted" in texts["pages.txt"]
    assert b"does not use SASL" in texts["read-fails.txt"]
    assert b"does not use SASL" in texts["output.txt"]


def texts_in(top: Path) -> dict[str, bytes]:
    """Read all files, but for those that go meanwhile: the JVM removes its own when it ends, a
    moment after the process that started it.
    """
    found = {}
    for folder, _, names in os.walk(top):
        for path in map(Path(folder).joinpath, names):
            with contextlib.suppress(FileNotFoundError):
                found[str(path.relative_to(top))] = path.read_bytes()
    return found
