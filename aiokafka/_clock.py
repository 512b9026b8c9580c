"""Where the library takes times, random bytes and numbers of its objects from.

Everything else that a simulation has to decide (timers, sockets, threads, names) goes through the
event loop already. These do not, so `aiokafka.testing.simulation` puts its own functions here
for as long as a simulated loop runs. Call them through the module: ``_clock.wall_time()``.
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
"""Seconds of a clock that is never set, also outside of an event loop."""

random_bytes: Callable[[int], bytes] = os.urandom
"""So many bytes that cannot be guessed."""

next_number: Callable[[], int] = itertools.count(1).__next__
"""A number that no object before had, for names."""


def random_uuid() -> uuid.UUID:
    """Return a UUID of version 4, made of `random_bytes`."""
    import uuid  # slow to import: it looks at the platform

    return uuid.UUID(bytes=random_bytes(16), version=4)
