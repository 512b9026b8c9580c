"""The profiles of the fake cluster: other servers that speak Kafka's protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.errors import UnsupportedForMessageFormatError
from aiokafka.testing import FakeCluster
from aiokafka.testing.servers import PROFILES, SERVERS, server_profile
from aiokafka.testing.versions import profile

DOCS = Path(__file__).parent.parent.parent / "docs" / "testing.rst"


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_has_no_versions_that_the_fake_does_not_serve(name: str) -> None:
    base = profile("3.9").ranges
    for key, (low, high) in server_profile(name, "3.9").ranges.items():
        assert base[key][0] <= low <= high <= base[key][1], key


def test_the_documentation_names_each_profile() -> None:
    text = DOCS.read_text()
    assert set(re.findall(r'^`"([a-z-]+)"` ', text, re.M)) == set(PROFILES)


def test_wrong_profiles_are_refused() -> None:
    with pytest.raises(ValueError, match=r"profile must be one of apache, event-hubs, .*'kafka'"):
        FakeCluster(profile="kafka")
    with pytest.raises(ValueError, match=r"as_version .* profile='redpanda' has no releases"):
        FakeCluster(profile="redpanda", as_version="2.8")


async def test_settings_can_be_overridden() -> None:
    async with FakeCluster(profile="event-hubs", config={"num.partitions": 4}) as cluster:
        assert cluster.state.config["connections.max.idle.ms"] == "240000"
        assert cluster.state.config["num.partitions"] == "4"


@pytest.mark.parametrize(("kind", "is_taken"), [("gzip", True), ("lz4", False), (None, True)])
async def test_a_compression_type_that_a_server_does_not_take(kind: Any, is_taken: bool) -> None:
    async with FakeCluster(profile="event-hubs") as cluster:
        await cluster.create_topic("t")
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, compression_type=kind
        )
        async with timeout(10), producer:
            if is_taken:
                await producer.send_and_wait("t", b"x" * 1000)
            else:
                with pytest.raises(UnsupportedForMessageFormatError):
                    await producer.send_and_wait("t", b"x" * 1000)
