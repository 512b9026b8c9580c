"""SCRAM and OAUTHBEARER by their bytes: known exchanges, and servers that lie."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from typing import Any

import pytest

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.net.connector import Connector
from aiokafka.net.sasl.oauthbearer import OAuthBearer
from aiokafka.net.sasl.scram import Scram
from aiokafka.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.net.support import Answers, config, now, scripted_broker, split

PASSWORD = "pencil"

# What NFKC would change, and what SASLprep would refuse.
ODD_PASSWORDS = [
    "caf\u00e9-secret",
    "cafe\u0301-secret",
    "\ufb01sh-secret",
    "a\u00a0b-secret",
    "\u00bd-secret",
    "\u0633\u0631\u06cc123",
    "tab\tsecret",
    "\u5bc6\u7801\uff11\uff12",
    "soft\u00adhyphen",
    "\ue000 private",
    " spaces around ",
]
SALT = b"0123456789abcdef"


class Server:
    """The broker's side of SCRAM, written after RFC 5802."""

    def __init__(self, algorithm: str, iterations: int = 4096, password: str = PASSWORD) -> None:
        self.algorithm = algorithm
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), SALT, iterations)
        self.nonce = ""
        self.spoken = ""

    def first(self, client_first: bytes) -> bytes:
        header, bare = client_first.decode()[:3], client_first.decode()[3:]
        assert header == "n,,"
        self.nonce = bare.partition("r=")[2] + "server"
        salt = base64.b64encode(SALT).decode()
        answer = f"r={self.nonce},s={salt},i={self.iterations}"
        self.spoken = f"{bare},{answer}"
        return answer.encode()

    def final(self, client_final: bytes) -> bytes:
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        assert without_proof == f"c=biws,r={self.nonce}"
        signed = f"{self.spoken},{without_proof}".encode()
        client_key = self.digest(self.salted, b"Client Key")
        stored = hashlib.new(self.algorithm, client_key).digest()
        signature = self.digest(stored, signed)
        shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if shown != client_key:
            return b"e=invalid-proof"
        proof_of_server = self.digest(self.digest(self.salted, b"Server Key"), signed)
        return b"v=" + base64.b64encode(proof_of_server)

    def digest(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.algorithm).digest()


def client(mechanism: str = "SCRAM-SHA-256", user: str = "user", password: str = PASSWORD) -> Scram:
    return Scram(mechanism, user, password)


@pytest.mark.parametrize(
    ("mechanism", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
def test_both_sides_prove_the_password(mechanism: str, algorithm: str) -> None:
    scram, server = client(mechanism), Server(algorithm)
    proof = scram.step(server.first(scram.start()))
    assert proof is not None and not scram.done
    assert scram.step(server.final(proof)) is None
    assert scram.done


def test_a_wrong_password_is_refused_by_the_server() -> None:
    scram, server = client(password="crayon"), Server("sha256")
    proof = scram.step(server.first(scram.start()))
    assert proof is not None
    with pytest.raises(AuthenticationFailedError, match="invalid-proof"):
        scram.step(server.final(proof))


def test_each_exchange_has_a_nonce_of_its_own() -> None:
    assert client().start() != client().start()


def test_commas_and_equal_signs_in_names_are_escaped() -> None:
    assert client(user="a,b=c").start().startswith(b"n,,n=a=2Cb=3Dc,r=")


@pytest.mark.parametrize("iterations", [0, 1, 4095, 1_000_001, 999_999_999])
def test_iteration_counts_out_of_bounds_are_refused(iterations: int) -> None:
    scram = client()
    nonce = scram.start().decode().rpartition("r=")[2]
    with pytest.raises(AuthenticationFailedError, match="iterations"):
        scram.step(f"r={nonce}x,s=c2FsdA==,i={iterations}".encode())


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=NONCE,s=c2FsdA==,i=4096",
        b"r=NONCEx,s=,i=4096",
        b"r=NONCEx,s=?,i=4096",
        b"r=NONCEx,s=c2FsdA==",
        b"r=NONCEx,s=c2FsdA==,i=-4096",
        b"r=NONCEx,s=c2FsdA==,i=1e9",
        b"r=NONCEx,s=c2FsdA==,i=9999999999999999999999",
        b"m=unknown,r=NONCEx,s=c2FsdA==,i=4096",
        b"e=unknown-user",
        b"\xff\xfe",
        b"r=NONCEx,s=" + b"A" * 5000,
    ],
)
def test_a_first_answer_that_is_wrong_is_refused(challenge: bytes) -> None:
    scram = client()
    nonce = scram.start().rpartition(b"r=")[2]
    with pytest.raises(AuthenticationFailedError):
        scram.step(challenge.replace(b"NONCE", nonce))


@pytest.mark.parametrize("final", [b"", b"v=", b"v=AAAA", b"v=?", b"x=1", b"e=other-error"])
def test_a_server_that_cannot_prove_itself_is_refused(final: bytes) -> None:
    scram, server = client(), Server("sha256")
    scram.step(server.first(scram.start()))
    with pytest.raises(AuthenticationFailedError):
        scram.step(final)
    assert not scram.done


@pytest.mark.parametrize("password", ODD_PASSWORDS)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_and_passwords_are_used_as_they_are(mechanism: str, password: str) -> None:
    server = Server(mechanism.removeprefix("SCRAM-").replace("-", "").lower(), password=password)
    scram = client(mechanism, user=password, password=password)
    first = scram.start()
    assert first.startswith(f"n,,n={password},r=".encode())
    proof = scram.step(server.first(first))
    assert proof is not None
    scram.step(server.final(proof))
    assert scram.done


async def test_the_proof_is_computed_beside_the_event_loop() -> None:
    server = Server("sha512", iterations=200_000)
    exchange = [server.first, server.final]

    def answer(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=exchange.pop(0)(request.auth_bytes)
        )

    answers: Answers = {
        SaslHandshakeRequest: lambda request: SaslHandshakeResponse(mechanisms=["SCRAM-SHA-512"]),
        SaslAuthenticateRequest: answer,
    }
    options = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "user",
        "sasl_plain_password": PASSWORD,
    }
    async with scripted_broker(answers) as address:
        connector = Connector(config(address, **options), *split(address), "")
        opening = asyncio.ensure_future(connector.open(now() + 50))
        start, turns = now(), 0
        while not opening.done():
            await asyncio.sleep(0.001)
            turns += 1
        (await opening).close()
    # Computed in the loop it would be one turn of at least a tenth of a second.
    assert not exchange and now() - start > 0.05 and turns > 20


class Provider(AbstractTokenProvider):
    def __init__(self, token: Any, extensions: dict[str, str] | None = None) -> None:
        self.answer = token
        self.extra = extensions

    async def token(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def extensions(self) -> Any:
        return self.extra


async def test_the_token_travels_with_its_extensions() -> None:
    bearer = OAuthBearer(Provider("abc.def", {"traceId": "1", "k": "a b"}))
    await bearer.prepare()
    assert bearer.start() == b"n,,\x01auth=Bearer abc.def\x01traceId=1\x01k=a b\x01\x01"
    assert bearer.step(b"") is None
    assert bearer.done


async def test_a_provider_may_return_a_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_result("abc")
    bearer = OAuthBearer(Provider(future))
    await bearer.prepare()
    assert bearer.start() == b"n,,\x01auth=Bearer abc\x01\x01"


async def test_a_challenge_is_acknowledged_and_never_success() -> None:
    bearer = OAuthBearer(Provider("abc"))
    await bearer.prepare()
    bearer.start()
    assert bearer.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailedError, match="invalid_token"):
        bearer.step(b"")


@pytest.mark.parametrize("token", ["", None, "a b", "a\x01b", b"abc", 5])
async def test_what_is_no_token_is_refused(token: Any) -> None:
    with pytest.raises(AuthenticationFailedError, match="token"):
        await OAuthBearer(Provider(token)).prepare()


@pytest.mark.parametrize(
    "extensions",
    [
        {"auth": "x"},
        {"a1": "x"},
        {"": "x"},
        {"a": "\x01"},
        {"a": 1},
        {"a": b"x"},
        {1: "x"},
        [("a", "x")],
    ],
)
async def test_extensions_that_would_break_the_message_are_refused(extensions: Any) -> None:
    with pytest.raises(AuthenticationFailedError, match="extension"):
        await OAuthBearer(Provider("abc", extensions)).prepare()


async def test_an_error_of_the_provider_is_the_cause() -> None:
    error = ValueError("secret detail")
    with pytest.raises(KafkaConnectionError, match="Provider failed") as caught:
        await OAuthBearer(Provider(error)).prepare()
    assert caught.value.__cause__ is error
    assert "secret" not in str(caught.value)
