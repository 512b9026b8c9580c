"""Command line of the benchmarks."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.environments import version_of
from benchmarks.growth import SERIES, Series, exponents, is_linear, measure_growth
from benchmarks.measure import Broker, measure
from benchmarks.report import render_row, save, save_growth, save_in_memory
from benchmarks.rows import (
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_ASYNCIO,
    FRANZ,
    JAVA,
    KAFKA_PYTHON,
    OURS,
    OURS_ASSIGNED,
    OURS_UVLOOP,
    ROWS,
    Row,
)
from tests.integration.secured import tls_listeners
from tests.kafka.jars import missing_tools
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import FOR_BENCHMARKS, HOST, PATIENT, Extras
from tests.net.support import Certificates

TLS = "TLS"
IN_MEMORY = "in-memory"
GROWTH = "growth"
CLIENTS = (
    OURS,
    OURS_UVLOOP,
    OURS_ASSIGNED,
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_ASYNCIO,
    KAFKA_PYTHON,
    FRANZ,
    JAVA,
)


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

    def is_wanted(name: str) -> bool:
        return not wanted or any(map(name.startswith, wanted))

    rows = [row for row in ROWS if is_wanted(row.name)]
    growth = [series for series in SERIES if is_wanted(f"{GROWTH}-{series.name}")]
    if arguments.list:
        print("\n".join(f"{row.name:18} {row.title}" for row in ROWS))
        print("\n".join(f"{GROWTH}-{series.name:11} {series.title}" for series in SERIES))
        print(f"{IN_MEMORY:18} decode and encode record batches")
        return
    if not (rows or growth or is_wanted(IN_MEMORY)):
        sys.exit(f"no row begins with any of {wanted}; --list shows them")
    if is_wanted(IN_MEMORY):
        run_in_memory(arguments)
    failed = []
    if rows:
        with broker_for(arguments) as broker:
            failed = run(rows, arguments, broker)
    for series in growth:
        # A broker of its own: one that still removes 10,000 partitions has no room for the next
        # ones, as a process may map so many files only.
        with broker_for(arguments) as broker:
            failed += run_growth(series, arguments, broker)
    if failed:
        sys.exit("\n".join(failed))


@contextmanager
def broker_for(arguments: argparse.Namespace) -> Iterator[Broker]:
    """Yield a broker: one that runs, or one that is started for the benchmark."""
    if arguments.bootstrap:
        yield Broker("a running Kafka", arguments.bootstrap)
        return
    if missing_tools():
        sys.exit(f"A real Kafka needs more than Python: {missing_tools()}.")
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        config = PATIENT | tls_listeners(certificates, [TLS], HOST)
        extras = Extras(listeners={TLS: "SSL"})
        with KafkaCluster(jvm=FOR_BENCHMARKS, config=config, extras=extras) as cluster:
            yield Broker(
                f"Apache Kafka {cluster.version.number}",
                cluster.bootstrap_servers,
                cluster.addresses(TLS),
                certificates.cafile,
            )


def run(rows: list[Row], arguments: argparse.Namespace, broker: Broker) -> list[str]:
    """Run the rows; return what is to be said of those in which a client failed."""
    clients = [name.strip() for name in arguments.clients.split(",")]
    failed = []
    for row in rows:
        if row.tls and not broker.tls_servers:
            failed.append(f"{row.name}: needs a broker that is started here, not --bootstrap")
            continue
        try:
            measured = measure(row, broker, arguments.rounds, clients)
        except RuntimeError as error:
            failed.append(f"{row.name}: {error}")
            continue
        print(f"\n{row.title}\n\n{render_row(row, measured)}\n", flush=True)
        if not arguments.dry:
            versions = [broker.version, *dict.fromkeys(map(version_of, measured.clients))]
            save(row, measured, arguments.rounds, versions)
    return failed


def run_growth(series: Series, arguments: argparse.Namespace, broker: Broker) -> list[str]:
    """Run one series of points; return what is to be said if the client failed."""
    try:
        points = measure_growth(series, broker.servers, arguments.rounds)
    except RuntimeError as error:
        return [f"{GROWTH}-{series.name}: {error}"]
    steps = ", ".join(f"{step:.2f}" for step in exponents(points))
    verdict = "met" if is_linear(series, points) else "missed"
    print(
        f"\n{series.title}\n\nexponents {steps}, wanted at most {series.exponent}: {verdict}\n",
        flush=True,
    )
    if not arguments.dry:
        save_growth(series.name, points, arguments.rounds, broker.version)
    return []


def run_in_memory(arguments: argparse.Namespace) -> None:
    """The script of its own that needs no broker."""
    command = [sys.executable, "-m", "benchmarks.bench_records", "--rounds", str(arguments.rounds)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(shown, flush=True)
    if not arguments.dry:
        save_in_memory(shown, arguments.rounds, [version_of(OURS), version_of(AIOKAFKA)])


if __name__ == "__main__":
    main()
