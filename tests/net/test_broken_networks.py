"""The network at its worst: single bytes, cuts in the middle, silence."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.messages import MetadataRequest
from aiokafka.testing import FakeCluster, FaultProxy
from tests.net.support import connected, read_frame, serve, split


def metadata_request() -> MetadataRequest:
    return MetadataRequest(topics=[])


async def test_one_byte_at_a_time() -> None:
    async with FakeCluster(brokers=2, proxied=True) as cluster:
        await cluster.create_topic("topic", partitions=5)
        for proxy in cluster.proxies.values():
            proxy.fragment(1)
        async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            deadline = asyncio.get_running_loop().time() + 20
            assert await client.wait_for_topic("topic", deadline) == {0, 1, 2, 3, 4}
            answers = await asyncio.gather(*(client.send(1, metadata_request()) for _ in range(5)))
            assert all(len(answer.brokers) == 2 for answer in answers)


async def test_a_cut_after_every_byte_of_an_answer_gives_an_error() -> None:
    async with FakeCluster(proxied=True) as cluster:
        proxy = cluster.proxies[0]
        for length in range(0, 60, 3):
            async with connected(cluster.bootstrap_servers) as connection:
                proxy.cut_after(length, "responses")
                with pytest.raises(KafkaConnectionError):
                    await connection.request(metadata_request())
                proxy.restore()


async def test_a_cut_after_every_byte_of_a_request_gives_an_error() -> None:
    async with FakeCluster(proxied=True) as cluster:
        proxy = cluster.proxies[0]
        for length in range(0, 30, 3):
            async with connected(cluster.bootstrap_servers) as connection:
                proxy.cut_after(length, "requests")
                with pytest.raises(KafkaConnectionError):
                    await connection.request(metadata_request())
                proxy.restore()


async def answered_bytes(cluster: FakeCluster) -> int:
    """How many bytes of answers a bootstrap takes."""
    received = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        answers, requests = await asyncio.open_connection(*split(cluster.bootstrap_servers))
        try:
            while True:
                frame = await read_frame(reader)
                requests.write(len(frame).to_bytes(4, "big") + frame)
                answer = await read_frame(answers)
                received += 4 + len(answer)
                writer.write(len(answer).to_bytes(4, "big") + answer)
        finally:
            requests.close()

    async with serve(count) as address:
        async with AIOKafkaClient(bootstrap_servers=address):
            pass
    return received


async def test_a_cut_anywhere_in_the_bootstrap_gives_an_error_and_leaves_nothing() -> None:
    """Of a bootstrap each byte counts: one too few is an error, and all of them are a success."""
    async with FakeCluster() as cluster:
        whole = await answered_bytes(cluster)
        assert whole > 200
        proxy = FaultProxy(cluster.bootstrap_servers)
        async with proxy:
            # Where not one byte comes, another connection is made.
            for length in [*range(1, whole, 29), whole - 1, whole, whole + 1]:
                proxy.cut_after(length, "responses")
                client = AIOKafkaClient(bootstrap_servers=proxy.address)
                if length >= whole:
                    await client.bootstrap()
                    assert client.cluster.brokers()
                else:
                    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
                        await client.bootstrap()
                await client.close()
                proxy.restore()
                await cluster.wait_for(lambda: cluster.connections == 0)
                await cluster.wait_for(lambda: proxy.connections == 0)


async def test_requests_go_on_after_a_cut() -> None:
    async with FakeCluster(proxied=True) as cluster:
        async with AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers, reconnect_backoff_ms=10
        ) as client:
            for _ in range(5):
                cluster.proxies[0].cut()
                while True:
                    try:
                        assert (await client.send(0, metadata_request())).brokers
                        break
                    except KafkaConnectionError:
                        continue


async def test_a_silent_network_ends_at_the_request_timeout() -> None:
    async with FakeCluster(proxied=True) as cluster:
        async with AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=200
        ) as client:
            assert await client.ready(0)
            cluster.proxies[0].stall()
            with pytest.raises(KafkaError):
                await client.send(0, metadata_request())
            cluster.proxies[0].restore()
            assert await client.ready(0)
            assert (await client.send(0, metadata_request())).brokers
