"""The place of SASL in the handshake, with PLAIN."""

from __future__ import annotations

import asyncio
import ssl
import sys
import threading
from typing import Any
from unittest.mock import MagicMock

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
)
from aiokafka.net.connector import Connector
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka.testing import Fail, FakeCluster, Security
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.support import (
    TOKEN,
    USER,
    Answers,
    config,
    now,
    plain_answers,
    pooled,
    read_frame,
    scripted_broker,
    serve,
    split,
)


def connector(address: str) -> Connector:
    return Connector(config(address, **USER), *split(address), "")


async def test_user_and_password_are_accepted() -> None:
    async with scripted_broker(plain_answers()) as address:
        connection = await connector(address).open(now() + 5)
        assert connection.is_ready
        assert connection.session_lifetime == 60.0
        connection.close()
        await connection.closed


async def test_a_refusal_names_the_mechanism_and_the_reason() -> None:
    answers = plain_answers(error_code=58, error_message="Invalid username or password")
    async with scripted_broker(answers) as address:
        with pytest.raises(AuthenticationFailedError, match="PLAIN: Invalid username or password"):
            await connector(address).open(now() + 5)


async def test_a_refusal_never_repeats_the_password() -> None:
    async with scripted_broker(plain_answers(error_code=58)) as address:
        with pytest.raises(AuthenticationFailedError) as error:
            await connector(address).open(now() + 5)
        assert "sécret" not in str(error.value)


async def test_a_mechanism_that_is_not_offered() -> None:
    answers = plain_answers()
    answers[SaslHandshakeRequest] = lambda request: SaslHandshakeResponse(
        error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-256"]
    )
    async with scripted_broker(answers) as address:
        with pytest.raises(AuthenticationMethodNotSupported, match="GSSAPI, SCRAM-SHA-256"):
            await connector(address).open(now() + 5)


async def test_a_handshake_that_is_refused_otherwise() -> None:
    answers = plain_answers()
    answers[SaslHandshakeRequest] = lambda request: SaslHandshakeResponse(
        error_code=31, mechanisms=[]
    )
    async with scripted_broker(answers) as address:
        with pytest.raises(KafkaConnectionError, match="refused SaslHandshake: ") as caught:
            await connector(address).open(now() + 5)
    assert isinstance(caught.value.__cause__, ClusterAuthorizationFailedError)


@pytest.mark.parametrize("code", [-1, 7, 13])
async def test_an_authentication_that_failed_for_another_reason(code: int) -> None:
    """Nothing is said of the credentials."""
    answers = plain_answers()
    answers[SaslAuthenticateRequest] = lambda request: SaslAuthenticateResponse(
        error_code=code, error_message="the store of users is away", auth_bytes=b""
    )
    async with scripted_broker(answers) as address:
        with pytest.raises(KafkaConnectionError, match="store of users is away"):
            await connector(address).open(now() + 5)


@pytest.mark.parametrize("api", [ApiVersionsRequest, SaslHandshakeRequest])
def test_a_transactional_producer_outlives_a_handshake_that_is_refused_once(api: Any) -> None:
    """The code was taken for one of the request that waited for the connection, and fatal."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(security=Security({"alice": "secret"})) as cluster:
            await cluster.create_topic("t")
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers,
                transactional_id="x",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_plain_username="alice",
                sasl_plain_password="secret",
            ) as producer:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"one")
                    refusals = cluster.intercept(api, Fail(-1), times=2)
                    cluster.drop_connections()
                assert refusals.hits == 2
                async with producer.transaction():
                    await producer.send_and_wait("t", b"two")

    simulate(main)


async def test_a_listener_without_sasl() -> None:
    answers = plain_answers()
    answers[SaslHandshakeRequest] = lambda request: SaslHandshakeResponse(
        error_code=34, mechanisms=[]
    )
    async with scripted_broker(answers) as address:
        with pytest.raises(AuthenticationFailedError, match="does not use SASL"):
            await connector(address).open(now() + 5)


async def test_bootstrap_raises_a_refusal_as_itself() -> None:
    async with scripted_broker(plain_answers(error_code=58)) as address:
        client = AIOKafkaClient(bootstrap_servers=address, **USER)
        with pytest.raises(AuthenticationFailedError):
            await client.bootstrap()
        await client.close()


async def test_a_plain_client_on_a_sasl_listener_is_told_so() -> None:
    answers: Answers = {MetadataRequest: lambda request: None}
    async with scripted_broker(answers) as address:
        client = AIOKafkaClient(bootstrap_servers=address)
        with pytest.raises(
            KafkaConnectionError, match=r"closed by the broker before it responded.*expects SASL"
        ):
            await client.bootstrap()
        await client.close()


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_old_brokers_take_tokens_without_a_header(is_accepted: bool) -> None:
    tokens: list[bytes] = []

    async def old_broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (
            # ApiVersions v4 is unknown; v0 lists SaslHandshake v0 and Metadata v0 to v2.
            b"\x00\x23\x00\x00\x00\x00",
            b"\x00\x00\x00\x00\x00\x02\x00\x11\x00\x00\x00\x00\x00\x03\x00\x00\x00\x02",
            b"\x00\x00\x00\x00\x00\x01\x00\x05PLAIN",
        ):
            frame = await read_frame(reader)
            body = frame[4:8] + answer
            writer.write(len(body).to_bytes(4, "big") + body)
        tokens.append(await read_frame(reader))
        if is_accepted:
            writer.write(bytes(4))
            frame = await read_frame(reader)
            body = frame[4:8] + bytes(12)
            writer.write(len(body).to_bytes(4, "big") + body)
            await reader.read()

    async with serve(old_broker) as address:
        if is_accepted:
            connection = await connector(address).open(now() + 5)
            answer = await connection.request(MetadataRequest(topics=[]), version=1)
            assert isinstance(answer, MetadataResponse)
            connection.close()
            await connection.closed
        else:
            with pytest.raises(AuthenticationFailedError, match="closed the connection"):
                await connector(address).open(now() + 5)
        assert tokens == [TOKEN]


async def test_kerberos_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    async with scripted_broker(plain_answers()) as address:
        options = {**USER, "sasl_mechanism": "GSSAPI"}
        with pytest.raises(AuthenticationMethodNotSupported, match=r"aiokafka\[gssapi\]"):
            await Connector(config(address, **options), *split(address), "").open(now() + 5)


async def test_kerberos_names_the_kdc_that_does_not_respond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up = threading.Event()
    gssapi = MagicMock()
    gssapi.exceptions.GSSError = OSError
    gssapi.SecurityContext.return_value.step = lambda: given_up.wait(30)
    monkeypatch.setitem(sys.modules, "gssapi", gssapi)
    options = {**USER, "sasl_mechanism": "GSSAPI"}
    try:
        async with scripted_broker(plain_answers()) as address:
            reason = "GSSAPI: no credentials within .* s: the KDC of krb5.conf does not respond"
            with pytest.raises(KafkaConnectionError, match=reason):
                await Connector(config(address, **options), *split(address), "").open(now() + 0.5)
    finally:
        given_up.set()


@pytest.mark.parametrize(
    ("protocol", "mechanism", "warnings"),
    [
        ("SASL_PLAINTEXT", "PLAIN", 1),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", 0),
        ("SASL_SSL", "PLAIN", 0),
        ("PLAINTEXT", "PLAIN", 0),
    ],
)
async def test_a_password_in_the_clear_is_warned_of(
    protocol: str, mechanism: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"security_protocol": protocol, "sasl_mechanism": mechanism}
    if protocol.startswith("SASL"):
        options |= {"sasl_plain_username": "alice", "sasl_plain_password": "secret-word"}
    if protocol.endswith("SSL"):
        options["ssl_context"] = ssl.create_default_context()
    async with pooled("127.0.0.1:1", client_id="billing", **options):
        pass
    found = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len([line for line in found if "billing" in line and "unencrypted" in line]) == warnings
    assert "secret-word" not in caplog.text
