"""What several modules of tests on a real Kafka share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.spark_session import start_spark
from tests.kafka.jars import fetch_connector_jars


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session that has the format `kafka` as well as `aiokafka`; the JVM stays."""
    session = start_spark(tmp_path_factory.mktemp("spark"), jars=fetch_connector_jars())
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
