"""Run seeds of the simulation one after the other until one breaks a promise.

Run in a copy, by `python -m tests.mutants.hunt FIRST COUNT [KIND ...]`. Each line of its output is
a JSON object: `{"seed": 5}` before a seed is run, `{"seed": 5, "kinds": ["lost"], "text": ...}` for
one that breaks a promise, which is the last.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence

__all__ = ["hunt"]


def hunt(first: int, count: int, kinds: Sequence[str]) -> int:
    """Run `count` seeds from `first` on. Returns 1 when one breaks a promise."""
    # Here, so that a fault that breaks an import is a failure of the first seed.
    from tests.simulation.execution import execute
    from tests.simulation.scenario import draw

    execute(draw(0, kinds))
    gc.collect()
    gc.freeze()  # what was imported need not be looked at after each seed
    for seed in range(first, first + count):
        print(json.dumps({"seed": seed}), flush=True)
        verdict = execute(draw(seed, kinds))
        if verdict.violations:
            found = {"seed": seed, "kinds": sorted(verdict.kinds)}
            print(json.dumps({**found, "text": verdict.violations[0].text[:300]}), flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(hunt(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
