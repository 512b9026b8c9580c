"""A Spark session for tests, where there are PySpark and Java."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent.parent

_jars = ""  # What the JVM of this process was started with.


def why_no_spark() -> str:
    """What is missing to run Spark; "" if nothing is."""
    try:
        import pyarrow  # noqa: F401
        import pyspark.sql.streaming.datasource  # noqa: F401
    except ImportError as error:
        return f"needs PySpark 4.2 or newer and pyarrow (pip install --group spark): {error}"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Spark needs Java 17"
    return ""


def start_spark(directory: Path, master: str = "local[1]", jars: Iterable[Path] = ()) -> Any:
    """A session with one thread for tasks. It finds the format `aiokafka` by itself.

    With the `jars` of `tests.kafka.jars.fetch_connector_jars` it also has the format `kafka`.
    """
    from pyspark.sql import SparkSession

    paths = ",".join(map(str, jars))
    _end_jvm(unless_it_has=paths)
    # Workers are to run what the tests run.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folders = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return (
        SparkSession.builder.master(master)
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.jars", paths)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(directory))
        # In which a cancelled task aborts its transaction, before Spark kills its process. Two
        # seconds, the default, are not enough on a busy machine.
        .config("spark.python.task.killTimeout", "60s")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )


def _end_jvm(*, unless_it_has: str) -> None:
    """End the JVM of sessions that were stopped: only at its start does it load jars."""
    from pyspark import SparkContext

    global _jars
    jars, _jars = _jars, unless_it_has or _jars
    gateway = SparkContext._gateway
    if gateway is None or jars == _jars:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None
