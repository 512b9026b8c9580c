"""The loop that repeats what fails for a while, until a deadline."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka._retry import OutOfTimeError, until, within
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
)
from aiokafka.testing.simulation import simulate

PASSING = KafkaConnectionError
OTHER = TopicAuthorizationFailedError


class Attempts:
    """Fails with one error after the other, then returns how often it was asked."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.times: list[float] = []

    async def __call__(self) -> int:
        self.times.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)
        return len(self.times)


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_what_passes_is_repeated_after_a_pause() -> None:
    async def main(_: object) -> None:
        attempts = Attempts(PASSING("one"), NotCoordinatorForGroupError("two"))
        seen: list[KafkaError] = []

        def pause(error: KafkaError) -> float:
            seen.append(error)
            return float(len(seen))

        assert await until(now() + 60, attempts, pause) == 3
        first, second, third = attempts.times
        assert second - first == pytest.approx(1, abs=0.01)
        assert third - second == pytest.approx(2, abs=0.01)
        assert [type(error) for error in seen] == [PASSING, NotCoordinatorForGroupError]

    simulate(main)


async def test_what_does_not_pass_is_raised_as_it_is() -> None:
    error = OTHER("t")
    attempts = Attempts(PASSING("one"), error)
    with pytest.raises(OTHER) as raised:
        await until(now() + 60, attempts, lambda _: 0.0)
    assert raised.value is error


async def test_the_caller_chooses_what_passes() -> None:
    attempts = Attempts(OTHER("t"))
    found = await until(now() + 60, attempts, lambda _: 0.0, lambda e: isinstance(e, OTHER))
    assert found == 2


def test_the_last_failure_is_known_at_the_deadline() -> None:
    async def main(_: object) -> None:
        begun = now()
        last = PASSING("two")
        attempts = Attempts(PASSING("one"), last, *(OTHER("late"),))
        with pytest.raises(OutOfTimeError) as raised:
            await until(begun + 10, attempts, lambda _: 6.0)
        assert raised.value.failure is last
        assert raised.value.__cause__ is last
        assert now() - begun == pytest.approx(10, abs=0.01)
        assert len(attempts.times) == 2

    simulate(main)


def test_an_attempt_that_hangs_ends_at_the_deadline() -> None:
    async def main(_: object) -> None:
        begun = now()
        with pytest.raises(OutOfTimeError) as raised:
            await until(begun + 5, within(begun + 5, never), lambda _: 0.0)
        assert raised.value.failure is None
        assert now() - begun == pytest.approx(5, abs=0.01)

    simulate(main)


@pytest.mark.parametrize("knows", [False, True])
async def test_a_timeout_inside_is_raised_only_if_it_knows_more(knows: bool) -> None:
    inner = KafkaTimeoutError("no coordinator in time")
    inner.__cause__ = PASSING("refused") if knows else None
    attempts = Attempts(PASSING("one"), inner)
    with pytest.raises(KafkaTimeoutError if knows else OutOfTimeError) as raised:
        await until(now() + 60, attempts, lambda _: 0.0)
    assert (raised.value is inner) is knows


async def test_a_timeout_of_the_first_attempt_is_raised_as_it_is() -> None:
    inner = KafkaTimeoutError("no coordinator in time")
    with pytest.raises(KafkaTimeoutError) as raised:
        await until(now() + 60, Attempts(inner), lambda _: 0.0)
    assert raised.value is inner


async def test_a_cancelled_caller_ends_it_at_once() -> None:
    task = asyncio.create_task(until(now() + 60, Attempts(PASSING("one")), lambda _: 60.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_other_exceptions_are_not_retried() -> None:
    with pytest.raises(ZeroDivisionError):
        await until(now() + 60, Attempts(ZeroDivisionError()), lambda _: 0.0)
