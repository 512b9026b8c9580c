"""Plant the faults of a list one by one and print what noticed each: see `--help`."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from tests.mutants.copies import Copy
from tests.mutants.faults import LISTS, Fault, Sources, load
from tests.mutants.judges import Verdict, ask_simulation, ask_suite

Judge = Callable[[Copy, Fault], Verdict]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("list", choices=sorted(LISTS), help="which faults to plant")
    parser.add_argument("names", nargs="*", help="only these, with * for any letters")
    parser.add_argument(
        "--by", choices=("suite", "simulation"), help="which judge to ask, if not as named"
    )
    parser.add_argument("--jobs", type=int, default=1, help="copies to work on at once")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each fault")
    parser.add_argument("--seeds", type=int, default=30_000, help="seeds for each fault")
    parser.add_argument("--first", type=int, default=1, help="the first of these seeds")
    parser.add_argument("--record", type=Path, help="file for results; what is in it is not redone")
    return parser.parse_args()


def judge_of(options: argparse.Namespace) -> Judge:
    """The judge to ask."""
    if (options.by or options.list) == "simulation":
        return partial(
            ask_simulation, seeds=options.seeds, limit=options.limit, first=options.first
        )
    return partial(ask_suite, limit=options.limit)


class Results:
    """The verdicts so far, in a file if one is given."""

    def __init__(self, path: Path | None) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._path = path
        self._lock = threading.Lock()
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                verdict = Verdict(**json.loads(line))
                self.verdicts[verdict.name] = verdict

    def add(self, verdict: Verdict) -> None:
        """Keep a verdict, and say it."""
        with self._lock:
            self.verdicts[verdict.name] = verdict
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps(verdict._asdict()) + "\n")
            print(line_of(verdict), flush=True)


def work(waiting: deque[Fault], judge: Judge, results: Results) -> None:
    """Take one fault after the other to one copy."""
    copy = Copy()
    try:
        while waiting:
            fault = waiting.popleft()
            results.add(judge(copy, fault))
    finally:
        copy.close()


def line_of(verdict: Verdict) -> str:
    """One line of the table."""
    seeds = "" if verdict.seeds is None else str(verdict.seeds)
    return f"{verdict.name:<62} {seeds:>7} {verdict.seconds:7.1f} s  {verdict.by or 'NOTHING'}"


def summary(faults: Iterable[Fault], results: Results) -> list[str]:
    """The table: what was noticed, by the seeds it took, and then what was not."""
    found = [results.verdicts[fault.name] for fault in faults if fault.name in results.verdicts]
    found.sort(key=lambda each: (not each.is_noticed, each.seeds or 0))
    noticed = sum(each.is_noticed for each in found)
    return [*map(line_of, found), f"{noticed} of {len(found)} planted faults were noticed"]


def main() -> int:
    """Return 1 if something was not noticed."""
    options = arguments()
    faults = load(LISTS[options.list])
    if options.names:
        faults = [f for f in faults if any(fnmatch(f.name, each) for each in options.names)]
    for fault in faults:  # before the first hour is over
        fault.plant(Sources.of_package())
    results = Results(options.record)
    waiting = deque(fault for fault in faults if fault.name not in results.verdicts)
    shared = (waiting, judge_of(options), results)
    with ThreadPoolExecutor(options.jobs) as threads:
        ends = [threads.submit(work, *shared) for _ in range(options.jobs)]
    for end in ends:
        end.result()  # a worker that failed has left faults out
    print("", *summary(faults, results), sep="\n")
    return int(any(not verdict.is_noticed for verdict in results.verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
