"""The example that moves a query from Spark's own source to ours, and back."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import pytest

from tests.integration.spark_jvm import marks
from tests.integration.spark_session import REPOSITORY
from tests.kafka.fixtures import Kafka
from tests.kafka.jars import fetch_connector_jars

pytestmark = marks


def test_migration(
    both: Any, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a script, but in the session of this module, which it stops."""
    script = str(REPOSITORY / "examples" / "spark" / "migrate_from_jvm.py")
    jars = ",".join(map(str, fetch_connector_jars()))
    given = ["--bootstrap", kafka.bootstrap_servers, "--payments", "500", "--jars", jars]
    monkeypatch.setattr(sys, "argv", [script, *given])
    runpy.run_path(script, run_name="__main__")
    told = "1500 payments, read by kafka, aiokafka, kafka in turn, each counted once"
    assert capsys.readouterr().out.splitlines()[-1] == told
