"""A real Kafka whose advertised name nobody can resolve: by a forwarder, and through proxies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from aiokafka.testing import FaultProxy
from tests.integration.secured import refused, tls_listeners, use_everything
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras
from tests.net.support import Certificates, split
from tests.support.proxies import proxy

pytestmark = pytest.mark.integration

NAME = "kafka.cluster.invalid"
PORT = 9093


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def hidden(certificates: Certificates) -> Iterator[KafkaCluster]:
    """A broker with TLS, whose certificate is for the name that it advertises."""
    need_own_brokers()
    extras = Extras(listeners={"INSIDE": "SSL"}, advertised={"INSIDE": f"{NAME}:{PORT}"})
    config = tls_listeners(certificates, ["INSIDE"], host=NAME)
    with KafkaCluster(config=config, extras=extras) as cluster:
        yield cluster


@pytest.fixture
def options(certificates: Certificates) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"{NAME}:{PORT}",
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(cafile=certificates.cafile),
    }


def real(cluster: KafkaCluster) -> str:
    return cluster.addresses("INSIDE")


@pytest.mark.parametrize("form", ["address", "socket"])
async def test_through_a_forwarded_port(
    hidden: KafkaCluster, options: dict[str, Any], form: str
) -> None:
    async with FaultProxy(real(hidden)) as tunnel:

        async def dialer(broker: Any) -> Any:
            assert (broker.host, broker.port) == (NAME, PORT)
            if form == "address":
                return tunnel.address
            return await asyncio.to_thread(socket.create_connection, split(tunnel.address))

        await use_everything(hidden, dialer=dialer, **options)
        assert tunnel.forwarded["requests"]


@pytest.mark.parametrize("scheme", ["socks5", "http"])
async def test_through_a_proxy(hidden: KafkaCluster, options: dict[str, Any], scheme: str) -> None:
    async with proxy(scheme, {(NAME, PORT): real(hidden)}, "alice:pa55word") as server:
        await use_everything(hidden, proxy_url=server.url, **options)
        assert set(server.asked) == {(NAME, PORT)}


async def test_the_certificate_is_checked_for_the_advertised_name(
    hidden: KafkaCluster, options: dict[str, Any]
) -> None:
    options["bootstrap_servers"] = f"other.invalid:{PORT}"
    targets = {("other.invalid", PORT): real(hidden)}
    async with proxy("socks5", targets) as server:
        text = r"other\.invalid:9093 .* by the proxy .*[Hh]ostname mismatch"
        await refused(KafkaConnectionError, text, proxy_url=server.url, **options)
    text = r"other\.invalid:9093 .* dialed at 127\.0\.0\.1:\d+: .*[Hh]ostname mismatch"
    await refused(KafkaConnectionError, text, dialer=lambda broker: real(hidden), **options)
