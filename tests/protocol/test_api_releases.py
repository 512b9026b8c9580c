"""First releases of APIs, beside what brokers of each age advertise."""

from __future__ import annotations

import pytest

from aiokafka.errors import UnsupportedVersionError
from aiokafka.protocol.messages.acls import CreateAclsRequest
from aiokafka.protocol.messages.cluster import DescribeClusterRequest, UnregisterBrokerRequest
from aiokafka.protocol.messages.configs import IncrementalAlterConfigsRequest
from aiokafka.protocol.messages.delegation_tokens import DescribeDelegationTokenRequest
from aiokafka.protocol.messages.scram import DescribeUserScramCredentialsRequest
from aiokafka.protocol.messages.topics import DescribeTopicPartitionsRequest
from aiokafka.protocol.versions import BrokerVersions, first_release, first_release_with_kraft
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


KRAFT = {18: (0, 3), 64: (0, 0)}
ZOOKEEPER = {18: (0, 3), 60: (0, 0)}


@pytest.mark.parametrize(
    ("request_type", "broker", "expected"),
    [
        (DescribeUserScramCredentialsRequest, KRAFT, "since 3.5 with KRaft"),
        (DescribeUserScramCredentialsRequest, ZOOKEEPER, "since 2.7"),
        (DescribeDelegationTokenRequest, KRAFT, "since 3.6 with KRaft"),
        (DescribeDelegationTokenRequest, ZOOKEEPER, "since 1.1"),
        (CreateAclsRequest, KRAFT, "since 3.0 with KRaft"),
        (DescribeTopicPartitionsRequest, KRAFT, "since 3.7 with KRaft"),
        (DescribeTopicPartitionsRequest, ZOOKEEPER, "since 3.7 with KRaft"),
        (IncrementalAlterConfigsRequest, KRAFT, "since 2.3"),
    ],
)
def test_the_release_is_one_of_brokers_of_its_kind(
    request_type: type, broker: dict[int, tuple[int, int]], expected: str
) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        BrokerVersions(broker).pick(request_type)
    assert f"Kafka has it {expected}. " in str(caught.value)


def test_unknown_apis() -> None:
    assert first_release(9999) is None
    assert first_release_with_kraft(9999) is None
