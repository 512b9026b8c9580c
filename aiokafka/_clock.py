"""Sources of time, random bytes and object numbers, which a simulation replaces.

While a simulated loop runs, `aiokafka.testing.simulation` replaces the functions in this module. So
call them through the module: ``_clock.wall_time()``. Timers, sockets, threads and name resolution
need no replacement, because the simulated event loop provides them.
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
"""Return the seconds since 1970."""

running_time: Callable[[], float] = time.perf_counter
"""Return the seconds of a monotonic clock. The function needs no event loop."""

random_bytes: Callable[[int], bytes] = os.urandom
"""Return cryptographically random bytes; the argument is their number."""

next_number: Callable[[], int] = itertools.count(1).__next__
"""Return a number that is unique in the process, for names such as client ids."""


def random_uuid() -> uuid.UUID:
    """Return a UUID (version 4) from `random_bytes`."""
    import uuid  # imported on demand: `uuid` is slow to import, because it examines the platform

    return uuid.UUID(bytes=random_bytes(16), version=4)
