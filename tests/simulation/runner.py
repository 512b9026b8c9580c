"""Run many seeds, on all cores, and tell what they found."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from aiokafka.testing.servers import PROFILES
from tests.simulation.coverage import Coverage
from tests.simulation.execution import Verdict, execute
from tests.simulation.reduction import reduce
from tests.simulation.scenario import Scenario, draw
from tests.simulation.timeline import timeline
from tests.simulation.workloads import KINDS
from tests.simulation.world import Violation

#: Scenarios that have found something once; each is run every time.
KEPT = Path(__file__).parent / "kept"

_CHUNK = 20


@dataclass
class Batch:
    """What came of some seeds; small, since it goes from process to process."""

    seeds: int = 0
    requests: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    failed: list[tuple[int, str, str]] = field(default_factory=list)
    """Seed, kind of its first violation, its text."""
    coverage: Coverage = field(default_factory=Coverage)
    uneven: list[int] = field(default_factory=list)
    """Seeds of which a second run had another trace."""

    def add(self, other: Batch) -> None:
        """Add up."""
        self.seeds += other.seeds
        self.requests += other.requests
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        self.failed += other.failed
        self.uneven += other.uneven
        self.coverage.add(other.coverage)

    def count(self, verdict: Verdict) -> None:
        """Add one run."""
        self.seeds += 1
        self.requests += verdict.requests
        self.virtual_s += verdict.virtual_s
        self.coverage.count(verdict)
        if verdict.violations:
            first = verdict.violations[0]
            self.failed.append((verdict.scenario.seed, first.kind, first.text))


def warm_up() -> None:
    """Import everything, by running some scenarios of each kind."""
    for kind in KINDS:
        execute(draw(0, [kind.kind]))
    rest()


def rest() -> None:
    """Take what there is out of the collector's sight: it looks at all that is left of a run."""
    gc.collect()
    gc.freeze()


def run_seeds(
    seeds: Sequence[int], kinds: Sequence[str], twice: bool = False, profile: str = ""
) -> Batch:
    """Run some seeds in this process."""
    rest()
    batch = Batch()
    started = time.process_time()
    for seed in seeds:
        scenario = draw(seed, kinds, profile)
        verdict = execute(scenario)
        batch.count(verdict)
        if twice and execute(scenario).trace_sum != verdict.trace_sum:
            batch.uneven.append(seed)
    batch.cpu_s = time.process_time() - started
    return batch


def kept_scenarios() -> Iterator[tuple[str, Scenario]]:
    """The scenarios that found something once, by name."""
    for path in sorted(KEPT.glob("*.json")):
        yield path.stem, _scenario_in(path)


def _scenario_in(path: Path) -> Scenario:
    """The scenario of a file: as it is, or with what it showed when it was kept."""
    data = json.loads(path.read_text())
    return Scenario.from_json(json.dumps(data.get("scenario", data)))


def _save(path: Path, scenario: Scenario, violations: list[Violation]) -> None:
    """Keep a scenario, whatever the seeds will mean by then."""
    showed = "; ".join(f"{each.kind}: {each.text.splitlines()[0]}" for each in violations[:1])
    data = {"showed": showed, "mended_by": "", "scenario": json.loads(scenario.to_json())}
    path.write_text(json.dumps(data, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one seed, reduce it, and show its story")
    parser.add_argument("--file", type=Path, help="the same for a scenario from a JSON file")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed (0)")
    parser.add_argument("--seeds", type=int, default=1000, help="run so many seeds (1000)")
    parser.add_argument("--minutes", type=float, help="run for so long, instead of --seeds")
    parser.add_argument(
        "--workload", action="append", default=[], help="only these workloads, or aims"
    )
    parser.add_argument(
        "--profile", default="", choices=(*PROFILES, "others"), help="the server; others: any other"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kept", action="store_true", help="run those that failed once, only")
    parser.add_argument("--twice", action="store_true", help="run each twice, compare the traces")
    parser.add_argument(
        "--coverage", action="store_true", help="show which faults met which states"
    )
    parser.add_argument("--whole", action="store_true", help="with --seed: do not reduce it")
    parser.add_argument("--save", type=Path, help="with --seed: write the scenario to this file")
    parser.add_argument("--keep-going", type=int, default=20, help="stop after so many failures")
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is part of a run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if options.seed is not None or options.file is not None:
        return _replay(options)
    return _run_kept() if options.kept else _run_many(options)


def _run_kept() -> int:
    """All scenarios that found something once."""
    failed = 0
    for name, scenario in kept_scenarios():
        for violation in execute(scenario).violations[:1]:
            failed += 1
            print(f"{name}: {violation.kind}: {violation.text}")
    return 1 if failed else 0


def _replay(options: argparse.Namespace) -> int:
    """One scenario: its violations and its timeline."""
    if options.file is not None:
        scenario = _scenario_in(options.file)
    else:
        scenario = draw(options.seed, options.workload, options.profile)
    verdict = execute(scenario)
    if not verdict.violations:
        print(f"seed {scenario.seed}: nothing to complain about")
        if not options.whole:
            return 0
    elif not options.whole:
        scenario = reduce(scenario, verdict.violations[0].kind)
    verdict = execute(scenario, tracing=True)
    print(scenario.to_json())
    for line in timeline(verdict):
        print(line)
    if options.save is not None:
        _save(options.save, scenario, verdict.violations)
    return 1 if verdict.violations else 0


def _run_many(options: argparse.Namespace) -> int:
    started = time.monotonic()
    deadline = None if options.minutes is None else started + 60 * options.minutes
    total = Batch()
    said = started
    for batch in _batches(options, deadline):
        total.add(batch)
        for seed, kind, text in batch.failed:
            print(f"SEED {seed}: {kind}: {text.splitlines()[0][:300]}", flush=True)
        for seed in batch.uneven:
            print(f"SEED {seed}: two runs differ", flush=True)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(_rate(total, said - started), flush=True)
        if len(total.failed) >= options.keep_going:
            break
    print(total.coverage.states() if options.coverage else total.coverage.table())
    print(_rate(total, time.monotonic() - started))
    kinds = Counter(kind for _, kind, _ in total.failed)
    if kinds:
        print("violations: " + json.dumps(dict(kinds.most_common())))
    return 1 if total.failed or total.uneven else 0


def _batches(options: argparse.Namespace, deadline: float | None) -> Iterator[Batch]:
    """Chunks of seeds as they are done, by all workers."""
    can_fork = sys.platform == "linux"
    context = get_context("fork" if can_fork else "spawn")
    if can_fork:
        warm_up()  # once, for all of them
    end = None if deadline is not None else options.first + options.seeds
    chunk = options.first
    with ProcessPoolExecutor(
        options.workers, mp_context=context, initializer=None if can_fork else warm_up
    ) as pool:
        running: set[Future[Batch]] = set()
        try:
            while True:
                while len(running) < 2 * options.workers:
                    if end is not None and chunk >= end:
                        break
                    if deadline is not None and time.monotonic() > deadline:
                        break
                    last = chunk + _CHUNK if end is None else min(end, chunk + _CHUNK)
                    seeds = range(chunk, last)
                    drawn = options.workload, options.twice, options.profile
                    running.add(pool.submit(run_seeds, seeds, *drawn))
                    chunk = last
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _rate(total: Batch, seconds: float) -> str:
    rate = total.seeds / seconds if seconds else 0.0
    cpu = 1000 * total.cpu_s / max(1, total.seeds)
    return (
        f"{total.seeds} seeds, {total.requests} requests, {total.virtual_s / 3600:.1f} virtual "
        f"hours in {seconds:.0f} s: {rate:.1f} scenarios/s, {3600 * rate:.0f} seeds an hour, "
        f"{cpu:.0f} ms of CPU each, {len(total.failed)} failed"
    )
