"""Servers that speak Kafka's protocol and are not Kafka: what they do in another way."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.net.connector import Connector
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.exchange import encode_response_header, peek_request_header
from aiokafka.protocol.messages import ApiVersionsRequest, MetadataRequest, ProduceRequest
from aiokafka.protocol.messages.metadata import ApiVersion, ApiVersionsResponse, MetadataResponse
from aiokafka.protocol.messages.produce import ProduceResponse
from aiokafka.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.net.support import (
    USER,
    Answers,
    config,
    connected,
    now,
    plain_answers,
    read_frame,
    scripted_broker,
    serve,
    split,
)
from tests.support.tokens import Token

NEWEST = ApiVersionsRequest.VERSIONS[1]


class PickyServer:
    """Answers ApiVersions up to `newest`, and closes the connection on a later version.

    It may say that it knows others.
    """

    def __init__(self, newest: int, *, says: int = 3, is_rude: bool = False) -> None:
        self.newest = newest
        self.says = says
        self.is_rude = is_rude
        self.asked: list[int] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, version, correlation_id = peek_request_header(await read_frame(reader))
            self.asked.append(version)
            if version > self.newest:
                if self.is_rude:
                    writer.transport.abort()
                return
            own = ApiVersion(
                api_key=ApiVersionsRequest.API_KEY, min_version=0, max_version=self.says
            )
            head = encode_response_header(ApiVersionsRequest, version, correlation_id)
            response = ApiVersionsResponse(api_keys=[own])
            body = head + codec(ApiVersionsResponse, version).encode_bytes(response)
            writer.write(len(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize("is_rude", [False, True])
@pytest.mark.parametrize("says", [3, NEWEST])
async def test_a_server_that_closes_when_asked_in_the_newest_form_is_asked_in_an_older_one(
    says: int, is_rude: bool
) -> None:
    """Azure Event Hubs resets the connection: no client ever got in.

    A gateway may do so, and hand on what the broker behind it says that it knows.
    """
    server = PickyServer(3, says=says, is_rude=is_rude)
    async with serve(server) as address:
        connector = Connector(config(address), *split(address), "")
        for _ in range(2):
            connection = await connector.open(now() + 5)
            assert connection.is_ready
            connection.close()
            await connection.closed
    # The form that it takes is known from then on.
    assert server.asked == [NEWEST, 3, 3]


async def test_a_server_that_closes_whatever_it_is_asked_is_asked_twice() -> None:
    """In the newest form first, each time: it may have been about to stop."""
    server = PickyServer(-1)
    async with serve(server) as address:
        connector = Connector(config(address), *split(address), "")
        for _ in range(2):
            with pytest.raises(KafkaConnectionError, match="closed by the broker before"):
                await connector.open(now() + 5)
    assert server.asked == [NEWEST, 3] * 2


async def test_a_server_that_answers_requests_without_acks() -> None:
    """Azure Event Hubs does. Each such response cost the connection, and what was on its way."""

    def produced(request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(responses=[])

    def metadata(request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=[])

    answers: Answers = {ProduceRequest: produced, MetadataRequest: metadata}
    async with scripted_broker(answers) as address, connected(address) as connection:
        silent = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[])
        for _ in range(2):
            before = connection.traffic.bytes_in
            assert await connection.request(silent) is None
            # Alone, and then between others.
            while connection.traffic.bytes_in == before:
                await asyncio.sleep(0)
            asked = [
                connection.send_nowait(request)
                for request in (MetadataRequest(topics=[]), silent, MetadataRequest(topics=[]))
            ]
            await asyncio.gather(*asked)
        assert connection.is_open
        # In both directions are ApiVersions and Metadata: there is nothing to wait for otherwise.
        assert connection.traffic.responses == 5
        assert connection.in_flight == 0


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_refusal_without_a_token(version: int) -> None:
    """Azure Event Hubs sends null: it was taken for a broken response, and tried again."""
    reason = b"Invalid signature"
    lifetime = bytes(8) if version else b""
    text, nothing = len(reason).to_bytes(2, "big") + reason, b"\xff" * 4
    if version == 2:
        text, nothing, lifetime = bytes([len(reason) + 1]) + reason, b"\0", lifetime + b"\0"
    # The third request of the connection.
    head = encode_response_header(SaslAuthenticateRequest, version, 3)
    body = head + b"\0\x3a" + text + nothing + lifetime
    answers = plain_answers()
    answers[SaslAuthenticateRequest] = lambda request: len(body).to_bytes(4, "big") + body
    versions = {SaslAuthenticateRequest.API_KEY: (version, version)}
    async with scripted_broker(answers, versions=versions) as address:
        client = AIOKafkaClient(bootstrap_servers=address, **USER)
        with pytest.raises(AuthenticationFailedError, match="Invalid signature"):
            await client.bootstrap()
        await client.close()


async def test_a_server_that_says_more_than_that_plain_credentials_are_good() -> None:
    """Tencent's does, and Java's client does not look at it either."""
    async with scripted_broker(plain_answers(auth_bytes=b"more")) as address:
        async with connected(address, **USER) as connection:
            assert connection.is_ready


class Tokens(Token):
    """Hears of refusals."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0

    def refused(self, token: str) -> None:
        self.refusals += 1


@pytest.mark.parametrize("has_challenge", [False, True])
async def test_a_token_that_is_refused_by_a_code_is_replaced(has_challenge: bool) -> None:
    """Kafka sends a challenge first; Strimzi's brokers and Amazon's do not, and what gives tokens
    did not hear of it: the same token was sent for as long as it would have been good."""
    asked = 0

    def refuse(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        nonlocal asked
        asked += 1
        if has_challenge and asked == 1:
            return SaslAuthenticateResponse(error_message=None, auth_bytes=b"{}")
        return SaslAuthenticateResponse(error_code=58, error_message="expired", auth_bytes=b"")

    answers: Answers = {
        SaslHandshakeRequest: lambda request: SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]),
        SaslAuthenticateRequest: refuse,
    }
    tokens = Tokens()
    options = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
    }
    async with scripted_broker(answers) as address:
        connector = Connector(config(address, **options), *split(address), "")
        with pytest.raises(AuthenticationFailedError, match="expired"):
            await connector.open(now() + 5)
    assert tokens.refusals == 1
