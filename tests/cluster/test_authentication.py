"""Refused credentials: the call that needed them fails at once, and all is well when they are
good again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
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
            # Whatever takes so long would fail the test by its own timeout.
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
        except (AuthenticationFailedError, AuthenticationMethodNotSupported):
            pass


async def test_a_producer_waits_for_its_credentials(login: Login) -> None:
    """A password that is changed for both sides is never changed at the same moment."""
    await login.cluster.create_topic("new", 1, 2)
    async with AIOKafkaProducer(reconnect_backoff_ms=20, **login.options) as producer:
        await producer.send_and_wait("t", b"0")
        login.revoke()
        waiting = [
            asyncio.create_task(producer.send_and_wait("t", b"1")),
            asyncio.create_task(producer.send_and_wait("new", b"2")),
        ]
        await login.cluster.wait_for(lambda: login.rules.refusals >= 4)
        assert not any(task.done() for task in waiting)
        assert producer.health().state == "unreachable"
        login.renew()
        await asyncio.gather(*waiting)
    assert [record.value for record in login.cluster.log("t").records()] == [b"0", b"1"]
    assert [record.value for record in login.cluster.log("new").records()] == [b"2"]


async def test_a_producer_says_why_it_could_not_deliver(login: Login) -> None:
    limits = {"delivery_timeout_ms": 500, "max_block_ms": 500, "reconnect_backoff_max_ms": 20}
    async with AIOKafkaProducer(reconnect_backoff_ms=20, **login.options, **limits) as producer:
        await producer.send_and_wait("t", b"0")
        login.revoke()
        for topic in ("t", "another"):
            with pytest.raises(KafkaTimeoutError, match="SCRAM-SHA-256") as caught:
                await producer.send_and_wait(topic, b"lost")
            assert isinstance(caught.value.__cause__, AuthenticationFailedError)
        login.renew()
        await producer.send_and_wait("t", b"1")
    values = [record.value for record in login.cluster.log("t").records()]
    assert values == [b"0", b"1"]


async def test_a_session_that_is_not_renewed_keeps_what_was_in_flight() -> None:
    """The broker refuses the password on an open connection, with a request unanswered."""
    rules = Security({"alice": "first"}, session_lifetime_ms=1500)
    async with FakeCluster(security=rules) as cluster:
        await cluster.create_topic("t")
        login = Login(cluster, rules)
        async with AIOKafkaProducer(reconnect_backoff_ms=20, **login.options) as producer:
            await producer.send_and_wait("t", b"0")
            rules.users["alice"] = "second"
            await cluster.wait_for(lambda: rules.refusals)
            waiting = [asyncio.create_task(producer.send_and_wait("t", b"1"))]
            login.renew()
            await asyncio.gather(*waiting)
        assert [record.value for record in cluster.log("t").records()] == [b"0", b"1"]


async def test_a_token_provider_that_fails_for_a_moment() -> None:
    class Provider(AbstractTokenProvider):
        is_down = False
        calls = 0

        async def token(self) -> str:
            self.calls += 1
            if self.is_down:
                raise OSError("503")
            return "good"

    rules = Security(mechanisms=["OAUTHBEARER"], accept_token=lambda token: token)
    async with FakeCluster(security=rules) as cluster:
        await cluster.create_topic("t")
        provider = Provider()
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=provider,
            reconnect_backoff_ms=20,
        ) as producer:
            await producer.send_and_wait("t", b"0")
            provider.is_down = True
            calls = provider.calls
            cluster.drop_connections()
            future = await producer.send("t", b"1")
            while provider.calls < calls + 3:
                await asyncio.sleep(0.01)
            assert not future.done()
            provider.is_down = False
            await future
        assert [record.value for record in cluster.log("t").records()] == [b"0", b"1"]


async def test_a_mechanism_that_is_not_offered_for_a_moment(login: Login) -> None:
    async with AIOKafkaProducer(reconnect_backoff_ms=20, **login.options) as producer:
        await producer.send_and_wait("t", b"0")
        login.rules.mechanisms = ("OAUTHBEARER",)
        login.cluster.drop_connections()
        future = await producer.send("t", b"1")
        await login.cluster.wait_for(lambda: login.rules.refusals >= 3)
        assert not future.done()
        login.rules.mechanisms = ("SCRAM-SHA-256",)
        await future


async def test_a_token_provider_that_fails_is_a_connection_that_failed() -> None:
    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            raise OSError("503")

    rules = Security(mechanisms=["OAUTHBEARER"], accept_token=lambda token: token)
    async with FakeCluster(security=rules) as cluster:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        with pytest.raises(KafkaConnectionError, match="Provider failed: OSError") as caught:
            await consumer.start()
        await consumer.stop()
        assert cluster.bootstrap_servers in str(caught.value)
        assert "advertised" not in str(caught.value)
        cause = caught.value.__cause__
        assert cause is not None and isinstance(cause.__cause__, OSError)


async def test_addresses_are_not_blamed_for_credentials_that_cannot_be_had() -> None:
    """The function fails for a broker that the bootstrap server has named."""
    calls = 0

    def password() -> str:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError("the vault is sealed")
        return "first"

    async with FakeCluster(brokers=2, security=Security({"alice": "first"})) as cluster:
        options = Login(cluster, Security({})).options
        options["bootstrap_servers"] = cluster.bootstrap_servers.split(",")[0]
        options["sasl_plain_password"] = password
        async with AIOKafkaClient(**options) as client:
            other = max(client.cluster.node_ids)
            with pytest.raises(
                KafkaConnectionError, match="the function failed: OSError"
            ) as caught:
                await client.connection(other)
            assert "advertised" not in str(caught.value)


# -- transactions

STEPS: dict[str, Callable[[AIOKafkaProducer], Awaitable[Any]]] = {
    "begin": lambda producer: producer.begin_transaction(),
    "partitions": lambda producer: producer.send_and_wait("t", b"0"),
    "offsets": lambda producer: producer.send_offsets_to_transaction({TP: 5}, "g"),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
}


@pytest.mark.parametrize("way", ["password", "mechanism"])
@pytest.mark.parametrize("release", ["2.1", "4.3"])
@pytest.mark.parametrize("at", ["partitions", "offsets", "commit", "abort"])
async def test_a_transaction_waits_for_its_credentials(release: str, at: str, way: str) -> None:
    rules = Security({"alice": "first"}, mechanisms=["SCRAM-SHA-256"])
    async with FakeCluster(brokers=2, security=rules, as_version=release) as cluster:
        await cluster.create_topic("t", 1, 2)
        login = Login(cluster, rules)
        options = {**login.options, "reconnect_backoff_ms": 20, "transactional_id": "x"}
        last = "abort" if at == "abort" else "commit"
        async with AIOKafkaProducer(**options) as producer:
            for name in ("begin", "partitions", "offsets", last):
                if name != at:
                    await STEPS[name](producer)
                    continue
                rules.users["alice"] = "first" if way == "mechanism" else "second"
                rules.mechanisms = ("PLAIN" if way == "mechanism" else "SCRAM-SHA-256",)
                cluster.drop_connections()
                task = asyncio.ensure_future(STEPS[name](producer))
                await cluster.wait_for(lambda: rules.refusals >= 4)
                assert not task.done()
                rules.users["alice"] = "first"
                rules.mechanisms = ("SCRAM-SHA-256",)
                await task
        assert cluster.groups.committed("g", "t", 0) == (None if at == "abort" else 5)
        assert [record.value for record in cluster.log("t").records()] == [b"0"]
        assert cluster.failures == []


async def test_a_transaction_says_why_it_could_not_be_ended(login: Login) -> None:
    limits = {"max_block_ms": 500, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 20}
    async with AIOKafkaProducer(transactional_id="x", **login.options, **limits) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"0")
        login.revoke()
        for _ in range(2):
            with pytest.raises(KafkaTimeoutError, match="SCRAM-SHA-256"):
                await producer.commit_transaction()
        login.renew()
        await producer.commit_transaction()
    assert login.cluster.log("t").records()[0].value == b"0"


async def test_a_transactional_producer_can_begin_again(login: Login) -> None:
    limits = {"delivery_timeout_ms": 500, "max_block_ms": 500}
    async with AIOKafkaProducer(transactional_id="x", **login.options, **limits) as producer:
        login.revoke()
        with pytest.raises(KafkaTimeoutError):
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


async def test_a_member_goes_on_when_its_mechanism_is_offered_again(login: Login) -> None:
    """Its membership had ended for good with the first heartbeat that met such a broker."""
    options = {**login.options, "group_id": "g", "heartbeat_interval_ms": 50}
    async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **options) as consumer:
        login.cluster.log("t").append(b"0")
        assert (await consumer.getone()).value == b"0"
        login.rules.mechanisms = ("OAUTHBEARER",)
        login.cluster.drop_connections()
        await login.cluster.wait_for(lambda: login.rules.refusals >= 12)
        assert consumer.health().state != "failed"
        login.rules.mechanisms = ("SCRAM-SHA-256",)
        login.cluster.log("t").append(b"1")
        assert (await accepted(consumer.getone)).value == b"1"


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
        future = await producer.send("t", b"1")
        await login.cluster.wait_for(lambda: login.rules.refusals >= 4)
        assert not future.done()
        # Each address is tried at this pace at most: two brokers, each known twice, once as a
        # bootstrap server.
        elapsed = asyncio.get_running_loop().time() - revoked_at
        assert login.rules.refusals <= 4 * (1 + elapsed / 0.32)
        login.renew()
        await future
