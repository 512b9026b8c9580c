"""User names and passwords that functions give: what is wrong with them is said, in time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError, renewed
from aiokafka.net.connector import Connector
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest
from aiokafka.testing import FakeCluster, Security
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.support import USER, config, now, plain_answers, scripted_broker, split
from tests.support.tokens import Token


def connector(address: str, **options: Any) -> Connector:
    return Connector(config(address, **{**USER, **options}), *split(address), "")


async def forever() -> str:
    await asyncio.Event().wait()
    raise AssertionError


def lost() -> str:
    raise KafkaConnectionError("the vault is away")


def broken() -> str:
    raise LookupError("hunter2")


async def nothing() -> Any:
    return None


WRONG: list[tuple[Callable[[], Any], type[KafkaError], str]] = [
    (nothing, AuthenticationFailedError, "returned NoneType, not a non-empty string"),
    (lambda: "", AuthenticationFailedError, "returned str, not a non-empty string"),
    (lambda: b"hunter2", AuthenticationFailedError, "returned bytes, not a non-empty"),
    (lambda: "hunter\0002", AuthenticationFailedError, "a string with a zero byte"),
    (lambda: "hunter2\ud800", AuthenticationFailedError, "a string with a lone surrogate"),
    (lost, KafkaConnectionError, "the vault is away"),
    (broken, KafkaConnectionError, "the function failed: LookupError"),
    (forever, KafkaConnectionError, "PLAIN: no credentials within"),
]


@pytest.mark.parametrize("keyword", ["sasl_plain_username", "sasl_plain_password"])
@pytest.mark.parametrize(
    ("source", "error", "said"), [pytest.param(*case, id=case[2][:30]) for case in WRONG]
)
async def test_what_is_no_text_is_not_sent(
    keyword: str, source: Callable[[], Any], error: type[KafkaError], said: str
) -> None:
    asked: list[object] = []
    answers = plain_answers()
    answer = answers[SaslAuthenticateRequest]
    answers[SaslAuthenticateRequest] = lambda request: asked.append(request) or answer(request)
    async with scripted_broker(answers) as address:
        with pytest.raises(error, match=said) as caught:
            await connector(address, **{keyword: source}).open(now() + 0.5)
    assert "hunter" not in str(caught.value)
    assert not asked


async def test_a_token_that_does_not_come() -> None:
    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return await forever()

    options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    async with scripted_broker(plain_answers()) as address:
        with pytest.raises(KafkaConnectionError, match="OAUTHBEARER: no credentials within 0"):
            await connector(address, **options).open(now() + 0.5)


async def test_functions_that_give_what_is_right() -> None:
    async def password() -> str:
        return "sécret"

    options: dict[str, Any] = {
        "sasl_plain_username": lambda: "alice",
        "sasl_plain_password": password,
    }
    async with scripted_broker(plain_answers()) as address:
        connection = await connector(address, **options).open(now() + 5)
        assert (connection.is_ready, connection.user) == (True, "alice")
        connection.abort()
        await connection.closed


# -- what a function awaits is cancelled, and the connection is not


needs_count = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python cannot tell what was cancelled"
)


async def cancelled() -> Any:
    task = asyncio.create_task(forever())
    task.cancel()
    return await task


@needs_count
@pytest.mark.parametrize("keyword", ["sasl_plain_username", "sasl_plain_password", "ssl_context"])
async def test_what_a_function_awaits_is_cancelled(keyword: str) -> None:
    protocol = "SASL_SSL" if keyword == "ssl_context" else "SASL_PLAINTEXT"
    options = {keyword: cancelled, "security_protocol": protocol}
    async with scripted_broker(plain_answers()) as address:
        with pytest.raises(KafkaConnectionError, match=f"{keyword}.*awaited a cancelled task"):
            await connector(address, **options).open(now() + 5)


class SharedTask(AbstractTokenProvider):
    """Lets all that ask wait for one task, which ends when one of them is cancelled."""

    def __init__(self) -> None:
        self.task: asyncio.Task[str] | None = None

    async def token(self) -> str:
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._fetch())
        return await self.task

    async def _fetch(self) -> str:
        await asyncio.sleep(1)
        return await Token().token()

    async def cancel(self) -> None:
        while self.task is None or not self.task.cancel():
            await asyncio.sleep(0.1)


@needs_count
@pytest.mark.parametrize("session_lifetime_ms", [0, 10_000])
def test_a_client_outlives_the_cancelled_task_of_its_provider(session_lifetime_ms: int) -> None:
    """With the background task, the whole client ended for good."""

    async def main(simulation: Simulation) -> None:
        rules = Security(session_lifetime_ms=session_lifetime_ms)
        async with FakeCluster(security=rules) as cluster:
            await cluster.create_topic("t")
            provider = SharedTask()
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=provider,
            ) as producer:
                if not session_lifetime_ms:
                    cluster.drop_connections()
                await asyncio.gather(producer.send_and_wait("t", b"one"), provider.cancel())
                await asyncio.sleep(5)
                await producer.send_and_wait("t", b"two")
            assert len(cluster.log("t").records()) == 2

    simulate(main)


# -- errors of applications, which are given to many


class Particular(Exception):
    """Cannot be copied: its constructor takes other arguments than it keeps."""

    def __init__(self, place: str, number: int) -> None:
        super().__init__(f"{place} {number}")


class Proud(Exception):
    """Copies of it are of another kind."""

    def __reduce__(self) -> Any:
        return (ValueError, ("another",))


class Single(Exception):
    """There is one of it."""

    def __copy__(self) -> Single:
        return self


@pytest.mark.parametrize("error", [Particular("desk", 7), Proud("mine"), Single("only")])
def test_what_cannot_be_copied_keeps_its_words(error: Exception) -> None:
    error.__cause__ = LookupError("why")
    twin = renewed(error)
    assert twin is not error
    assert type(twin) is KafkaError
    assert f"{type(error).__name__}: {error}" in str(twin)
    assert twin.__cause__ is error.__cause__
