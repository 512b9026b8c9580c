"""Refused credentials: the call that needed them fails at once, and all is well when they are
good again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaError,
)
from aiokafka.testing import FakeCluster, Security

TP = TopicPartition("t", 0)


class Login:
    """A cluster, and the password that its clients have."""

    def __init__(self, cluster: FakeCluster, rules: Security) -> None:
        self.cluster = cluster
        self.rules = rules
        self.password = "first"

    @property
    def options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": lambda: self.password,
            # Whatever takes so long would fail the test by its own time-out.
            "request_timeout_ms": 100_000,
        }

    def revoke(self) -> None:
        self.rules.users["alice"] = "second"
        self.cluster.drop_connections()

    def renew(self) -> None:
        self.password = "second"


@pytest.fixture
async def login() -> AsyncIterator[Login]:
    rules = Security({"alice": "first"})
    async with FakeCluster(brokers=2, security=rules) as cluster:
        await cluster.create_topic("t", 1, 2)
        yield Login(cluster, rules)
        assert cluster.failures == []


Make = Callable[[dict[str, Any]], Any]
MAKERS: dict[str, Make] = {
    "producer": lambda options: AIOKafkaProducer(**options),
    "transactional": lambda options: AIOKafkaProducer(transactional_id="x", **options),
    "consumer": lambda options: AIOKafkaConsumer("t", **options),
    "group": lambda options: AIOKafkaConsumer("t", group_id="g", **options),
    "admin": lambda options: AIOKafkaAdminClient(**options),
}


@pytest.mark.parametrize("kind", MAKERS)
async def test_start_fails_after_one_attempt(login: Login, kind: str) -> None:
    client = MAKERS[kind]({**login.options, "sasl_plain_password": "wrong"})
    with pytest.raises(AuthenticationFailedError, match="SCRAM-SHA-256"):
        await client.start()
    await (client.close() if kind == "admin" else client.stop())
    assert login.rules.refusals == 1


@pytest.mark.parametrize("kind", MAKERS)
async def test_start_names_the_mechanisms_that_are_offered(login: Login, kind: str) -> None:
    login.rules.mechanisms = ("OAUTHBEARER",)
    client = MAKERS[kind](login.options)
    with pytest.raises(AuthenticationMethodNotSupported, match="OAUTHBEARER"):
        await client.start()
    await (client.close() if kind == "admin" else client.stop())
    assert login.rules.refusals == 1


async def refused(call: Callable[[], Awaitable[Any]]) -> None:
    """Until the client notices that its connection is gone the network is to blame."""
    while True:
        try:
            await call()
        except AuthenticationFailedError:
            return
        except KafkaError as error:
            assert error.retriable, error


async def accepted(call: Callable[[], Awaitable[Any]]) -> Any:
    """Refusals that are not told yet are told first."""
    while True:
        try:
            return await call()
        except AuthenticationFailedError:
            pass


async def test_a_producer_fails_its_records_and_goes_on(login: Login) -> None:
    async with AIOKafkaProducer(**login.options) as producer:
        await producer.send_and_wait("t", b"0")
        login.revoke()
        with pytest.raises(AuthenticationFailedError):
            await producer.send_and_wait("t", b"lost")
        with pytest.raises(AuthenticationFailedError):
            await producer.send_and_wait("t", b"lost, too")
        login.renew()
        await accepted(lambda: producer.send_and_wait("t", b"1"))
    values = [record.value for record in login.cluster.log("t").records()]
    assert values == [b"0", b"1"]


async def test_a_mechanism_that_is_not_offered_any_more(login: Login) -> None:
    async with AIOKafkaProducer(**login.options) as producer:
        await producer.send_and_wait("t", b"0")
        login.rules.mechanisms = ("OAUTHBEARER",)
        login.cluster.drop_connections()
        with pytest.raises(AuthenticationMethodNotSupported):
            await producer.send_and_wait("t", b"lost")


async def test_a_transactional_producer_can_begin_again(login: Login) -> None:
    async with AIOKafkaProducer(transactional_id="x", **login.options) as producer:
        login.revoke()
        with pytest.raises(AuthenticationFailedError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"lost")
        login.renew()

        async def transact() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"0")

        await accepted(transact)


@pytest.mark.parametrize("group", [None, "g"])
async def test_a_consumer_tells_its_readers_and_goes_on(login: Login, group: str | None) -> None:
    login.cluster.log("t").append(b"0")
    options = {**login.options, "group_id": group, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer("t", **options) as consumer:
        assert (await consumer.getone()).value == b"0"
        login.revoke()
        await refused(consumer.getone)
        await refused(lambda: consumer.getmany(timeout_ms=60_000))
        await refused(lambda: consumer.end_offsets([TP]))
        if group:
            await refused(consumer.commit)
        login.cluster.log("t").append(b"1")
        login.renew()
        assert (await accepted(consumer.getone)).value == b"1"
        assert (await accepted(lambda: consumer.end_offsets([TP])))[TP] == 2
        if group:
            await accepted(consumer.commit)
            assert login.cluster.groups.committed("g", "t", 0) == 2


async def test_an_admin_client_fails_its_calls_and_goes_on(login: Login) -> None:
    admin = AIOKafkaAdminClient(**login.options)
    await admin.start()
    login.revoke()
    await refused(admin.list_topics)
    login.renew()
    assert "t" in await accepted(admin.list_topics)
    await admin.close()


async def test_refusals_slow_a_client_down(login: Login) -> None:
    """No storm of logins: brokers lock accounts for less."""
    async with AIOKafkaProducer(reconnect_backoff_ms=400, **login.options) as producer:
        await producer.send_and_wait("t", b"0")
        login.revoke()
        revoked_at = asyncio.get_running_loop().time()
        for _ in range(4):
            with pytest.raises(AuthenticationFailedError):
                await producer.send_and_wait("t", b"lost")
        # Each address is tried at this pace at most: two brokers, each known twice, once as a
        # bootstrap server.
        elapsed = asyncio.get_running_loop().time() - revoked_at
        assert login.rules.refusals <= 4 * (1 + elapsed / 0.32)
