"""A broker that answers nonsense: an error for every waiter, never a hang, never a crash."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.messages import ApiVersionsRequest, MetadataRequest
from aiokafka.testing import Edit, FakeCluster, RawBytes
from tests.net.support import connected


def metadata_request() -> MetadataRequest:
    return MetadataRequest(topics=[])


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x00\x00",  # an empty frame
        b"\x00\x00\x00\x03abc",  # too short for a correlation id
        b"\x80\x00\x00\x00",  # a negative length
        b"\x7f\xff\xff\xff",  # two gigabytes
        b"\x00\x00\x00\x04\xff\xff\xff\xff",  # a response to another request
        b"\x00\x00\x00\x06\x00\x00\x00\x02\x00\xff",  # the right one, cut short
        random.Random(7).randbytes(4096),
    ],
    ids=["empty", "short", "negative", "huge", "foreign", "truncated", "random"],
)
async def test_every_waiter_gets_an_error(answer: bytes) -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, RawBytes(answer), times=1)
        futures = [connection.send_nowait(metadata_request(), timeout=5) for _ in range(3)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(result, KafkaError) for result in results)
        assert not connection.is_open


async def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        # The response to the next request comes twice.
        async def twice(request: object, context: object) -> RawBytes:
            body = b"\x00\x00\x00\x02" + b"\x00" + bytes(16)
            return RawBytes((len(body).to_bytes(4, "big") + body) * 2)

        cluster.intercept(MetadataRequest, twice, times=1)
        with pytest.raises(KafkaConnectionError):
            await connection.request(metadata_request())
        await connection.closed


async def test_memory_is_not_taken_on_the_word_of_a_length_field() -> None:
    async with FakeCluster() as cluster:
        options = {"receive_message_max_bytes": 10_000}
        async with connected(cluster.bootstrap_servers, **options) as connection:
            cluster.intercept(MetadataRequest, RawBytes(b"\x00\x00\x27\x11"), times=1)
            with pytest.raises(
                KafkaConnectionError, match="10001 bytes exceeds the limit of 10000"
            ):
                await connection.request(metadata_request())


def no_brokers(response: object) -> None:
    response.brokers = []  # type: ignore[attr-defined]


def nowhere(response: object) -> None:
    for broker in response.brokers:  # type: ignore[attr-defined]
        broker.host, broker.port = "", -1


def refused(response: object) -> None:
    response.error_code = -1  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [no_brokers, nowhere, refused])
async def test_metadata_that_leads_nowhere_fails_the_bootstrap(
    change: Callable[[object], None],
) -> None:
    async with FakeCluster() as cluster:
        cluster.intercept(MetadataRequest, Edit(change))  # type: ignore[arg-type]
        client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await client.bootstrap()
        await client.close()


async def test_random_answers_never_hang_a_bootstrap() -> None:
    async with FakeCluster() as cluster:
        rng = random.Random(7)
        for api in (ApiVersionsRequest, MetadataRequest):
            for _ in range(30):
                junk = rng.randbytes(rng.randrange(1, 200))
                body = b"\x00\x00\x00\x01" + junk
                answer = len(body).to_bytes(4, "big") + body if rng.random() < 0.5 else junk
                cut = rng.random() < 0.5
                with cluster.intercept(api, RawBytes(answer + b"\xff" * 8 * cut), times=1):
                    client = AIOKafkaClient(
                        bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=300
                    )
                    async with timeout(5):  # the limit of a hang
                        with contextlib.suppress(KafkaError):
                            await client.bootstrap()
                        await client.close()
