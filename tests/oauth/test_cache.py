"""Tokens are kept, replaced in time, and fetched once for all who ask."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys

import pytest

from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError
from aiokafka.oauth import Token
from tests.oauth.support import REFUSED, SECRET, UNREACHABLE, Source


async def eventually(source: Source) -> str:
    """A token, when the pause is over in which there is none."""
    while True:
        try:
            return await source.token()
        except KafkaError:
            await asyncio.sleep(0.001)


async def test_a_token_is_kept() -> None:
    source = Source(300.0)
    assert await source.token() == await source.token() == f"{SECRET}-1"
    assert source.fetched == 1


async def test_a_hundred_who_ask_at_once_fetch_once() -> None:
    source = Source(300.0)
    tokens = await asyncio.gather(*(source.token() for _ in range(100)))
    assert set(tokens) == {f"{SECRET}-1"}
    assert source.fetched == 1


async def test_a_hundred_who_ask_at_once_share_the_failure() -> None:
    source = Source(REFUSED, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    results = await asyncio.gather(*(source.token() for _ in range(100)), return_exceptions=True)
    assert all(isinstance(found, AuthenticationFailedError) for found in results)
    assert len({id(found) for found in results}) == 100
    assert source.fetched == 1


async def test_in_the_pause_after_a_failure_nobody_is_asked() -> None:
    source = Source(REFUSED, 300.0, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    for _ in range(50):
        with pytest.raises(AuthenticationFailedError, match="not you"):
            await source.token()
    assert source.fetched == 1


async def test_after_the_pause_it_is_tried_again() -> None:
    source = Source(REFUSED, 300.0)
    with pytest.raises(AuthenticationFailedError):
        await source.token()
    assert await eventually(source) == f"{SECRET}-2"


async def test_an_outage_is_tried_again_within_one_call() -> None:
    source = Source(UNREACHABLE, OSError("reset"), asyncio.TimeoutError(), 300.0)
    assert await source.token() == f"{SECRET}-4"


async def test_an_outage_at_the_start_ends_as_a_connection_error() -> None:
    source = Source(UNREACHABLE, token_timeout_ms=500)
    with pytest.raises(KafkaConnectionError, match="the identity provider is away") as caught:
        await source.token()
    assert caught.value.retriable
    assert source.fetched > 1


async def test_an_outage_later_ends_as_a_connection_error() -> None:
    source = Source(0.001, UNREACHABLE, token_timeout_ms=500)
    await source.token()
    await asyncio.sleep(0.01)
    with pytest.raises(KafkaConnectionError, match="the identity provider is away"):
        await source.token()


async def test_a_silent_provider_is_given_up() -> None:
    source = Source(300.0, token_timeout_ms=20)
    source.may_go_on.clear()
    with pytest.raises(KafkaConnectionError, match=r"no token within 0\.02 s"):
        await source.token()


# A token of 600 s that is to be replaced right away.
AGED = {"refresh_min_period_seconds": 0, "refresh_buffer_seconds": 600}


async def test_an_old_token_is_replaced_by_one_while_the_others_go_on() -> None:
    source = Source(600.0, **AGED)
    await source.token()
    source.may_go_on.clear()
    source.is_fetching.clear()
    leader = asyncio.create_task(source.token())
    await source.is_fetching.wait()
    assert [await source.token() for _ in range(10)] == [f"{SECRET}-1"] * 10
    source.may_go_on.set()
    assert await leader == f"{SECRET}-2"
    assert source.fetched == 2


@pytest.mark.parametrize("failure", [REFUSED, UNREACHABLE, ValueError("odd")])
async def test_while_replacing_fails_the_old_token_is_used(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    source = Source(600.0, failure, **AGED, **pauses)
    with caplog.at_level(logging.WARNING, "aiokafka.oauth"):
        assert [await source.token() for _ in range(10)] == [f"{SECRET}-1"] * 10
    assert source.fetched == 2
    assert "still valid" in caplog.text
    assert SECRET not in caplog.text


async def test_a_cancelled_leader_hands_over() -> None:
    source = Source(300.0)
    source.may_go_on.clear()
    first = asyncio.create_task(source.token())
    await source.is_fetching.wait()
    others = [asyncio.create_task(source.token()) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    source.may_go_on.set()
    assert await asyncio.gather(*others) == [f"{SECRET}-2"] * 5
    assert first.cancelled()
    assert source.fetched == 2


async def test_a_cancelled_waiter_harms_nobody() -> None:
    source = Source(300.0)
    source.may_go_on.clear()
    tasks = [asyncio.create_task(source.token()) for _ in range(5)]
    await source.is_fetching.wait()
    tasks[3].cancel()
    source.may_go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [found for found in results if isinstance(found, str)] == [f"{SECRET}-1"] * 4


async def test_a_refused_token_is_replaced_at_once() -> None:
    source = Source(300.0)
    source.refused(await source.token())
    assert await source.token() == f"{SECRET}-2"
    source.refused(f"{SECRET}-1")
    assert await source.token() == f"{SECRET}-2"
    assert source.fetched == 2


async def test_a_broker_that_refuses_takes_nothing_from_the_others() -> None:
    source = Source(300.0, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    for _ in range(200):
        # One broker refuses whatever it gets, the others are asked in between.
        source.refused(await source.token())
        assert await source.token()
    # At once, and then not before a pause of a minute is over.
    assert source.fetched == 2


async def test_refusals_lead_to_other_tokens_again_and_again() -> None:
    source = Source(300.0)
    while source.fetched < 5:
        source.refused(await source.token())
        await asyncio.sleep(0.001)


async def test_a_refused_token_is_used_while_there_is_no_other() -> None:
    source = Source(300.0, UNREACHABLE, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    source.refused(await source.token())
    assert [await source.token() for _ in range(5)] == [f"{SECRET}-1"] * 5
    assert source.fetched == 2


async def test_a_token_that_has_expired_already_is_refused() -> None:
    with pytest.raises(AuthenticationFailedError, match="clock"):
        await Source(-5.0).token()


async def test_errors_of_other_kinds_do_not_show_their_text() -> None:
    with pytest.raises(AuthenticationFailedError) as caught:
        await Source(ValueError(SECRET)).token()
    assert SECRET not in str(caught.value)
    assert "ValueError" in str(caught.value)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python cannot tell what was cancelled")
async def test_what_a_fetch_awaits_is_cancelled_and_it_is_tried_again() -> None:
    class Cancelled(Source):
        async def fetch(self) -> Token:
            if not self.fetched:
                self.fetched += 1
                task = asyncio.create_task(asyncio.Event().wait())
                task.cancel()
                await task
            return await super().fetch()

    source = Cancelled(300.0)
    assert await source.token() == f"{SECRET}-2"


def test_one_provider_serves_one_loop_after_the_other() -> None:
    async def twice(source: Source) -> set[str]:
        return set(await asyncio.gather(source.token(), source.token()))

    async def make() -> Source:
        source = Source(300.0)
        await twice(source)
        source.refused(f"{SECRET}-1")
        return source

    source = asyncio.run(make())
    source.may_go_on = asyncio.Event()
    source.may_go_on.set()
    assert asyncio.run(twice(source)) == {f"{SECRET}-2"}
    gc.collect()


async def test_secrets_are_not_shown() -> None:
    source = Source(300.0, extensions={"logicalCluster": "one"})
    await source.token()
    assert SECRET not in repr(source) + repr(Token(SECRET, 1.0)) + repr(vars(source))
    assert source.extensions() == {"logicalCluster": "one"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("refresh_window_factor", 0.4),
        ("refresh_window_factor", True),
        ("refresh_window_jitter", 0.3),
        ("refresh_buffer_seconds", -1),
        ("retry_backoff_ms", 0),
        ("token_timeout_ms", None),
        ("connect_timeout_ms", "1"),
        ("no_such_option", 1),
    ],
)
async def test_wrong_options_are_named(option: str, value: object) -> None:
    with pytest.raises((ValueError, TypeError), match=option):
        Source(300.0, **{option: value})


async def test_every_error_is_a_kafka_error() -> None:
    for failure in (REFUSED, UNREACHABLE, OSError("x"), RuntimeError("x"), TimeoutError()):
        with pytest.raises(KafkaError):
            await Source(failure, token_timeout_ms=5).token()
