"""A broker, or a server in its place, that misbehaves while a client logs in: refused clearly, with
bounds on time and bytes, and without giving anything away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import re
import ssl
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    KafkaError,
)
from aiokafka.helpers import create_ssl_context
from aiokafka.net.connector import Connector
from aiokafka.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka.testing import Edit, FakeCluster, RawBytes, Security
from tests.net.support import (
    Answers,
    Certificates,
    config,
    now,
    read_frame,
    scripted_broker,
    serve,
    split,
)
from tests.support.tokens import Token

PASSWORD = "correct horse"
SALT = base64.b64encode(b"0123456789abcdef").decode()


def options(mechanism: str = "SCRAM-SHA-256", **more: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
        "sasl_oauth_token_provider": Token(),
        **more,
    }


async def fails(
    address: str,
    error: type[KafkaError] | tuple[type[KafkaError], ...],
    match: str | None = None,
    **more: Any,
) -> str:
    connector = Connector(config(address, **options(**more)), *split(address), "")
    with pytest.raises(error, match=match) as caught:
        await connector.open(now() + 5)
    text = str(caught.value)
    assert PASSWORD not in text
    assert len(text) < 1500
    return text


class Impostor:
    """Speaks SCRAM without knowing the password, and as badly as told."""

    def __init__(self, first: str = "", final: str = "") -> None:
        self.first = first or f"r=NONCEmore,s={SALT},i=4096"
        self.final = final or "v=" + base64.b64encode(bytes(32)).decode()
        self.tokens: list[bytes] = []

    def answers(self) -> Answers:
        return {
            SaslHandshakeRequest: lambda request: SaslHandshakeResponse(
                mechanisms=["SCRAM-SHA-256"]
            ),
            SaslAuthenticateRequest: self.take,
        }

    def take(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        token = bytes(request.auth_bytes)
        self.tokens.append(token)
        nonce = self.tokens[0].decode().rpartition("r=")[2]
        answer = self.first if len(self.tokens) == 1 else self.final
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=answer.replace("NONCE", nonce).encode()
        )


@pytest.mark.parametrize(
    ("first", "final", "match", "tokens"),
    [
        ("", "", "could not prove that it knows the password: it may be an impostor", 2),
        ("", "v=", "no valid signature", 2),
        ("", "e=other-error", "refused: other-error", 2),
        # The first message again, for ever.
        ("", f"r=NONCEmore,s={SALT},i=4096", "no valid signature", 2),
        (f"r=another,s={SALT},i=4096", "", "nonce does not continue ours", 1),
        (f"r=NONCE,s={SALT},i=4096", "", "nonce does not continue ours", 1),
        (f"r=NONCEmore,s={SALT},i=1", "", "asks for 1 iterations", 1),
        (f"r=NONCEmore,s={SALT},i=1000000000", "", "no valid iteration count", 1),
        (f"r=NONCEmore,s={SALT},i=999999999", "", "asks for 999999999 iterations", 1),
        (f"r=NONCEmore,s={'A' * 100_000},i=4096", "", "a message of 1000", 1),
        ("v=AAAA", "", "nonce does not continue ours", 1),
    ],
)
async def test_scram_with_an_impostor(first: str, final: str, match: str, tokens: int) -> None:
    impostor = Impostor(first, final)
    async with scripted_broker(impostor.answers()) as address:
        assert address in await fails(address, AuthenticationFailedError, match)
    # Where the first answer is bad no proof is shown, from which a password could be guessed.
    assert len(impostor.tokens) == tokens


async def test_a_proof_serves_only_the_exchange_it_was_made_for() -> None:
    """What an impostor gets of a client is no password and no key."""
    impostor = Impostor()
    async with scripted_broker(impostor.answers()) as address:
        await fails(address, AuthenticationFailedError, "impostor")
        await fails(address, AuthenticationFailedError)
    stolen = impostor.tokens[1]
    assert PASSWORD.encode() not in b"".join(impostor.tokens)
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"0123456789abcdef", 4096)
    assert base64.b64encode(salted) not in stolen


@pytest.mark.parametrize(
    ("mechanism", "match"),
    [
        ("SCRAM-SHA-512", "nonce does not continue ours"),
        ("OAUTHBEARER", "refused the token: more"),
    ],
)
async def test_challenges_without_end(mechanism: str, match: str) -> None:
    asked = 0

    def challenge(request: Any) -> SaslAuthenticateResponse:
        nonlocal asked
        asked += 1
        return SaslAuthenticateResponse(error_message=None, auth_bytes=b"more")

    answers: Answers = {
        SaslHandshakeRequest: lambda request: SaslHandshakeResponse(mechanisms=[mechanism]),
        SaslAuthenticateRequest: challenge,
    }
    async with scripted_broker(answers) as address:
        text = await fails(address, AuthenticationFailedError, match, mechanism=mechanism)
    assert address in text
    assert asked <= 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("lifetime_ms", [-1, -(2**63), 2**63 - 1])
async def test_lifetimes_that_make_no_sense(mechanism: str, lifetime_ms: int) -> None:
    def change(response: Any) -> None:
        response.session_lifetime_ms = lifetime_ms

    async with FakeCluster(security=Security({"alice": PASSWORD})) as cluster:
        cluster.intercept(SaslAuthenticateRequest, Edit(change))
        client = AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers, **options(mechanism=mechanism)
        )
        async with client:
            assert await client.fetch_all_metadata()
        assert cluster.count(SaslHandshakeRequest) == 1


async def test_other_mechanisms_than_the_one_asked_for() -> None:
    """The client never takes a weaker one that the server offers."""
    tokens: list[bytes] = []

    def take(request: SaslAuthenticateRequest) -> None:
        tokens.append(bytes(request.auth_bytes))

    for offered in (["PLAIN"], [], ["X" * 10_000] * 10):
        answers: Answers = {
            SaslHandshakeRequest: lambda request, names=offered: SaslHandshakeResponse(
                error_code=33, mechanisms=names
            ),
            SaslAuthenticateRequest: take,
        }
        async with scripted_broker(answers) as address:
            text = await fails(address, AuthenticationMethodNotSupported, "SCRAM-SHA-256")
            assert "it offers" in text
    assert tokens == []


async def test_long_explanations_are_cut() -> None:
    answers: Answers = {
        SaslHandshakeRequest: lambda request: SaslHandshakeResponse(mechanisms=["PLAIN"]),
        SaslAuthenticateRequest: lambda request: SaslAuthenticateResponse(
            error_code=58, error_message="no " * 10_000, auth_bytes=b""
        ),
    }
    async with scripted_broker(answers) as address:
        await fails(address, AuthenticationFailedError, "no no no", mechanism="PLAIN")


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("as_challenge", [False, True])
async def test_what_a_broker_says_forges_no_line_and_shows_no_secret(
    mechanism: str, as_challenge: bool
) -> None:
    """It repeats what it was sent."""
    sent: list[str] = []

    def repeat(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        parts = re.split("[\\0\\1]|Bearer ", bytes(request.auth_bytes).decode())
        sent.append(max(parts, key=len))
        words = f"no\n2026-11-27 INFO all is well\x1b[2J {sent[0]}"
        if as_challenge and mechanism == "OAUTHBEARER" and len(sent) == 1:
            return SaslAuthenticateResponse(error_message=None, auth_bytes=words.encode())
        return SaslAuthenticateResponse(error_code=58, error_message=words, auth_bytes=b"")

    answers: Answers = {
        SaslHandshakeRequest: lambda request: SaslHandshakeResponse(mechanisms=[mechanism]),
        SaslAuthenticateRequest: repeat,
    }
    async with scripted_broker(answers) as address:
        text = await fails(address, AuthenticationFailedError, "all is well", mechanism=mechanism)
    assert len(sent[0]) >= len(PASSWORD)
    assert sent[0] not in text
    assert text.isprintable()


BROKEN = [
    b"\x7f\xff\xff\xff",  # 2 GiB announced
    b"\x0f\xff\xff\xff",  # 256 MiB: as much as a response may have later
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x04\xff\xff\xff\xff",
    b"\x00\x00\x00\x05\x00\x00\x00\x02\x00",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x15\x03\x03\x00\x02\x02\x50",
    random.Random(7).randbytes(300),
]


@pytest.mark.parametrize("api", [SaslHandshakeRequest, SaslAuthenticateRequest])
@pytest.mark.parametrize("junk", BROKEN, ids=lambda junk: f"{len(junk)}-{junk[:4].hex()}")
async def test_garbage_in_the_middle_of_a_login(api: Any, junk: bytes) -> None:
    async with FakeCluster(security=Security({"alice": PASSWORD})) as cluster:
        cluster.intercept(api, RawBytes(junk + b"\xff" * 16))
        tracemalloc.start()
        try:
            await fails(
                cluster.bootstrap_servers, (KafkaConnectionError, AuthenticationFailedError)
            )
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 * 1024 * 1024


async def test_before_the_login_answers_are_short() -> None:
    """Later the same broker may send as much as is configured."""
    async with FakeCluster(security=Security({"alice": PASSWORD})) as cluster:
        with cluster.intercept(SaslHandshakeRequest, RawBytes(b"\x00\x10\x00\x01")):
            text = await fails(cluster.bootstrap_servers, KafkaConnectionError, "1048577 bytes")
            assert "limit of 1048576" in text
        await cluster.create_topic("t", 5_000)
        client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, **options())
        async with client:
            for number in range(10):
                await cluster.create_topic(f"{'long' * 50}-{number}", 5_000)
            metadata = await client.fetch_all_metadata()
            assert len(metadata.topics()) == 11


@pytest.mark.parametrize("greets", [True, False])
async def test_a_broker_that_speaks_very_slowly(greets: bool) -> None:
    """Each byte comes in time, but all of them would take for ever."""
    serving: list[asyncio.Task[Any] | None] = []

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        frame = await read_frame(reader)
        body = frame[4:8] + bytes(2 + 4 + 4 + 1000)
        if greets:
            # ApiVersions v4: no error, the two requests of SASL, and itself.
            apis = b"\x04" + b"\x00\x11\x00\x00\x00\x01\x00" + b"\x00\x24\x00\x00\x00\x02\x00"
            apis += b"\x00\x12\x00\x00\x00\x04\x00"
            answer = frame[4:8] + b"\x00\x00" + apis + bytes(4) + b"\x00"
            writer.write(len(answer).to_bytes(4, "big") + answer)
            frame = await read_frame(reader)
            body = frame[4:8] + b"\x00\x00\x00\x00\x00\x7f" + bytes(1000)
        for byte in len(body).to_bytes(4, "big") + body:
            if writer.transport.is_closing():
                return
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)

    async with serve(drip) as address:
        client = AIOKafkaClient(
            bootstrap_servers=address,
            socket_connection_setup_timeout_ms=300,
            **options(),
        )
        with pytest.raises(KafkaConnectionError, match=r"in time|no response during the handshake"):
            await client.bootstrap()
        await client.close()
        await asyncio.gather(*(task for task in serving if task is not None))


@pytest.mark.parametrize("answer", [b"", bytes(16), b"plain text, please\r\n"])
async def test_nothing_secret_is_said_when_tls_is_stripped(tmp_path: Path, answer: bytes) -> None:
    """A server in the middle takes the connection and offers to go on without encryption."""
    heard = bytearray()

    async def strip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(4096))
        writer.write(answer)
        if not answer:
            return
        while data := await reader.read(4096):
            heard.extend(data)

    context = create_ssl_context(cafile=Certificates(tmp_path).cafile)
    async with serve(strip) as address:
        await fails(
            address,
            KafkaConnectionError,
            "plaintext",
            mechanism="PLAIN",
            security_protocol="SASL_SSL",
            ssl_context=context,
        )
    assert heard.startswith(b"\x16\x03")
    assert PASSWORD.encode() not in heard and b"alice" not in heard


async def test_nothing_secret_is_said_to_a_host_with_another_name(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            heard.extend(data)

    server = certificates.server_context("other.example")
    client = create_ssl_context(cafile=certificates.cafile)
    tls = {"security_protocol": "SASL_SSL", "ssl_context": client}
    async with serve(listen, context=server) as address:
        await fails(address, KafkaConnectionError, "not valid for", mechanism="PLAIN", **tls)
    assert heard == b""
    assert client.verify_mode is ssl.CERT_REQUIRED
