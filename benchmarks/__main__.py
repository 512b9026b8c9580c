"""Command line of the benchmarks."""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.environments import version_of
from benchmarks.measure import measure
from benchmarks.report import render_row, save, save_in_memory
from benchmarks.rows import (
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_ASYNCIO,
    KAFKA_PYTHON,
    OURS,
    OURS_ASSIGNED,
    ROWS,
    Row,
)
from tests.kafka.jars import missing_tools
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import FOR_BENCHMARKS, PATIENT

IN_MEMORY = "in-memory"
CLIENTS = (OURS, OURS_ASSIGNED, AIOKAFKA, CONFLUENT, CONFLUENT_ASYNCIO, KAFKA_PYTHON)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", default="", help="names, or beginnings of names, with blanks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", default=",".join(CLIENTS), help="comma-separated")
    parser.add_argument("--bootstrap", help="a running Kafka (default: one is started)")
    parser.add_argument("--dry", action="store_true", help="print the figures, keep nothing")
    parser.add_argument("--list", action="store_true", help="list the rows")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    wanted = arguments.rows.split()
    rows = [row for row in ROWS if not wanted or any(map(row.name.startswith, wanted))]
    in_memory = not wanted or any(map(IN_MEMORY.startswith, wanted))
    if arguments.list:
        print("\n".join(f"{row.name:18} {row.title}" for row in rows))
        print(f"{IN_MEMORY:18} decode and encode record batches")
        return
    if not rows and not in_memory:
        sys.exit(f"no row begins with any of {wanted}; --list shows them")
    if in_memory:
        run_in_memory(arguments)
    if rows and arguments.bootstrap:
        run(rows, arguments, arguments.bootstrap, "a running Kafka")
    elif rows:
        if missing_tools():
            sys.exit(f"A real Kafka needs more than Python: {missing_tools()}.")
        with KafkaCluster(jvm=FOR_BENCHMARKS, config=PATIENT) as cluster:
            broker = f"Apache Kafka {cluster.version.number}"
            run(rows, arguments, cluster.bootstrap_servers, broker)


def run(rows: list[Row], arguments: argparse.Namespace, servers: str, broker: str) -> None:
    clients = [name.strip() for name in arguments.clients.split(",")]
    for row in rows:
        result = measure(row, servers, arguments.rounds, clients)
        print(f"\n{row.title}\n\n{render_row(row, result)}\n", flush=True)
        if not arguments.dry:
            versions = [broker, *dict.fromkeys(version_of(client) for client in result)]
            save(row, result, arguments.rounds, versions)


def run_in_memory(arguments: argparse.Namespace) -> None:
    """The script of its own that needs no broker."""
    command = [sys.executable, "-m", "benchmarks.bench_records", "--rounds", str(arguments.rounds)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(shown, flush=True)
    if not arguments.dry:
        save_in_memory(shown, arguments.rounds, [version_of(OURS), version_of(AIOKAFKA)])


if __name__ == "__main__":
    main()
