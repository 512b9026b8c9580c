"""Choosing the version of a request."""

from __future__ import annotations

import pytest

from aiokafka.errors import UnsupportedVersionError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.share_groups import ShareFetchRequest
from aiokafka.protocol.versions import BrokerVersions


def test_the_newest_common_version_is_picked() -> None:
    assert BrokerVersions({3: (0, 9)}).pick(MetadataRequest) == 9
    assert BrokerVersions({3: (0, 99)}).pick(MetadataRequest) == 13
    assert BrokerVersions({3: (13, 99)}).pick(MetadataRequest) == 13


def test_a_limit_is_kept() -> None:
    versions = BrokerVersions({1: (4, 18)})
    assert versions.pick(FetchRequest, max_version=12) == 12
    assert versions.pick(FetchRequest) == 18
    assert versions.pick(FetchRequest, max_version=12) == 12
    with pytest.raises(UnsupportedVersionError, match="limited to 3"):
        versions.pick(FetchRequest, max_version=3)


def test_no_common_version_names_both_ranges() -> None:
    versions = BrokerVersions({3: (20, 21), 78: (0, 0)})
    with pytest.raises(
        UnsupportedVersionError,
        match="MetadataRequest: the broker has 20 to 21, this client 0 to 13",
    ):
        versions.pick(MetadataRequest)
    assert not versions.has(MetadataRequest)
    assert not versions.has(ShareFetchRequest)  # the preview in 3.9


def test_an_api_the_broker_lacks_is_named() -> None:
    versions = BrokerVersions({})
    with pytest.raises(UnsupportedVersionError, match=r"does not support FetchRequest \(API key 1"):
        versions.pick(FetchRequest)
    assert not versions.has(FetchRequest)


def test_kafka_0_9() -> None:
    versions = BrokerVersions.assumed_0_9()
    assert versions.pick(ProduceRequest) == 1
    assert versions.pick(FetchRequest) == 1
    assert versions.pick(MetadataRequest) == 0
    assert not versions.has(ApiVersionsRequest)


def test_features_are_kept() -> None:
    versions = BrokerVersions({}, {"transaction.version": 2})
    assert versions.finalized_features == {"transaction.version": 2}
    assert BrokerVersions({}).finalized_features == {}
