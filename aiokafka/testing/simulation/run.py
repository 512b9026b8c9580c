"""Run a program in simulated time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import _seams
from aiokafka.testing.simulation.loop import SimulatedLoop
from aiokafka.testing.simulation.network import Network

__all__ = ["Simulation", "simulate"]

T = TypeVar("T")


class Simulation:
    """One run: its loop, its network, its seed.

    Args:
        seed: Decides everything that is left to chance.
        limit_s: Virtual seconds after which the run fails.
    """

    def __init__(self, seed: int = 0, *, limit_s: float = 3600.0) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(seed)
        self.network = Network(self.loop)
        self._limit = limit_s
        #: For decisions of a test: independent of how many the loop and the network take.
        self.random = random.Random(f"test {seed}")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end and close the loop.

        Raises what `main` raises, StuckError when nothing can happen any more, VirtualTimeError
        after `limit_s`, BusyLoopError when something spins.
        """
        with self._in_place():
            try:
                self.loop.limit(self._limit)
                return self.loop.run_until_complete(main)
            finally:
                self._finish(main)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Let the library and the standard library take chance and time from this run."""
        seams = _seams.wall_time, _seams.random_bytes
        state = random.getstate()
        _seams.wall_time, _seams.random_bytes = self.loop.wall_time, self.loop.random.randbytes
        random.seed(f"library {self.seed}")
        asyncio.set_event_loop(self.loop)
        try:
            yield
        finally:
            asyncio.set_event_loop(None)
            random.setstate(state)
            _seams.wall_time, _seams.random_bytes = seams

    def _finish(self, main: Coroutine[Any, Any, Any]) -> None:
        """Cancel what is left, so that nothing complains of a loop that is gone."""
        loop = self.loop
        main.close()
        left = asyncio.all_tasks(loop)
        for task in sorted(left, key=lambda task: task.get_name()):
            task.cancel()
        if left:
            loop.limit(60.0)
            with _quiet():
                loop.run_until_complete(asyncio.wait(left, timeout=30.0))
        loop.close()


@contextmanager
def _quiet() -> Iterator[None]:
    try:
        yield
    except Exception:
        pass  # the run has failed already, and that is what counts


def simulate(
    main: Callable[[Simulation], Coroutine[Any, Any, T]], *, seed: int = 0, limit_s: float = 3600.0
) -> T:
    """Run `main(simulation)` in virtual time, with a network in memory.

    Args:
        main: The program, as an ``async`` function.
        seed: Decides latencies, the order of events and every fault drawn by it: the same seed
            gives the same run.
        limit_s: Virtual seconds after which :class:`VirtualTimeError` ends the run.

    Returns:
        What `main` returns.

    Raises:
        StuckError: `main` waits, and nothing is left that could happen.
        VirtualTimeError: `main` did not end within `limit_s`.
        BusyLoopError: something runs again and again without any time going by.
    """
    simulation = Simulation(seed, limit_s=limit_s)
    return simulation.run(main(simulation))
