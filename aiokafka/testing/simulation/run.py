"""One run of a program in virtual time, reproducible by its seed."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import _clock
from aiokafka.testing.cluster import FakeCluster
from aiokafka.testing.simulation.chaos import Chaos, Faults
from aiokafka.testing.simulation.loop import (
    BusyLoopError,
    SimulatedLoop,
    SimulationError,
    StuckError,
    VirtualTimeError,
)
from aiokafka.testing.simulation.timeline import Timeline

__all__ = ["Simulation", "simulate"]

T = TypeVar("T")

# Virtual seconds after the end of a run, within which the cancelled tasks must end.
_LAST_SECONDS = 30.0
_MOST_NAMED = 20

_OURS, _ASYNCIO = Path(__file__).parents[2], Path(asyncio.__file__).parent


class Simulation:
    """One run of a program in virtual time: its loop, its network, and its seed.

    Args:
        seed: Determines all random decisions.
        limit_s: Virtual seconds after which the run fails.
        recording: Record requests, responses and log messages in :attr:`timeline`. By default the
            timeline has notes and faults only.
    """

    def __init__(self, seed: int = 0, *, limit_s: float = 3600.0, recording: bool = False) -> None:
        #: The argument `seed`: runs with the same seed make the same random decisions.
        self.seed = seed
        self.loop = SimulatedLoop(seed)
        self.network = self.loop.network
        #: The recorded events of the run, as text; see `recording`.
        self.timeline = Timeline(self.loop)
        self._limit = limit_s
        self._is_recording = recording
        #: Random source for the test, independent of the random decisions of the loop and network.
        self.random = random.Random(f"test {seed}")
        #: Fingerprint of the run, set at its end: equal runs have equal fingerprints.
        self.trace = ""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, close the loop, and return the result or raise the exception of
        `main`. A simulation runs once.

        Raises:
            StuckError: `main` waits, and no event or timer is left.
            VirtualTimeError: `main` did not end within `limit_s`.
            BusyLoopError: a callback runs in every turn of the loop, which never waits.
            RuntimeError: the caller runs in another loop, or the simulation has run before.
        """
        try:
            self._check()
        except RuntimeError:
            main.close()
            self.loop.close()
            raise
        with self._with_replaced_sources():
            if self._is_recording:
                self.timeline.begin(self.network)
            task = self.loop.create_task(main, name="main")
            try:
                self.loop.limit(self._limit)
                return self.loop.run_until_complete(task)  # type: ignore[no-any-return]
            except (StuckError, VirtualTimeError, BusyLoopError) as error:
                self._explain(error)
                raise
            finally:
                self.trace = self._fingerprint()
                self._finish()
                self.timeline.end()

    # -- for the program

    def cluster(self, brokers: int = 3, **options: Any) -> FakeCluster:
        """Return a Kafka cluster for this run; ``async with`` starts and stops the cluster.

        Args:
            brokers: Number of brokers.
            options: Further arguments of :class:`aiokafka.testing.FakeCluster`.
        """
        return FakeCluster(brokers, **{"seed": self.seed, **options})

    def faults(self, cluster: FakeCluster) -> Faults:
        """Return a :class:`Faults` object, to inflict single faults between program and cluster."""
        return Faults(self, cluster)

    def chaos(self, cluster: FakeCluster, **options: Any) -> Chaos:
        """Return a context manager that inflicts random faults while its ``async with`` block runs.

        Args:
            cluster: The cluster to break.
            options: Further arguments of :class:`Chaos`.
        """
        return Chaos(self, cluster, **options)

    def note(self, text: str) -> None:
        """Add a line to the timeline."""
        self.timeline.note(text)

    def wall_time(self) -> float:
        """Return the time of day in the run, in seconds since 1970."""
        return self.loop.wall_time()

    # -- for the run

    def _check(self) -> None:
        if self.loop.is_closed():
            raise RuntimeError("a simulation runs once: make another one with the same seed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise RuntimeError("a simulation has a loop of its own: run it outside of async functions")

    def _fingerprint(self) -> str:
        # The next random number shows how many were drawn before: each timer and event draws one.
        loop = self.loop
        return f"{self.network.checksum:08x}-{loop.turns}-{loop.now:.9f}-{loop.random.random()}"

    @contextmanager
    def _with_replaced_sources(self) -> Iterator[None]:
        """Replace aiokafka's clocks and random sources by those of the run, and seed `random`,
        during the block."""
        saved = _clock.wall_time, _clock.random_bytes, _clock.next_number, _clock.running_time
        state = random.getstate()
        _clock.wall_time, _clock.random_bytes = self.loop.wall_time, self.loop.random.randbytes
        _clock.next_number, _clock.running_time = itertools.count(1).__next__, self.loop.time
        random.seed(f"library {self.seed}")
        try:
            yield
        finally:
            random.setstate(state)
            _clock.wall_time, _clock.random_bytes, _clock.next_number, _clock.running_time = saved

    def _explain(self, error: SimulationError) -> None:
        """Add the seed, and where each task waits, to the text of the error."""
        tasks = self.loop.tasks()
        lines = [f"  {task.get_name()}: {_where_waiting(task)}" for task in tasks[:_MOST_NAMED]]
        if len(tasks) > _MOST_NAMED:
            lines.append(f"  and {len(tasks) - _MOST_NAMED} more")
        error.args = ("\n".join([f"{error} (seed {self.seed}). Its tasks:", *lines]),)

    def _finish(self) -> None:
        """Cancel the remaining tasks, as asyncio.run() does, and close the loop."""
        loop = self.loop
        try:
            left = loop.tasks()
            for task in left:
                task.cancel()
            loop.limit(2 * _LAST_SECONDS)
            with suppress(SimulationError):
                if left:
                    loop.run_until_complete(asyncio.wait(left, timeout=_LAST_SECONDS))
                    _report(loop, left)
                loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


def _report(loop: SimulatedLoop, tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception() is not None:
            loop.call_exception_handler(
                {
                    "message": "unhandled exception while the simulation ended",
                    "exception": task.exception(),
                    "task": task,
                }
            )


def _where_waiting(task: asyncio.Task[Any]) -> str:
    """Return where a task waits: the innermost functions of the program and of aiokafka, with line
    numbers; without either, the innermost function of asyncio.
    """
    inner: Any = task.get_coro()
    name = getattr(inner, "__qualname__", repr(inner))
    found: dict[Path | None, str] = {}  # innermost functions; key None is the program
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is not None:
            path = Path(frame.f_code.co_filename)
            owner = next((each for each in (_OURS, _ASYNCIO) if each in path.parents), None)
            found.pop(owner, None)
            found[owner] = f"{frame.f_code.co_name}, {path.name}:{frame.f_lineno}"
        inner = getattr(inner, "cr_await", None)
    asyncios = found.pop(_ASYNCIO, name)
    return " in ".join(found[owner] for owner in (None, _OURS) if owner in found) or asyncios


def simulate(
    main: Callable[[Simulation], Coroutine[Any, Any, T]], *, seed: int = 0, limit_s: float = 3600.0
) -> T:
    """Run `main(simulation)` in virtual time, with a network in memory.

    Args:
        main: The program, as an ``async`` function.
        seed: Seed of latencies, the order of events and random faults. The same seed produces
            the same run.
        limit_s: Virtual seconds after which :class:`VirtualTimeError` ends the run.

    Returns:
        The result of `main`.

    Raises:
        StuckError: `main` waits, and no event or timer is left.
        VirtualTimeError: `main` did not end within `limit_s`.
        BusyLoopError: a callback runs in every turn of the loop, which never waits.
    """
    simulation = Simulation(seed, limit_s=limit_s)
    return simulation.run(main(simulation))
