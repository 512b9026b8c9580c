"""Queries with secrets among their options, and every page that Spark then shows.

python -m tests.integration.spark_secrets BOOTSTRAP DIRECTORY

Plans, errors, pages of the UI and the event log are put into DIRECTORY; logs go to the output.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.spark_session import REPOSITORY

SECRET = "hush-hush"
SHOWN = "a-name-for-all-to-see"


class Session:
    """Spark with its UI, its event log, and all it has to say in its logs."""

    def __init__(self, servers: str, directory: Path) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        folders = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        self.directory = directory
        self.topic = f"secrets-{uuid.uuid4().hex[:8]}"
        self.options = {
            "kafka.bootstrap.servers": servers,
            "kafka.sasl.username": SHOWN,
            "kafka.sasl.password": SECRET,
            "kafka.ssl.key.password": SECRET,
            "kafka.sasl.jaas.config": f'x.PlainLoginModule required username="{SHOWN}" '
            f'password="{SECRET}";',
        }
        (directory / "events").mkdir()
        self.spark = (
            SparkSession.builder.master("local[1]")
            .appName("secrets")
            .config("spark.log.level", "INFO")
            .config("spark.ui.enabled", "true")
            .config("spark.ui.port", "0")
            .config("spark.sql.ui.explainMode", "extended")
            .config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.compress", "false")
            .config("spark.eventLog.dir", (directory / "events").as_uri())
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", str(directory / "local"))
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .getOrCreate()
        )

    # -- queries

    def write(self, **more: str) -> None:
        rows = self.spark.range(10).selectExpr("cast(id AS string) AS value")
        writer = rows.write.format("aiokafka").options(**self.options, topic=self.topic)
        writer.options(**more).mode("append").save()

    def read(self, **more: str) -> Any:
        reader = self.spark.read.format("aiokafka").options(**self.options, subscribe=self.topic)
        return reader.options(**more).load()

    def explain(self) -> str:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            for mode in ("extended", "formatted", "cost"):
                self.read().explain(mode)
        return text.getvalue()

    def view(self) -> str:
        options = {**self.options, "subscribe": self.topic}
        listed = ", ".join(f"'{name}' '{text}'" for name, text in options.items())
        self.spark.sql(f"CREATE TEMPORARY VIEW secrets USING aiokafka OPTIONS ({listed})")
        return str(self.spark.sql("SELECT count(*) FROM secrets").collect())

    def stream(self, expression: str) -> str:
        """What is said of a query: its plan, its progress, its failure."""
        from pyspark.errors import StreamingQueryException

        name = uuid.uuid4().hex
        options = {**self.options, "subscribe": self.topic, "startingOffsets": "earliest"}
        rows = self.spark.readStream.format("aiokafka").options(**options).load()
        writer = rows.selectExpr(f"{expression} AS value").writeStream.format("aiokafka")
        writer = writer.options(**self.options, topic=self.topic).queryName(f"query-{name}")
        writer = writer.option("checkpointLocation", str(self.directory / name))
        query = writer.trigger(availableNow=True).start()
        text = io.StringIO()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            text.write(f"{error!r} {error}")
        with contextlib.redirect_stdout(text):
            query.explain(True)
        page = self.page(f"/StreamingQuery/statistics/?id={query.runId}")
        return f"{text.getvalue()} {query.lastProgress} {query.status} {page}"

    # -- what can be seen

    def page(self, path: str) -> str:
        url = f"{self.spark.sparkContext.uiWebUrl}{path}"
        try:
            with urllib.request.urlopen(url) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return f"{path}: {error}"

    def pages(self) -> str:
        api = f"/api/v1/applications/{self.spark.sparkContext.applicationId}"
        paths = [f"{api}/sql?details=true&planDescription=true&length=100"]
        paths += [f"{api}/{name}" for name in ("jobs", "stages", "environment", "allexecutors")]
        paths += ["/SQL/", "/jobs/", "/stages/", "/environment/", "/StreamingQuery/"]
        paths += [f"/SQL/execution/?id={number}" for number in range(10)]
        return "\n".join(self.page(path) for path in paths)


def failure(run: Callable[[], Any]) -> str:
    from pyspark.errors import PySparkException

    try:
        run()
    except PySparkException as error:
        return f"{error!r} {error}"
    raise AssertionError("it did not fail")


def main() -> None:
    servers, place = sys.argv[1:]
    session = Session(servers, Path(place))
    refused = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    # A password for a key that is not there.
    no_key = {"kafka.security.protocol": "SSL", "kafka.ssl.certfile": "/no/such/file"}
    found = {
        "write": str(session.write()),
        "explain": session.explain(),
        "view": session.view(),
        "stream": session.stream("value"),
        "stream-fails": session.stream("cast(assert_true(false) AS string)"),
        "read-fails": failure(lambda: session.read(**refused).count()),
        "write-fails": failure(lambda: session.write(**refused)),
        "no-key": failure(lambda: session.read(**no_key).count()),
        "jaas": failure(lambda: session.read(**{"kafka.sasl.jaas.config": SECRET}).count()),
        "unknown": failure(lambda: session.read(**{"kafka.sasl.passwort": SECRET}).count()),
        "pages": session.pages(),
    }
    session.spark.stop()
    for name, text in found.items():
        (session.directory / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main()
