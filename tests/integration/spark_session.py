"""A Spark session for tests, where there are PySpark and Java."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent.parent


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
    if paths:
        _end_jvm()
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
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )


def _end_jvm() -> None:
    """End the JVM of sessions that were stopped, for it loads no more jars."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None
