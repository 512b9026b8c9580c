"""First releases of APIs, beside what brokers of each age advertise."""

from __future__ import annotations

import pytest

from aiokafka.errors import UnsupportedVersionError
from aiokafka.protocol.messages.cluster import DescribeClusterRequest, UnregisterBrokerRequest
from aiokafka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from aiokafka.protocol.releases import first_release
from aiokafka.protocol.versions import BrokerVersions
from aiokafka.testing.versions import RELEASES, profile


def numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(" ")[0].split("."))


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_have_an_api_from_its_first_release_on(release: str) -> None:
    played = profile(release)
    every = {key for name in RELEASES for key in profile(name).ranges}
    for key in every:
        first = first_release(key)
        assert first is not None, key
        if key in played.ranges:
            assert numbers(release) >= numbers(first), key
        elif "KRaft" not in first or played.release >= (3, 0):
            assert numbers(release) < numbers(first), key


@pytest.mark.parametrize(
    ("request_type", "expected"),
    [
        (IncrementalAlterConfigsRequest, "Kafka has it since 2.3"),
        (UnregisterBrokerRequest, "Kafka has it since 2.8 with KRaft"),
        (DescribeClusterRequest, "Kafka has it since 2.8"),
    ],
)
def test_what_a_broker_lacks_is_named_with_its_release(request_type: type, expected: str) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        BrokerVersions({}).pick(request_type)
    assert expected in str(caught.value)
    assert request_type.__name__ in str(caught.value)


def test_unknown_apis() -> None:
    assert first_release(9999) is None
