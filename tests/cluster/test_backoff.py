"""Delays grow, are spread, and have an upper bound."""

from __future__ import annotations

import pytest

from aiokafka._retry import Backoff


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(0.1, 1.0, jitter=0.0)
    assert [round(backoff.next(), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff.failures == 6


def test_reset_starts_again() -> None:
    backoff = Backoff(0.1, 1.0, jitter=0.0)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.peek() == pytest.approx(0.1)
    assert backoff.failures == 0


def test_jitter_spreads_by_a_fifth() -> None:
    delays = [Backoff(1.0, 1.0).next() for _ in range(300)]
    assert min(delays) >= 0.8
    assert max(delays) <= 1.2
    assert max(delays) - min(delays) > 0.1


def test_thousands_of_failures_do_not_overflow() -> None:
    backoff = Backoff(0.1, 30.0, jitter=0.0)
    for _ in range(5000):
        backoff.next()
    assert backoff.next() == 30.0


def test_a_maximum_below_the_start_is_the_start() -> None:
    assert Backoff(0.5, 0.1, jitter=0.0).next() == 0.5
