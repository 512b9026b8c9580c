"""Simulated scenarios a second and core: `python -m benchmarks.bench_simulation`.

Runs the scenarios of `tests.simulation` one after the other in this process, and each as often as
there are rounds; what counts is its cheapest run, for machines are noisy. Imports, and codecs that
are written on first use, are paid before.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass

from tests.simulation.execution import execute
from tests.simulation.runner import rest, warm_up
from tests.simulation.scenario import draw

MOST_NAMED = 5


@dataclass
class Cost:
    """What a seed costs."""

    seed: int
    cpu_s: float
    requests: int
    virtual_s: float


def measure(seed: int, kinds: list[str]) -> Cost:
    scenario = draw(seed, kinds)
    began = time.process_time()
    verdict = execute(scenario)
    took = time.process_time() - began
    if verdict.violations:
        print(f"seed {seed}: {verdict.violations[0].kind}")
    return Cost(seed, took, verdict.requests, verdict.virtual_s)


def measure_all(seeds: range, kinds: list[str], rounds: int) -> list[Cost]:
    """The cheapest run of each seed. The round before the first one warms up."""
    warm_up()
    for seed in seeds:
        measure(seed, kinds)
    rest()
    runs = [[measure(seed, kinds) for seed in seeds] for _ in range(rounds)]
    return [min(costs, key=lambda cost: cost.cpu_s) for costs in zip(*runs, strict=True)]


def report(costs: list[Cost]) -> str:
    count = len(costs)
    cpu = sum(cost.cpu_s for cost in costs)
    requests = sum(cost.requests for cost in costs)
    virtual = sum(cost.virtual_s for cost in costs)
    ordered = sorted(costs, key=lambda cost: cost.cpu_s)
    named = ", ".join(
        f"{cost.seed} ({1000 * cost.cpu_s:.0f} ms, {cost.requests} requests)"
        for cost in reversed(ordered[-MOST_NAMED:])
    )
    return "\n".join(
        [
            f"{count / cpu:.1f} scenarios a second and core, {requests / cpu:,.0f} requests",
            f"a scenario: {1000 * cpu / count:.0f} ms of CPU (median "
            f"{1000 * ordered[count // 2].cpu_s:.0f}, nine of ten below "
            f"{1000 * ordered[9 * count // 10].cpu_s:.0f}), {requests / count:.0f} requests of "
            f"{1e6 * cpu / requests:.0f} us, {virtual / count:.0f} virtual seconds",
            f"costliest seeds: {named}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_simulation")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed (0)")
    parser.add_argument("--seeds", type=int, default=60, help="so many seeds (60)")
    parser.add_argument("--rounds", type=int, default=3, help="run each so often (3)")
    parser.add_argument("--workload", action="append", default=[], help="only these workloads")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is part of a run.
        os.environ["PYTHONHASHSEED"] = "0"
        command = [sys.executable, "-m", "benchmarks.bench_simulation", *sys.argv[1:]]
        os.execv(sys.executable, command)
    seeds = range(options.first, options.first + options.seeds)
    print(report(measure_all(seeds, options.workload, options.rounds)))


if __name__ == "__main__":
    main()
