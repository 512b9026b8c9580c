"""Exponential delays with jitter (KIP-144, KIP-580). Pure: nothing here sleeps."""

from __future__ import annotations

import random

__all__ = ["MOST_PROMPT_ATTEMPTS", "Backoff"]

MOST_PROMPT_ATTEMPTS = 3
"""So many attempts in a row without a pause, if another leader is known after each: brokers may
name each other."""

# 2 ** 64 * any sane delay is far above any sane maximum; more would only overflow the float.
_MAX_DOUBLINGS = 64


class Backoff:
    """Delays that grow from `initial` to `maximum` seconds, each spread by `jitter` so that
    clients do not march in step."""

    __slots__ = ("_initial", "_jitter", "_maximum", "_multiplier", "failures")

    def __init__(
        self, initial: float, maximum: float, multiplier: float = 2.0, jitter: float = 0.2
    ) -> None:
        self._initial = initial
        self._maximum = max(initial, maximum)
        self._multiplier = multiplier
        self._jitter = jitter
        self.failures = 0

    def next(self) -> float:
        """Count one more failure, and return the seconds to wait before the next attempt."""
        delay = self.peek()
        self.failures += 1
        return delay

    def peek(self) -> float:
        """Return the seconds for the failures counted so far, without counting another."""
        exponent = min(self.failures, _MAX_DOUBLINGS)
        delay = min(self._initial * self._multiplier**exponent, self._maximum)
        return delay * random.uniform(1.0 - self._jitter, 1.0 + self._jitter)

    def reset(self) -> None:
        """Start again from `initial`: the thing worked."""
        self.failures = 0
