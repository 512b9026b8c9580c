"""Sessions that end (KIP-368) on a real Kafka: re-authentication under full load."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import AuthenticationFailedError, KafkaTimeoutError
from aiokafka.helpers import create_ssl_context
from aiokafka.testing import FaultProxy
from tests.integration.logins import PASSWORD, SCRAM_USERS, USER, login, secured_properties
from tests.kafka.fixtures import Scale, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.processes import free_port
from tests.kafka.settings import HOST, Extras
from tests.kafka.topics import create_topic
from tests.net.support import Certificates

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LISTENERS = {"ENDS": "SASL_PLAINTEXT", "ENDSTLS": "SASL_SSL"}
LIFETIME_MS = 8_000
PARTITIONS = 2


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """Of the proxies that count connections."""
    return {name: free_port() for name in LISTENERS}


@pytest.fixture(scope="module")
def sessions(certificates: Certificates, ports: dict[str, int]) -> Iterator[KafkaCluster]:
    need_own_brokers()
    config = secured_properties(certificates, LISTENERS)
    for listener in LISTENERS:
        for mechanism in ("scram-sha-256", "scram-sha-512", "plain", "oauthbearer"):
            name = f"listener.name.{listener.lower()}.{mechanism}.connections.max.reauth.ms"
            config[name] = str(LIFETIME_MS)
    extras = Extras(
        listeners=LISTENERS,
        advertised={name: f"localhost:{port}" for name, port in ports.items()},
        format_options=SCRAM_USERS,
    )
    with KafkaCluster(config=config, extras=extras) as cluster:
        yield cluster


@pytest.fixture
async def proxies(
    sessions: KafkaCluster, ports: dict[str, int]
) -> AsyncIterator[dict[str, FaultProxy]]:
    made = {
        name: FaultProxy(sessions.addresses(name), host=HOST, port=port)
        for name, port in ports.items()
    }
    for proxy in made.values():
        await proxy.start()
    yield made
    for proxy in made.values():
        await proxy.stop()


def most_connections(count: int, seconds: float) -> int:
    """How many connections there may be in that time where `count` are needed.

    A renewal has to come before the end of the session. On a busy machine it may be late: the
    broker closes the connection then, which a client replaces, at most once in each lifetime.
    """
    return int(count * (1 + seconds * 1000 / LIFETIME_MS))


async def produce(producer: AIOKafkaProducer, topic: str, seconds: float) -> int:
    """Send numbered records without a pause; every one of them has to arrive."""
    end = asyncio.get_running_loop().time() + seconds
    count = 0
    pending: list[asyncio.Future[Any]] = []
    while asyncio.get_running_loop().time() < end:
        for _ in range(500):
            pending.append(
                await producer.send(
                    topic, b"%012d" % count + bytes(88), partition=count % PARTITIONS
                )
            )
            count += 1
        await asyncio.gather(*pending[:-500])
        del pending[:-500]
    await asyncio.gather(*pending)
    return count


async def consume(consumer: AIOKafkaConsumer, seen: list[list[int]]) -> None:
    while True:
        for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
            seen[partition.partition] += [int(record.value[:12]) for record in records]


@pytest.mark.long
@pytest.mark.parametrize(
    ("listener", "mechanism"), [("ENDSTLS", "SCRAM-SHA-256"), ("ENDS", "OAUTHBEARER")]
)
async def test_full_speed_through_many_sessions(
    sessions: KafkaCluster,
    proxies: dict[str, FaultProxy],
    certificates: Certificates,
    scale: Scale,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    mechanism: str,
) -> None:
    seconds = scale(18, 60)
    topic = f"sessions-{listener.lower()}"
    await create_topic(sessions.bootstrap_servers, topic, PARTITIONS, 1, {})
    proxy = proxies[listener]
    options = {
        "bootstrap_servers": f"localhost:{proxy.port}",
        "security_protocol": LISTENERS[listener],
        **login(mechanism),
    }
    if listener == "ENDSTLS":
        options["ssl_context"] = create_ssl_context(cafile=certificates.cafile)
    caplog.set_level(logging.DEBUG, "aiokafka.conn")
    seen: list[list[int]] = [[] for _ in range(PARTITIONS)]
    group = {"group_id": topic, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 500}
    async with (
        AIOKafkaProducer(**options) as producer,
        AIOKafkaConsumer(topic, **group, **options) as consumer,
    ):
        caplog.clear()
        loop = asyncio.get_running_loop()
        began = loop.time()
        reading = asyncio.ensure_future(consume(consumer, seen))
        sent = await produce(producer, topic, seconds)
        while sum(map(len, seen)) < sent:
            assert not reading.done()
            await asyncio.sleep(0.05)
        reading.cancel()
        lasted = loop.time() - began
    # Nothing is lost, nothing comes twice, the order is kept.
    for partition, numbers in enumerate(seen):
        assert numbers == list(range(partition, sent, PARTITIONS))
    messages = [r for r in caplog.records if r.name.startswith("aiokafka")]
    renewals = [r.getMessage() for r in messages if "re-authenticated" in r.getMessage()]
    assert renewals
    # One connection of the producer; one each of the consumer for fetches, its group, the rest.
    assert proxy.accepted <= most_connections(4, lasted)
    if proxy.accepted == 4:
        # Each lives for the whole time, which is longer than two sessions.
        assert len(renewals) >= 4
        assert [r.getMessage() for r in messages if r.levelno >= logging.WARNING] == []
    print(f"\n{sent} records in {seconds} s, {len(renewals)} renewals; the last: {renewals[-1]}")


def set_password(servers: str, password: str | None) -> None:
    """Of SCRAM-SHA-512, with another project's client; None deletes it."""
    admin = AdminClient({"bootstrap.servers": servers})
    mechanism = ScramMechanism.SCRAM_SHA_512
    change: Any = UserScramCredentialDeletion(USER, mechanism)
    if password is not None:
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(20)


async def until_it_works(call: Callable[[], Awaitable[Any]]) -> Any:
    while True:
        try:
            return await call()
        except AuthenticationFailedError:
            # Told at once; so as not to ask without a pause.
            await asyncio.sleep(0.05)


async def test_a_password_is_changed_and_a_user_deleted_meanwhile(
    sessions: KafkaCluster, proxies: dict[str, FaultProxy]
) -> None:
    servers, proxy = sessions.bootstrap_servers, proxies["ENDS"]
    topic, password = "rotation", PASSWORD
    await create_topic(servers, topic, 1, 1, {})
    options = {
        **login("SCRAM-SHA-512"),
        "bootstrap_servers": f"localhost:{proxy.port}",
        "security_protocol": LISTENERS["ENDS"],
        "sasl_plain_password": lambda: password,
    }
    group = {"group_id": topic, "auto_offset_reset": "earliest"}
    async with (
        AIOKafkaProducer(**options, delivery_timeout_ms=10_000) as producer,
        AIOKafkaConsumer(topic, **group, **options) as consumer,
    ):
        await producer.send_and_wait(topic, b"zero")
        await consumer.getone()
        loop = asyncio.get_running_loop()
        accepted, started = proxy.accepted, loop.time()
        password = "changed"
        await asyncio.to_thread(set_password, servers, password)
        # Every session has been renewed with the new password by then, or replaced.
        while loop.time() < started + LIFETIME_MS / 1000 + 1:
            sent = await producer.send_and_wait(topic, b"one")
            while (await consumer.getone()).offset < sent.offset:
                pass
        assert proxy.accepted <= most_connections(accepted, loop.time() - started)
        await asyncio.to_thread(set_password, servers, None)
        # The producer goes on trying until the time of its records is over, and says why.
        with pytest.raises(KafkaTimeoutError, match="AuthenticationFailedError"):
            while True:
                await producer.send_and_wait(topic, b"two")
        with pytest.raises(AuthenticationFailedError):
            while True:
                await consumer.getmany(timeout_ms=1000)
        await asyncio.to_thread(set_password, servers, password)
        sent = await until_it_works(lambda: producer.send_and_wait(topic, b"three"))
        while (await until_it_works(consumer.getone)).offset < sent.offset:
            pass
    await asyncio.to_thread(set_password, servers, PASSWORD)
