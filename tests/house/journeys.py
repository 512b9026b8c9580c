"""Journeys: the modules and function calls of an operation. `python -m tests.house.journeys`.

The client runs in another process, uncompiled and warm, under a profile hook that counts each call
of a function. The fake cluster runs in this process, so only calls of the client are counted. A
move is a call of a function in another module than the call before. `--python` measures another
installation with the same program, for example a virtual environment with aiokafka 0.14. `--show`
prints the path of an operation: a line for each series of calls in one module.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).with_name("journey_program.py")


class Journey(NamedTuple):
    """The calls of one operation: number of modules, of moves and of calls, and the path."""

    modules: int
    moves: int
    calls: int
    path: list[str]


# The limits of modules and moves. The aim is a short path through the code: do not meet a limit by
# putting unrelated things into one module.
BUDGETS = {
    "start in a group": (49, 660),
    "send": (18, 52),
    "transaction": (26, 132),
    "getone": (20, 67),
    "commit": (17, 39),
    "create_topics": (13, 33),
    "modules loaded": (118, 0),
}


async def measure(python: str = sys.executable, path: str = str(REPOSITORY)) -> dict[str, Journey]:
    """Run the program against a fake cluster, and return the journeys by operation."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.testing import FakeCluster

    environment = {**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1", "PYTHONPATH": path}
    async with FakeCluster() as cluster:
        await cluster.create_topic("orders", partitions=1)
        await cluster.create_topic("waited-for", partitions=1)
        process = await asyncio.create_subprocess_exec(
            *(python, str(PROGRAM), cluster.bootstrap_servers),
            stdout=subprocess.PIPE,
            limit=1 << 20,
            env=environment,
            cwd=PROGRAM.parent,
        )
        assert process.stdout is not None
        found: dict[str, Journey] = {}
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            async for line in process.stdout:
                said = json.loads(line)
                if said == "waiting":
                    await producer.send_and_wait("waited-for", b"value")
                else:
                    found = {
                        name: Journey(*figures, path) for name, (figures, path) in said.items()
                    }
        if await process.wait():
            raise SystemExit(f"{PROGRAM.name} failed")
    return found


def over_budget(found: dict[str, Journey]) -> list[str]:
    """Return a text for each operation with more modules or moves than its budget."""
    return [
        f"{name}: {found[name].modules} modules, {found[name].moves} moves, of {modules}, {moves}"
        for name, (modules, moves) in BUDGETS.items()
        if found[name].modules > modules or found[name].moves > moves
    ]


def main() -> int:
    """Print the journeys; return 1 if an operation is over its budget."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.journeys", description=__doc__)
    parser.add_argument("--python", help="the interpreter of another installation")
    parser.add_argument("--show", choices=BUDGETS, help="print the path of this operation")
    options = parser.parse_args()
    python = options.python
    found = asyncio.run(measure(python, "") if python else measure())
    if options.show:
        print(*found[options.show].path, sep="\n")
        return 0
    print(f"{'operation':18}modules  moves  calls   budget")
    for name, journey in found.items():
        budget = "{} / {}".format(*BUDGETS[name]) if name in BUDGETS else ""
        print(f"{name:18}{journey.modules:7} {journey.moves:6} {journey.calls:6}   {budget}")
    over = [] if python else over_budget(found)
    print(*over, sep="\n")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
