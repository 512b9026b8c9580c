"""Records of every shape through a real Kafka with each codec: all clients read the same."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration import ours, peers
from tests.integration.material import PARTITIONS, expected
from tests.kafka.fixtures import Kafka, MakeTopic, Scale

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHORT, LONG = 20_000, 1_000_000


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
async def test_what_we_write_all_read_equal(
    kafka: Kafka, make_topic: MakeTopic, scale: Scale, codec: str
) -> None:
    count, servers = scale(SHORT, LONG), kafka.bootstrap_servers
    topic = await make_topic(partitions=PARTITIONS)
    await ours.write_messages(servers, topic, count, codec)

    wanted = expected(count)
    assert (await ours.read_messages(servers, topic, count)).result == wanted
    for read in (peers.read_with_confluent, peers.read_with_kafka_python):
        assert (await asyncio.to_thread(read, servers, topic, count)).result == wanted


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
async def test_what_others_write_we_read_equal(
    kafka: Kafka, make_topic: MakeTopic, scale: Scale, codec: str
) -> None:
    count, servers = scale(SHORT, LONG), kafka.bootstrap_servers
    topic = await make_topic(partitions=PARTITIONS)
    await asyncio.to_thread(peers.write_with_confluent, servers, topic, count, codec)

    assert (await ours.read_messages(servers, topic, count)).result == expected(count)
