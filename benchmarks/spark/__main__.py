"""Command line of the comparison in Spark."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version

import aiokafka
from benchmarks.report import save_spark
from benchmarks.spark.measure import Bench
from benchmarks.spark.report import render_row
from benchmarks.spark.rows import CLIENTS, CONFLUENT, ROWS, TOPICS, Row
from tests.integration.spark_session import why_no_spark
from tests.kafka.jars import fetch_connector_jars, missing_tools
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import FOR_BENCHMARKS, PATIENT

MASTERS = ("local[1]", "local[2]")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", default="", help="names, or beginnings of names, with blanks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the records, to try it")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="comma-separated")
    parser.add_argument("--masters", default=" ".join(MASTERS), help="with blanks")
    parser.add_argument("--bootstrap", help="a running Kafka (default: one is started)")
    parser.add_argument("--dry", action="store_true", help="print the figures, keep nothing")
    parser.add_argument("--list", action="store_true", help="list the rows")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    wanted = arguments.rows.split()
    rows = [row for row in ROWS if not wanted or any(map(row.name.startswith, wanted))]
    if arguments.list:
        print("\n".join(f"{row.name:18} {row.title}" for row in rows))
        return
    if not rows:
        sys.exit(f"no row begins with any of {wanted}; --list shows them")
    if unknown := set(_names(arguments.clients)) - set(CLIENTS):
        sys.exit(f"there is no client {sorted(unknown)}; there are {', '.join(CLIENTS)}")
    if missing := missing_tools() or why_no_spark():
        sys.exit(f"The comparison in Spark needs more: {missing}.")
    if arguments.bootstrap:
        run(rows, arguments, arguments.bootstrap, "a running Kafka")
        return
    with KafkaCluster(jvm=FOR_BENCHMARKS, config=PATIENT) as cluster:
        broker = f"Apache Kafka {cluster.version.number}"
        run(rows, arguments, cluster.bootstrap_servers, broker)


def run(rows: list[Row], arguments: argparse.Namespace, servers: str, broker: str) -> None:
    clients = _names(arguments.clients)
    bench = Bench(servers, fetch_connector_jars(), clients)
    rows = [row.scaled(arguments.share) for row in rows]
    read = dict.fromkeys(row.topic for row in rows if row.work != "write")
    bench.fill({topic: TOPICS[topic].scaled(arguments.share) for topic in read})
    try:
        for master in arguments.masters.split():
            chosen = [row for row in rows if master == MASTERS[0] or row.at_two]
            with bench.at(master):
                for row in chosen:
                    figures = bench.measure(row, arguments.rounds)
                    print(f"\n{master}\n\n{render_row(row, figures)}\n", flush=True)
                    if not arguments.dry:
                        versions = [broker, *_versions(clients)]
                        rounds = 1 if row.once else arguments.rounds
                        save_spark(f"{master} {row.name}", figures, rounds, versions)
    finally:
        bench.remove()


def _names(clients: str) -> list[str]:
    return [name.strip() for name in clients.split(",")]


def _versions(clients: list[str]) -> list[str]:
    packages = ["pyspark", "pyarrow", *(["confluent-kafka"] if CONFLUENT in clients else ())]
    ours = f"aiokafka {aiokafka.__version__}"
    return [ours, *(f"{package} {version(package)}" for package in packages)]


if __name__ == "__main__":
    main()
