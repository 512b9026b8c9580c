"""SASL mechanisms of the application (`AbstractSaslMechanism`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.abc import AbstractSaslMechanism
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
)
from aiokafka.testing import FakeCluster, Security
from tests.support.own_sasl import OwnPlain, OwnScram

OWN = pytest.mark.parametrize("kind", [OwnPlain, OwnScram])


def secured(rules: Security | None = None) -> FakeCluster:
    return FakeCluster(security=rules or Security({"alice": "secret"}))


def producer(fake: FakeCluster, mechanism: Any, **options: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=fake.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        **options,
    )


async def start_and_stop(client: AIOKafkaProducer) -> None:
    try:
        await client.start()
    finally:
        await client.stop()


@OWN
async def test_clients_share_a_mechanism(kind: Callable[..., Any]) -> None:
    rules = Security({"alice": "secret"})
    async with secured(rules) as fake:
        mechanism = kind("alice", "secret")
        async with producer(fake, mechanism) as sends:
            await sends.send_and_wait("t", b"1")
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=fake.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            auto_offset_reset="earliest",
            group_id="g",
        )
        async with consumer:
            assert (await consumer.getone()).value == b"1"
        assert len(mechanism.hosts) == rules.logins >= 2
        assert "" not in mechanism.hosts
        assert mechanism.refusals == 0


@OWN
async def test_wrong_credentials_are_refused_at_once(kind: Callable[..., Any]) -> None:
    async with secured() as fake:
        mechanism = kind("alice", "wrong")
        async with timeout(20):
            with pytest.raises(AuthenticationFailedError, match=mechanism.name) as caught:
                await start_and_stop(producer(fake, mechanism))
        assert "wrong" not in str(caught.value)
        assert mechanism.refusals >= 1


@OWN
async def test_a_session_is_renewed(kind: Callable[..., Any]) -> None:
    rules = Security({"alice": "secret"}, session_lifetime_ms=4000)
    async with secured(rules) as fake:
        mechanism = kind("alice", "secret")
        async with producer(fake, mechanism) as sends:
            await sends.send_and_wait("t", b"1")
            await fake.wait_for(lambda: rules.renewals >= 1)
            await sends.send_and_wait("t", b"2")
        assert fake.log("t", 0).end_offset == 2


async def test_a_mechanism_that_the_broker_does_not_offer() -> None:
    class Other(OwnPlain):
        name = "X-OTHER"

    async with secured() as fake:
        with pytest.raises(AuthenticationMethodNotSupported, match="X-OTHER; it offers: PLAIN"):
            await start_and_stop(producer(fake, Other("alice", "secret")))


class Scripted(AbstractSaslMechanism):
    """Fails, ends or waits before or after its first token."""

    name = "SCRAM-SHA-256"

    def __init__(self, script: str, times: int = 10_000) -> None:
        self.script = script
        self.times = times
        self.entered = asyncio.Event()
        self.ended = 0
        self.other = OwnScram("alice", "secret")

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        self.times -= 1
        if self.times < 0:
            tokens = self.other.exchange(host)
            challenge = yield await anext(tokens)
            yield await tokens.asend(challenge)
            return
        try:
            if self.script == "raises first":
                raise OSError("secret")
            if self.script == "waits first":
                self.entered.set()
                await asyncio.Event().wait()
            if self.script == "ends first":
                return
            if self.script == "gives a str":
                yield "token"  # type: ignore[misc]
            yield b"n,,n=alice,r=abc"
            if self.script == "raises second":
                raise KeyError("secret")
            if self.script == "waits second":
                self.entered.set()
                await asyncio.Event().wait()
        finally:
            self.ended += 1


FATAL: Any = AuthenticationFailedError


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        ("raises first", KafkaConnectionError, "mechanism Scripted failed: OSError"),
        ("waits first", KafkaConnectionError, "no credentials within"),
        ("ends first", FATAL, "returned no token"),
        ("gives a str", FATAL, "returned str as a token"),
        ("raises second", FATAL, "mechanism Scripted failed: KeyError"),
        ("waits second", KafkaConnectionError, "Unable to bootstrap"),
        ("ends early", KafkaConnectionError, "closed by the broker"),
    ],
)
async def test_mechanisms_that_fail(script: str, error: Any, text: str) -> None:
    async with secured() as fake:
        mechanism = Scripted(script)
        client = producer(
            fake,
            mechanism,
            request_timeout_ms=1000,
            socket_connection_setup_timeout_ms=500,
            socket_connection_setup_timeout_max_ms=500,
        )
        async with timeout(60):
            with pytest.raises(error, match=text) as caught:
                await start_and_stop(client)
        assert "secret" not in str(caught.value)
        await fake.wait_for(lambda: mechanism.ended > 0)


@pytest.mark.parametrize("script", ["waits first", "waits second"])
async def test_a_cancelled_start_ends_the_exchange(script: str) -> None:
    async with secured() as fake:
        mechanism = Scripted(script)
        client = producer(fake, mechanism)
        task = asyncio.create_task(client.start())
        await mechanism.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.stop()
        await fake.wait_for(lambda: mechanism.ended == 1)


class Nameless(OwnPlain):
    name = ""


@pytest.mark.parametrize("wrong", ["OWN", 3, OwnPlain, Nameless("a", "b"), object()])
async def test_what_is_no_mechanism_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"sasl_mechanism|only `PLAIN`"):
        AIOKafkaProducer(security_protocol="SASL_PLAINTEXT", sasl_mechanism=wrong)
