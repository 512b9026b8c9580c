"""One Spark session in a process of its own: works off what it is told, a JSON object a line."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent.parent

_JSON = "id BIGINT, user STRING, amount INT"
_SENTENCE = (
    "Records come in batches and leave in batches; between them a reader, a table and a clock "
    "agree on what was seen. Some are long, most are short, few are the same twice. "
)


def start(master: str, jars: list[str], folder: str) -> Any:
    """A session with little memory, and nothing that a job does not need."""
    from pyspark.sql import SparkSession

    # Workers are to run what the harness runs.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    builder = (
        SparkSession.builder.master(master)
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def register(spark: Any, name: str) -> None:
    if name == "aiokafka":
        from aiokafka.spark import register as register_ours

        register_ours(spark)
    elif name == "confluent":
        from benchmarks.spark.confluent_source import ConfluentSource

        spark.dataSource.register(ConfluentSource)


class Works:
    """What can be asked for. `given` has the format, the servers, the topic and the options."""

    def __init__(self, spark: Any, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def run(self, given: dict[str, Any]) -> dict[str, float]:
        work: Callable[[dict[str, Any]], None] = getattr(self, given["work"])
        begin = time.perf_counter()
        work(given)
        return {"seconds": time.perf_counter() - begin}

    def read(self, given: dict[str, Any]) -> None:
        self._load(given).write.format("noop").mode("overwrite").save()

    def count(self, given: dict[str, Any]) -> None:
        _check(self._load(given).count(), given)

    def json(self, given: dict[str, Any]) -> None:
        from pyspark.sql.functions import col, count, from_json
        from pyspark.sql.functions import sum as total

        parsed = self._load(given).select(from_json(col("value").cast("string"), _JSON).alias("v"))
        table = parsed.groupBy("v.user").agg(count("v.id").alias("n"), total("v.amount")).collect()
        _check(sum(row["n"] for row in table), given)

    def stream(self, given: dict[str, Any]) -> None:
        reader = self._spark.readStream.format(given["format"]).options(**_options(given))
        reader = reader.option("startingOffsets", "earliest")
        checkpoint = tempfile.mkdtemp(dir=self._folder)
        query = (
            reader.load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        _check(sum(progress["numInputRows"] for progress in query.recentProgress), given)

    def write(self, given: dict[str, Any]) -> None:
        from pyspark.sql.functions import expr

        frame = self._spark.range(0, given["records"], 1, given.get("partitions", 4))
        frame = frame.select(
            expr("cast(lpad(cast(id as string), 16, '0') as binary)").alias("key"),
            expr(_value(given["size"])).alias("value"),
        )
        writer = frame.write.format(given["format"]).mode("append")
        writer.options(**given["options"]).save()

    def _load(self, given: dict[str, Any]) -> Any:
        reader = self._spark.read.format(given["format"]).options(**_options(given))
        if given["schema"]:
            reader = reader.schema(given["schema"])
        return reader.load()


def _options(given: dict[str, Any]) -> dict[str, str]:
    options = dict(given["options"])
    if given["ends"]:
        options["endingOffsets"] = json.dumps({options["subscribe"]: given["ends"]})
    return options


def _value(size: int) -> str:
    """SQL of a JSON object of `size` bytes, whose text is a piece of prose at another place each
    time."""
    text = _SENTENCE * (2 + size // len(_SENTENCE))
    head = (
        """concat('{"id":', id, ',"user":"user-', pmod(hash(id), 1000), '","amount":',"""
        """ pmod(hash(id, 1), 100000), ',"text":"', """
        f"substring('{text}', pmod(hash(id, 2), {len(_SENTENCE)}) + 1, {size}))"
    )
    return f"""cast(concat(substring({head}, 1, {size - 2}), '"}}') as binary)"""


def _check(seen: int, given: dict[str, Any]) -> None:
    if seen != given["records"]:
        raise RuntimeError(f"{given['format']}: {seen} records instead of {given['records']}")


def main() -> None:
    given = json.loads(sys.argv[1])
    # What Spark prints must not mix with the results.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        spark = start(given["master"], given["jars"], folder)
        register(spark, given["format"])
        works = Works(spark, folder)
        print(json.dumps({"started": spark.version}), file=answers)
        for line in sys.stdin:
            print(json.dumps(works.run(json.loads(line))), file=answers)
        spark.stop()


if __name__ == "__main__":
    main()
