"""What must never be logged or left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world import World

# What is an error indeed: a listener or handler that raises on purpose, dead letters, brokers that
# are not reached for as long as a program wants to wait, a static member that comes back before the
# session of the one that has crashed is over, a group that cannot be joined in time.
_TRUE_ERRORS = (
    "raises on purpose",
    "awaited a cancelled task or future",
    "Processing stops: ",
    "parallel:pump failed: KafkaUnreachableError",
    "-dead-letter",
    "UnreleasedInstanceId",
    "FencedInstanceId",
    "The membership ends: KafkaTimeoutError: no coordinator",
)


class _Lines(logging.Handler):
    """Errors are violations; with tracing, everything goes to the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.DEBUG if world.is_tracing else logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        if world.is_tracing:
            text = record.getMessage().splitlines()[0]
            world.trace_line("log", f"{record.levelname} {record.name}", text)
        if record.levelno >= logging.ERROR:
            text = f"{record.name}: {logging.Formatter().format(record)}"
            if not any(words in text for words in _TRUE_ERRORS):
                world.violate("error logged", text)


@contextmanager
def watching(world: World) -> Iterator[None]:
    """Take note of what is logged, of warnings, and of what the loop complains about."""
    handler = _Lines(world)
    loggers = [logging.getLogger(name) for name in ("aiokafka", "asyncio")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if world.is_tracing else logging.ERROR)
        logger.propagate = False
    world.loop.set_exception_handler(lambda loop, context: _complain(world, context))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.showwarning = lambda message, category, *rest: _warn(world, message, category)
            warnings.simplefilter("always", ResourceWarning)
            warnings.simplefilter("always", RuntimeWarning)
            yield
            gc.collect()  # what is lost is told when it is collected
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def _complain(world: World, context: dict[str, Any]) -> None:
    error = context.get("exception")
    world.violate("loop complains", f"{context.get('message')}: {error!r}", error)


def _warn(world: World, message: Warning | str, category: type[Warning]) -> None:
    world.violate("warning", f"{category.__name__}: {message}")


def look_for_leftovers(world: World, ours: set[asyncio.Task[Any]]) -> None:
    """All clients and brokers are stopped: nothing may be left that could still happen."""
    left = [task for task in asyncio.all_tasks() if task not in ours]
    for task in sorted(left, key=lambda task: task.get_name()):
        world.violate("task left", f"{task.get_name()}: {task.get_coro()!r}")
    for handle in world.loop.timers():
        if handle.when() > world.now + 0.01:
            world.violate("timer left", repr(handle))
    for transport in world.simulation.network.open_transports():
        side = "client" if transport.is_client else "server"
        world.violate("connection left", f"{side} end of connection {transport.number}")
    for future, sent in world.history.open_futures.items():
        if not future.done():
            world.violate("open futures", f"{sent!r} never ended")
    for failure in world.cluster.failures:
        world.violate("cluster failed", repr(failure), failure)
