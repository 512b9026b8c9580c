"""Sources of time, random bytes and object numbers, which a simulation replaces.

A simulation controls everything else (timers, sockets, threads, name resolution) through the event
loop. `aiokafka.testing.simulation` replaces the functions here while a simulated loop runs, so call
them through the module: ``_clock.wall_time()``.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uuid

__all__ = ["next_number", "random_bytes", "random_uuid", "running_time", "wall_time"]

wall_time: Callable[[], float] = time.time
"""Seconds since 1970."""

running_time: Callable[[], float] = time.perf_counter
"""Seconds of a monotonic clock, also outside of an event loop."""

random_bytes: Callable[[int], bytes] = os.urandom
"""Return this number of cryptographically random bytes."""

next_number: Callable[[], int] = itertools.count(1).__next__
"""Return a number that is unique in the process, for names such as client ids."""


def random_uuid() -> uuid.UUID:
    """Return a UUID (version 4) from `random_bytes`."""
    import uuid  # slow to import, because `uuid` examines the platform

    return uuid.UUID(bytes=random_bytes(16), version=4)
