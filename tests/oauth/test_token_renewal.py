"""When tokens are replaced: by which clock, how early, and how soon after failures."""

from __future__ import annotations

import pytest

from aiokafka import _clock
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from tests.oauth.support import REFUSED, SECRET, UNREACHABLE, Source


class Clocks:
    """The clocks of the machine, which a test can set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = self.wall = 0.0
        running, wall = _clock.running_time, _clock.wall_time
        monkeypatch.setattr(_clock, "running_time", lambda: running() + self.running)
        monkeypatch.setattr(_clock, "wall_time", lambda: wall() + self.wall)

    def go_on(self, seconds: float) -> None:
        self.running += seconds
        self.wall += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.mark.parametrize("clock", ["running", "wall"])
async def test_a_token_has_expired_by_either_clock(clocks: Clocks, clock: str) -> None:
    """One stands still while the machine sleeps, the other may be set."""
    source = Source(1000.0)
    await source.token()
    setattr(clocks, clock, 2000.0)
    assert await source.token() == f"{SECRET}-2"


async def test_a_token_is_kept_for_the_shortest_period(clocks: Clocks) -> None:
    options = {"refresh_buffer_seconds": 0, "refresh_window_jitter": 0.0}
    source = Source(610.0, refresh_min_period_seconds=600, **options)
    await source.token()
    clocks.go_on(550.0)  # more than 0.8 of its life
    assert await source.token() == f"{SECRET}-1"
    clocks.go_on(52.0)
    assert await source.token() == f"{SECRET}-2"


async def test_one_that_will_do_is_not_waited_for(clocks: Clocks) -> None:
    source = Source(1000.0, UNREACHABLE, refresh_buffer_seconds=0, refresh_min_period_seconds=0)
    await source.token()
    clocks.go_on(900.0)
    assert await source.token() == f"{SECRET}-1"
    assert source.fetched == 2


async def test_pauses_are_short_again_after_a_success(clocks: Clocks) -> None:
    outage = [REFUSED] * 10
    pauses = {"retry_backoff_ms": 1000, "retry_backoff_max_ms": 600_000}
    source = Source(*outage, 10.0, REFUSED, 300.0, **pauses)
    for _ in outage:
        with pytest.raises(AuthenticationFailedError):
            await source.token()
        clocks.go_on(1000.0)
    await source.token()
    clocks.go_on(10.0)
    with pytest.raises(AuthenticationFailedError):
        await source.token()
    clocks.go_on(2.0)
    assert await source.token() == f"{SECRET}-13"


async def test_during_a_pause_the_reason_is_told(clocks: Clocks) -> None:
    source = Source(UNREACHABLE, token_timeout_ms=5, retry_backoff_ms=600_000)
    for _ in range(3):
        with pytest.raises(KafkaConnectionError, match="the identity provider is away"):
            await source.token()
    assert source.fetched == 1
