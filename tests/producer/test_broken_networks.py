"""A network that breaks at any byte: everything arrives exactly once, in order."""

from __future__ import annotations

import pytest

from aiokafka.testing import FakeCluster
from aiokafka.testing.proxy import Direction
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, values

EVERY = 97
"""Bytes between two places where the stream is cut; prime, so that no field is always spared."""


@pytest.mark.parametrize("direction", ["requests", "responses"])
async def test_a_cut_at_every_nth_byte(direction: Direction) -> None:
    async with FakeCluster(proxied=True) as cluster:
        await cluster.create_topic(TOPIC)
        proxy = cluster.proxies[0]
        expected: list[bytes] = []
        async with new_producer(cluster, max_batch_size=150) as producer:
            await producer.partitions_for(TOPIC)
            for place in range(0, 4000, EVERY):
                payloads = [b"%d-%d" % (place, number) for number in range(40)]
                expected += payloads
                proxy.cut_after(place, direction)
                found = await results(await send_all(producer, payloads))
                assert not [one for one in found if isinstance(one, BaseException)]
            proxy.restore()
        assert values(cluster) == expected


@pytest.mark.parametrize("direction", ["requests", "responses"])
async def test_connections_that_break_again_and_again(direction: Direction) -> None:
    async with FakeCluster(proxied=True) as cluster:
        await cluster.create_topic(TOPIC)
        proxy = cluster.proxies[0]
        async with new_producer(cluster, max_batch_size=300) as producer:
            await producer.partitions_for(TOPIC)
            proxy.cut_after(3001, direction, repeat=True)
            await results(await send_all(producer, numbers(3000)))
            assert proxy.accepted > 2
            proxy.restore()
        assert values(cluster) == numbers(3000)


@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize("direction", ["requests", "responses"])
async def test_transactions_cut_at_every_nth_byte(direction: Direction, release: str) -> None:
    async with FakeCluster(proxied=True, as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        proxy = cluster.proxies[0]
        expected: list[bytes] = []
        async with new_producer(cluster, max_batch_size=100, transactional_id="id") as producer:
            for place in range(0, 2000, EVERY):
                payloads = [b"%d-%d" % (place, number) for number in range(10)]
                expected += payloads
                proxy.cut_after(place, direction)
                async with producer.transaction():
                    await send_all(producer, payloads)
            proxy.restore()
        assert values(cluster) == expected
        assert cluster.log(TOPIC).last_stable_offset == cluster.log(TOPIC).end_offset


async def test_one_byte_at_a_time() -> None:
    async with FakeCluster(proxied=True) as cluster:
        await cluster.create_topic(TOPIC)
        cluster.proxies[0].fragment(1)
        async with new_producer(cluster) as producer:
            await results(await send_all(producer, numbers(20)))
        assert values(cluster) == numbers(20)


async def test_a_silent_network_and_back() -> None:
    async with FakeCluster(proxied=True) as cluster:
        await cluster.create_topic(TOPIC)
        proxy = cluster.proxies[0]
        async with new_producer(cluster, request_timeout_ms=200) as producer:
            await producer.send_and_wait(TOPIC, b"0", partition=0)
            proxy.stall()
            futures = await send_all(producer, numbers(50)[1:])
            await cluster.wait_for(lambda: proxy.accepted > 1, 20)
            proxy.restore()
            await results(futures)
        assert values(cluster) == numbers(50)
