"""as_version: the ranges of each release, and what brokers do with odd requests."""

from __future__ import annotations

import asyncio
import struct

import pytest

from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from aiokafka.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
from aiokafka.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from aiokafka.testing import FakeCluster
from aiokafka.testing.handlers import known, load
from aiokafka.testing.versions import RELEASES, profile

from .support import RawClient, batch, produce_request

NEW = RELEASES[1:]
TELEMETRY = {GetTelemetrySubscriptionsRequest.API_KEY, PushTelemetryRequest.API_KEY}


@pytest.mark.parametrize("release", NEW)
async def test_ranges_are_advertised(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        async with RawClient(cluster.address(0)) as client:
            response = await client.call(ApiVersionsRequest(), 0)
            ranges = {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
            # What brokers only speak with a plug-in that wants metrics (KIP-714).
            expected = {k: v for k, v in profile(release).ranges.items() if k not in TELEMETRY}
            assert ranges == expected
            assert ranges[0][1] == {"0.10.2": 2, "0.11": 3, "1.1": 5, "2.1": 7, "2.8": 9}.get(
                release, {"3.9": 11, "4.0": 12, "4.3": 13, "4.4": 13}.get(release)
            )


def test_every_advertised_version_is_served() -> None:
    for release in RELEASES:
        for api_key, (low, high) in profile(release).ranges.items():
            first, last = load(api_key).request_class.VERSIONS
            assert known(api_key) and first <= low <= high <= last


@pytest.mark.parametrize(
    ("release", "answer"),
    [
        ("0.10.2", struct.pack(">hi", 35, 0)),
        ("2.1", struct.pack(">hi", 35, 0)),
        ("2.8", struct.pack(">hihhh", 35, 1, 18, 0, 3)),
        ("4.3", struct.pack(">hihhh", 35, 1, 18, 0, 4)),
    ],
)
async def test_api_versions_of_an_unknown_version(release: str, answer: bytes) -> None:
    async with FakeCluster(as_version=release) as cluster:
        async with RawClient(cluster.address(0)) as client:
            client.writer.write(struct.pack(">ihhihb", 11, 18, 99, 1, -1, 0))
            assert await client.receive_frame() == struct.pack(">i", 1) + answer


async def test_the_oldest_brokers_never_answer_api_versions() -> None:
    async with FakeCluster(as_version="0.9") as cluster:
        async with RawClient(cluster.address(0)) as client:
            client.send(ApiVersionsRequest(), 0)
            client.send(MetadataRequest(topics=[]), 0)
            frame = await client.receive_frame()
            assert frame[:4] == struct.pack(">i", 2)  # the connection stays open and serves


@pytest.mark.parametrize(
    ("release", "request_", "version"),
    [
        ("4.3", produce_request("t", batch(b"x")), 2),  # advertised, and refused all the same
        ("4.3", FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 3),
        ("2.1", MetadataRequest(topics=[]), 8),
    ],
)
async def test_other_unknown_versions_close_the_connection(
    release: str, request_: MetadataRequest, version: int
) -> None:
    async with FakeCluster(as_version=release) as cluster:
        async with RawClient(cluster.address(0)) as client:
            client.send(request_, version)
            assert await client.receive_frame() == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",  # negative length
        b"\x7f\xff\xff\xff",  # absurd length
        struct.pack(">ihhih", 10, 3, 9, 1, 100),  # client id beyond the frame
        struct.pack(">ih", 2, 3),  # shorter than a header
        struct.pack(">ihhih", 10, 3, 9, 1, -1),  # no body
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_nonsense_closes_the_connection(data: bytes) -> None:
    async with FakeCluster() as cluster:
        async with RawClient(cluster.address(0)) as client:
            client.writer.write(data)
            assert await client.receive_frame() == b""
        async with RawClient(cluster.address(0)) as client:
            assert (await client.call(MetadataRequest(topics=[]), 9)).brokers


async def test_features() -> None:
    named = ApiVersionsRequest(client_software_name="x", client_software_version="1.0")
    async with FakeCluster() as cluster:
        async with RawClient(cluster.address(0)) as client:
            three, four = await client.call(named, 3), await client.call(named, 4)
            finalized = {f.name: f.max_version_level for f in three.finalized_features}
            assert finalized["transaction.version"] == 2
            assert finalized["group.version"] == 1
            supported = [{f.name for f in r.supported_features} for r in (three, four)]
            assert "transaction.version" not in supported[0]  # its minimum is 0
            assert "transaction.version" in supported[1]
            bad = ApiVersionsRequest(client_software_name="-x", client_software_version="")
            assert (await client.call(bad, 3)).error_code == 42


@pytest.mark.parametrize(("release", "errno"), [("2.1", 41), ("4.3", 0)])
async def test_only_zookeeper_clusters_send_clients_to_the_controller(
    release: str, errno: int
) -> None:
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    async with FakeCluster(2, as_version=release) as cluster:
        async with RawClient(cluster.address(1)) as client:
            response = await client.call(CreateTopicsRequest(topics=[topic]), 3)
            assert response.topics[0].error_code == errno


@pytest.mark.parametrize("version", range(3))
async def test_message_sets_are_taken_by_old_brokers(version: int) -> None:
    from aiokafka.record.legacy import build_message_set

    magic = 1 if version == 2 else 0
    async with FakeCluster(as_version="0.10.2") as cluster:
        await cluster.create_topic("t")
        async with RawClient(cluster.address(0)) as client:
            for codec in (0, 1):
                data = build_message_set(magic, [(5, b"k", b"a"), (6, None, b"b")], codec)
                response = await client.call(produce_request("t", data), version)
                assert response.responses[0].partition_responses[0].error_code == 0
            v2 = produce_request("t", batch(b"new"))
            response = await client.call(v2, version)
            assert response.responses[0].partition_responses[0].error_code == 2
        records = cluster.log("t").records()
        assert [(r.offset, r.key, r.value) for r in records] == [
            (0, b"k", b"a"),
            (1, None, b"b"),
            (2, b"k", b"a"),
            (3, None, b"b"),
        ]


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with RawClient(cluster.address(0)) as client:
            for i in range(10):
                client.send(produce_request("t", batch(b"%d" % i)), 9)
            frames = await asyncio.gather(client.receive_frame())
            for _ in range(9):
                frames.append(await client.receive_frame())
            assert [int.from_bytes(f[:4], "big") for f in frames] == list(range(1, 11))
        assert [r.value for r in cluster.log("t").records()] == [b"%d" % i for i in range(10)]
