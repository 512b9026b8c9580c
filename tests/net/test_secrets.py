"""Secrets stay secret: in logs of every level, messages, tracebacks and representations, for every
mechanism, whether it works or not."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest
from aiokafka.testing import Cut, FakeCluster, RawBytes, Security

PASSWORD = "Tr0ub4dor&3"
WRONG = "Tr0ub4dor-wr0ng"
CLAIM = "claim-of-the-token"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Tokens(AbstractTokenProvider):
    """Shows its secret in its representation, as providers that are data classes do."""

    def __init__(self, secret: str, *, fails: bool = False) -> None:
        super().__init__()
        self.secret = secret
        self.fails = fails

    def __repr__(self) -> str:
        return f"Tokens(secret={self.secret!r})"

    async def token(self) -> str:
        if self.fails:
            raise RuntimeError(f"the identity provider does not know {self.secret}")
        return token_of(self.secret)

    def extensions(self) -> dict[str, str]:
        return {"note": self.secret}


def token_of(secret: str) -> str:
    claims = {"sub": "alice", "exp": time.time() + 300, CLAIM: secret}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def forms(secret: str) -> set[str]:
    """How a secret may look: itself, encoded, within a message of SASL."""
    plain = f"\0alice\0{secret}"
    texts = {secret, plain}
    for text in (secret, plain, json.dumps(secret)):
        for shift in range(3):
            # Wherever it begins within a longer text in base64.
            encoded = base64.b64encode(b"x" * shift + text.encode())
            texts.add(encoded[4 * (shift > 0) : -4].decode())
    texts.add(secret.encode().hex())
    return {text for text in texts if len(text) >= 8}


class Witness(logging.Handler):
    """Takes every record of every logger, with its traceback and its arguments."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.heard = io.StringIO()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        self.heard.write(logging.Formatter().format(record) + "\n")
        self.heard.write(repr(record.args) + "\n")

    def look(self, thing: object) -> None:
        """Whatever an application may print of it."""
        for text in (str(thing), repr(thing), repr(getattr(thing, "__dict__", None))):
            self.heard.write(text + "\n")

    def look_at_error(self, error: BaseException) -> None:
        """The whole chain, as a program prints it that does not catch it, with all variables that
        have a representation of ours."""
        self.heard.writelines(traceback.format_exception(error))
        for cause in _chain(error):
            self.look(cause)
            self.look(cause.args)

    def assert_heard_nothing_of(self, *secrets: str) -> None:
        heard = self.heard.getvalue()
        for secret in secrets:
            for form in forms(secret):
                at = heard.find(form)
                assert at < 0, heard[max(0, at - 300) : at + 300]


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


@pytest.fixture
async def witness() -> AsyncIterator[Witness]:
    handler = Witness()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    yield handler
    loop.set_debug(False)
    root.setLevel(level)
    root.removeHandler(handler)


def options(cluster: FakeCluster, mechanism: str, secret: str, **more: Any) -> dict[str, Any]:
    found = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        found["sasl_oauth_token_provider"] = Tokens(secret)
    else:
        found |= {"sasl_plain_username": "alice", "sasl_plain_password": partial(str, secret)}
    return {**found, **more}


async def use(witness: Witness, given: dict[str, Any]) -> None:
    """All that clients do; what they raise is looked at from all sides."""
    producer = AIOKafkaProducer(**given)
    consumer = AIOKafkaConsumer(group_id="g", auto_offset_reset="earliest", **given)
    admin = AIOKafkaAdminClient(**given)
    steps: list[Callable[[], Any]] = [
        producer.start,
        lambda: producer.send_and_wait("t", b"value"),
        consumer.start,
        lambda: consumer.assign([TopicPartition("t", 0)]),
        consumer.getone,
        admin.start,
        admin.list_topics,
    ]
    for step in steps:
        try:
            result = step()
            witness.look(await result if asyncio.iscoroutine(result) else result)
        except Exception as error:
            witness.look_at_error(error)
    for client in (producer, consumer, admin):
        witness.look(client)
        witness.look(getattr(client, "client", None))
    await producer.stop()
    await consumer.stop()
    await admin.close()


def accept(token: str) -> str | None:
    """The user of a token, unless the wrong password is in its claims."""
    claims = base64.urlsafe_b64decode(token.split(".")[1] + "==")
    return None if WRONG.encode() in claims else "alice"


@contextlib.asynccontextmanager
async def secured(lifetime_ms: int = 0) -> AsyncIterator[tuple[FakeCluster, Security]]:
    security = Security({"alice": PASSWORD}, session_lifetime_ms=lifetime_ms, accept_token=accept)
    async with FakeCluster(security=security) as cluster:
        await cluster.create_topic("t")
        yield cluster, security


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_when_it_works(witness: Witness, mechanism: str) -> None:
    async with secured() as (cluster, _):
        await use(witness, options(cluster, mechanism, PASSWORD))
    assert "authenticated by " + mechanism in witness.heard.getvalue()
    witness.assert_heard_nothing_of(PASSWORD)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_when_it_is_refused(witness: Witness, mechanism: str) -> None:
    async with secured() as (cluster, _):
        given = options(cluster, mechanism, WRONG, request_timeout_ms=500)
        await use(witness, given)
    assert "AuthenticationFailedError" in witness.heard.getvalue()
    witness.assert_heard_nothing_of(PASSWORD, WRONG)


@pytest.mark.parametrize("trouble", [Cut(), RawBytes(b"\x00\x00\x00\x08garbage!")])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_when_the_connection_breaks(witness: Witness, mechanism: str, trouble: Any) -> None:
    async with secured() as (cluster, _):
        cluster.intercept(SaslAuthenticateRequest, trouble)
        await use(witness, options(cluster, mechanism, PASSWORD, request_timeout_ms=200))
    assert "KafkaConnectionError" in witness.heard.getvalue()
    witness.assert_heard_nothing_of(PASSWORD)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_when_a_session_is_renewed(witness: Witness, mechanism: str) -> None:
    async with secured(lifetime_ms=500) as (cluster, security):
        given = options(cluster, mechanism, PASSWORD)
        async with AIOKafkaProducer(**given, delivery_timeout_ms=1000) as producer:
            await producer.send_and_wait("t", b"value")
            await cluster.wait_for(lambda: security.renewals >= 1)
            security.users["alice"] = "changed"
            security.accept_token = lambda token: None
            refusals = security.refusals
            await cluster.wait_for(lambda: security.refusals > refusals)
            try:
                await producer.send_and_wait("t", b"value")
            except Exception as error:
                witness.look_at_error(error)
    heard = witness.heard.getvalue()
    assert "re-authenticated by " + mechanism in heard
    assert "the session is not renewed" in heard
    witness.assert_heard_nothing_of(PASSWORD)


def fail_with(secret: str) -> str:
    raise RuntimeError(f"the store does not know {secret}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_when_the_source_of_the_secret_fails(witness: Witness, mechanism: str) -> None:
    """What the application's own code raises is its own matter: it is the cause, and only there."""
    async with secured() as (cluster, _):
        given = options(cluster, mechanism, PASSWORD)
        if mechanism == "OAUTHBEARER":
            given["sasl_oauth_token_provider"] = Tokens(PASSWORD, fails=True)
        else:
            given["sasl_plain_password"] = partial(fail_with, PASSWORD)
        producer = AIOKafkaProducer(**given)
        with pytest.raises(Exception, match="RuntimeError") as caught:
            await producer.start()
        await producer.stop()
        witness.look(caught.value)
        assert isinstance(caught.value.__cause__, RuntimeError)
    witness.assert_heard_nothing_of(PASSWORD)


def test_the_witness_would_notice() -> None:
    for shown in (
        PASSWORD,
        repr(f"\0alice\0{PASSWORD}"),
        base64.b64encode(f"n,,n={PASSWORD}".encode()).decode(),
        PASSWORD.encode().hex(),
        token_of(PASSWORD),
    ):
        witness = Witness()
        witness.look(shown)
        with pytest.raises(AssertionError):
            witness.assert_heard_nothing_of(PASSWORD)
