"""CPU time of a process and of all that it started. Linux only: reads /proc."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_seconds"]

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat, counted from the one behind the name.
_PARENT = 1
_TIMES = slice(11, 15)  # user and system, its own and those of children that have ended


def cpu_seconds(root: int) -> float:
    """User and system time of `root` and its descendants, those that have ended included."""
    found: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # It has just ended; its parent has its time now.
            continue
        fields = stat.rpartition(")")[2].split()
        found[int(folder.name)] = int(fields[_PARENT]), sum(map(int, fields[_TIMES]))
    return sum(ticks for pid, (_, ticks) in found.items() if _is_below(pid, root, found)) / _TICKS


def _is_below(pid: int, root: int, found: dict[int, tuple[int, int]]) -> bool:
    while pid != root and pid in found:
        pid = found[pid][0]
    return pid == root
