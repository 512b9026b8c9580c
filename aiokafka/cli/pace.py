"""How fast a stream of records goes: a limit, and a line on stderr about it."""

from __future__ import annotations

import asyncio
import sys
import time

__all__ = ["Limit", "Progress"]


class Limit:
    """Holds a stream to so many records per second; None is no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        #: How many records to handle between two calls of `wait`.
        self.step = 10_000 if rate is None else max(1, int(rate / 20))
        self._start: float | None = None
        self._count = 0

    async def wait(self, count: int) -> None:
        """Wait until the next `count` records may go."""
        if self._rate is None:
            return
        now = time.monotonic()
        if self._start is None:
            self._start = now
        early = self._start + self._count / self._rate - now
        if early > 0:
            await asyncio.sleep(early)
        elif early < -1:
            # The source was slow. What it missed is not made up for.
            self._start -= early
        self._count += count


class Progress:
    """Prints records, bytes and rates on stderr, at most twice a second."""

    def __init__(self, verb: str, shown: bool) -> None:
        self._verb = verb
        self._shown = shown
        self.records = 0
        self.bytes = 0
        self._began = self._printed = time.monotonic()
        self._before = 0

    def add(self, records: int, size: int) -> None:
        """Count records, and print if it is time."""
        self.records += records
        self.bytes += size
        if self._shown and (now := time.monotonic()) - self._printed >= 0.5:
            rate = (self.records - self._before) / (now - self._printed)
            self._printed, self._before = now, self.records
            self._print(f"{self._counts()}  {rate:,.0f} records/s", "\r")

    def end(self) -> None:
        """Print the sums."""
        if self._shown:
            took = max(time.monotonic() - self._began, 1e-9)
            rates = f"{self.records / took:,.0f} records/s, {self.bytes / took / 1e6:,.1f} MB/s"
            self._print(f"{self._counts()} in {took:.1f} s: {rates}", "\n")

    def _counts(self) -> str:
        return f"{self._verb} {self.records:,} records, {self.bytes / 1e6:,.1f} MB"

    def _print(self, text: str, end: str) -> None:
        # On a terminal the line before is drawn over.
        clear = "\x1b[K" if sys.stderr.isatty() else ""
        end = end if sys.stderr.isatty() else "\n"
        try:
            sys.stderr.write(f"{text}{clear}{end}")
            sys.stderr.flush()
        except OSError:
            # Its reader has gone. The records go on: that is what the command is for.
            self._shown = False
