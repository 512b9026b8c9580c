"""TLS by `ssl_context`, and messages that name the likely cause when it does not work."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from aiokafka.net.connector import Connector
from aiokafka.protocol.messages import MetadataRequest
from aiokafka.protocol.messages.metadata import MetadataRequestTopic
from aiokafka.testing import FakeCluster
from tests.net.support import Certificates, config, connected, now, read_frame, serve, split


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def test_requests_of_every_size_pass(certificates: Certificates) -> None:
    context = create_ssl_context(cafile=certificates.cafile)
    async with FakeCluster(ssl_context=certificates.server_context("127.0.0.1")) as cluster:
        async with connected(
            cluster.bootstrap_servers, security_protocol="SSL", ssl_context=context
        ) as connection:
            for count in (0, 1, 500, 20_000):
                names = {f"topic-{i}" for i in range(count)}
                topics = [MetadataRequestTopic(name=name) for name in names]
                request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
                answer = await connection.request(request)
                assert {topic.name for topic in answer.topics} == names


async def test_a_client_finds_and_uses_a_tls_cluster(certificates: Certificates) -> None:
    context = create_ssl_context(cafile=certificates.cafile)
    server = certificates.server_context("127.0.0.1")
    async with FakeCluster(brokers=2, ssl_context=server) as cluster:
        client = AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_context=context,
        )
        async with client:
            for node_id in (0, 1):
                assert (await client.send(node_id, MetadataRequest(topics=[]))).brokers


async def test_a_client_certificate_is_shown(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1", wants_client=True)
    context = create_ssl_context(
        cafile=certificates.cafile, certfile=certificates.issue("client", "client.example")
    )
    options = {"security_protocol": "SSL", "ssl_context": context}
    async with FakeCluster(ssl_context=server) as cluster:
        async with connected(cluster.bootstrap_servers, **options) as connection:
            assert (await connection.request(MetadataRequest(topics=[]))).brokers


async def fails(address: str, match: str, context: ssl.SSLContext | None = None) -> None:
    options = {} if context is None else {"security_protocol": "SSL", "ssl_context": context}
    connector = Connector(config(address, **options), *split(address), "")
    with pytest.raises(KafkaConnectionError, match=match):
        await connector.open(now() + 2)


async def test_a_missing_client_certificate_is_named(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1", wants_client=True)
    async with FakeCluster(ssl_context=server) as cluster:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(cluster.bootstrap_servers, r"(?i)certificate|closed", context)


async def test_an_unknown_authority_is_refused(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1")
    async with FakeCluster(ssl_context=server) as cluster:
        await fails(cluster.bootstrap_servers, "certificate was refused", create_ssl_context())


async def test_a_certificate_for_another_host_is_refused(certificates: Certificates) -> None:
    server = certificates.server_context("other.example")
    context = create_ssl_context(cafile=certificates.cafile)
    async with FakeCluster(ssl_context=server) as cluster:
        await fails(cluster.bootstrap_servers, "certificate was refused.*127.0.0.1", context)
        context.check_hostname = False
        options = {"security_protocol": "SSL", "ssl_context": context}
        async with connected(cluster.bootstrap_servers, **options) as connection:
            assert connection.is_ready


async def test_a_plain_client_on_a_tls_port(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1")
    async with FakeCluster(ssl_context=server) as cluster:
        await fails(cluster.bootstrap_servers, "TLS")


async def test_a_tls_client_on_a_port_that_closes(certificates: Certificates) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # What a Kafka broker does: it takes the hello for a request of 369 MB.
        await reader.readexactly(4)
        writer.transport.abort()

    async with serve(refuse) as address:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(address, "may expect plaintext", context)


async def test_a_tls_client_on_a_port_that_answers_plain(certificates: Certificates) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"hello, this is no TLS\r\n")
        await reader.read()

    async with serve(greet) as address:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(address, "speak plaintext, not TLS", context)


async def test_a_tls_client_on_a_port_that_says_nothing(certificates: Certificates) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)

    async with serve(silent) as address:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(address, "may expect plaintext", context)


def test_a_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(ValueError, match="keyfile"):
        create_ssl_context(keyfile="key.pem")


def test_a_revocation_list_is_checked(certificates: Certificates) -> None:
    context = create_ssl_context(cafile=certificates.cafile, crlfile=certificates.cafile)
    assert context.verify_flags & ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def test_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        create_ssl_context(cafile=str(tmp_path / "none.pem"))
