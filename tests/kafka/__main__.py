"""A real Kafka in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from tests.kafka.jars import missing_tools
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import FOR_BENCHMARKS, Jvm
from tests.kafka.versions import DEFAULT_VERSION, VERSIONS


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka", description=__doc__)
    parser.add_argument("--version", default=DEFAULT_VERSION, choices=VERSIONS, metavar="VERSION")
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 2, 3))
    parser.add_argument("--mode", choices=("kraft", "zk"), help="default: kraft where it exists")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--fast", action="store_true", help="1 GB of heap and the full compiler")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    missing = missing_tools()
    if missing:
        print(f"A real Kafka needs more than Python: {missing}.", file=sys.stderr)
        return 2
    config = dict(pair.split("=", 1) for pair in arguments.config)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with KafkaCluster(
        arguments.version,
        nodes=arguments.nodes,
        mode=arguments.mode,
        config=config,
        jvm=FOR_BENCHMARKS if arguments.fast else Jvm(),
    ) as cluster:
        print(f"Kafka {arguments.version} ({cluster.mode}) at {cluster.bootstrap_servers}")
        print("Ctrl-C stops it.", flush=True)
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
