"""Which version of a request to use with a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.errors import UnsupportedVersionError
from aiokafka.protocol.releases import first_release, first_release_with_kraft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka.protocol.schema import Request

# Kafka 0.9 does not know ApiVersions; it supports only the versions of its own release.
_KAFKA_0_9 = {
    0: (0, 1),  # Produce
    1: (0, 1),  # Fetch
    2: (0, 0),  # ListOffsets
    3: (0, 0),  # Metadata
    8: (0, 2),  # OffsetCommit
    9: (0, 1),  # OffsetFetch
    10: (0, 0),  # FindCoordinator
    11: (0, 0),  # JoinGroup
    12: (0, 0),  # Heartbeat
    13: (0, 0),  # LeaveGroup
    14: (0, 0),  # SyncGroup
    15: (0, 0),  # DescribeGroups
    16: (0, 0),  # ListGroups
}

# For each release: an API key and a version that came with it.
_RELEASES = (
    ((2, 4, 0), 3, 9),  # Metadata
    ((2, 3, 0), 11, 5),  # JoinGroup
    ((2, 0, 0), 12, 2),  # Heartbeat
    ((1, 0, 0), 0, 5),  # Produce
    ((0, 11, 0), 0, 3),  # Produce
    ((0, 10, 1), 11, 1),  # JoinGroup
    ((0, 10, 0), 18, 0),  # ApiVersions
)

_ONLY_WITH_KRAFT = frozenset((55, 64))  # DescribeQuorum, UnregisterBroker


class BrokerVersions:
    """The versions a broker supports, from its ApiVersions response. Immutable.

    Args:
        api_versions: lowest and highest version by API key.
        finalized_features: level in force by feature, such as ``transaction.version`` (KIP-584).
    """

    def __init__(
        self,
        api_versions: Mapping[int, tuple[int, int]],
        finalized_features: Mapping[str, int] | None = None,
    ) -> None:
        self.api_versions = dict(api_versions)
        self.finalized_features = dict(finalized_features or {})
        self._picked: dict[type[Request[Any]], int] = {}

    @classmethod
    def assumed_0_9(cls) -> BrokerVersions:
        """Return what to assume of a broker that closes the connection when asked for versions."""
        return cls(_KAFKA_0_9)

    def pick(self, request: type[Request[Any]], max_version: int | None = None) -> int:
        """Return the newest version that both sides support, at most `max_version`.

        Raises UnsupportedVersionError, naming both ranges, if there is none.
        """
        if max_version is None:
            version = self._picked.get(request)
            if version is not None:
                return version
        version = self._newest_common(request, max_version)
        if version is None:
            raise UnsupportedVersionError(self._describe_gap(request, max_version))
        if max_version is None:
            self._picked[request] = version
        return version

    @property
    def release(self) -> tuple[int, int, int]:
        """The newest release of Kafka, up to 2.4, that the broker is certain to be."""
        for release, api_key, version in _RELEASES:
            if self.api_versions.get(api_key, (0, -1))[1] >= version:
                return release
        return (0, 9, 0)

    def has(self, request: type[Request[Any]]) -> bool:
        """Return whether both sides support a version of this request."""
        return self._newest_common(request, None) is not None

    @property
    def _is_kraft(self) -> bool:
        """Whether the broker is certain to have no ZooKeeper."""
        return not _ONLY_WITH_KRAFT.isdisjoint(self.api_versions)

    def _newest_common(self, request: type[Request[Any]], max_version: int | None) -> int | None:
        theirs = self.api_versions.get(request.API_KEY)
        if theirs is None:
            return None
        first, last = request.VERSIONS
        newest = min(last, theirs[1])
        if max_version is not None:
            newest = min(newest, max_version)
        return newest if newest >= max(first, theirs[0]) else None

    def _describe_gap(self, request: type[Request[Any]], max_version: int | None) -> str:
        name = request.__name__
        theirs = self.api_versions.get(request.API_KEY)
        if theirs is None:
            first_of = first_release_with_kraft if self._is_kraft else first_release
            release = first_of(request.API_KEY)
            since = f"; Kafka has it since {release}" if release else ""
            return f"the broker does not support {name} (API key {request.API_KEY}){since}"
        first, last = request.VERSIONS
        limit = "" if max_version is None else f", limited to {max_version}"
        return (
            f"no common version of {name}: the broker has {theirs[0]} to {theirs[1]}, "
            f"this client {first} to {last}{limit}"
        )

    def __repr__(self) -> str:
        return f"BrokerVersions({self.api_versions}, {self.finalized_features})"
