"""The versions of requests that a broker supports, and the Kafka releases that have each API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka.protocol.schema import Request

__all__ = ["BrokerVersions", "first_release", "first_release_with_kraft"]

# Kafka 0.9 does not support ApiVersions; these are the versions of its release.
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

# For each release, an API key and a version of the API that the release introduced.
_RELEASES = (
    ((2, 4, 0), 3, 9),  # Metadata
    ((2, 3, 0), 11, 5),  # JoinGroup
    ((2, 0, 0), 12, 2),  # Heartbeat
    ((1, 0, 0), 0, 5),  # Produce
    ((0, 11, 0), 0, 3),  # Produce
    ((0, 10, 1), 11, 1),  # JoinGroup
    ((0, 10, 0), 18, 0),  # ApiVersions
)

# A broker with one of these APIs runs in KRaft mode: DescribeQuorum, UnregisterBroker.
_ONLY_WITH_KRAFT = frozenset((55, 64))


class BrokerVersions:
    """The API versions and features of a broker, from its ApiVersions response. Immutable.

    Args:
        api_versions: A dict from API key to the (lowest, highest) version.
        finalized_features: A dict from feature, such as ``transaction.version``, to its level
            (KIP-584).
    """

    def __init__(
        self,
        api_versions: Mapping[int, tuple[int, int]],
        finalized_features: Mapping[str, int] | None = None,
    ) -> None:
        self.api_versions = dict(api_versions)
        self.finalized_features = dict(finalized_features or {})

    @classmethod
    def assumed_0_9(cls) -> BrokerVersions:
        """Return the versions of Kafka 0.9, for a broker that does not respond to ApiVersions."""
        return cls(_KAFKA_0_9)

    def pick(self, request: type[Request[Any]], max_version: int | None = None) -> int:
        """Return the newest version of `request`, at most `max_version`, that the client and the
        broker support.

        Raises UnsupportedVersionError, with both ranges, if there is no common version.
        """
        version = self._newest_common(request, max_version)
        if version is None:
            raise UnsupportedVersionError(self._describe_gap(request, max_version))
        return version

    @property
    def release(self) -> tuple[int, int, int]:
        """The Kafka release of the broker, as far as its API versions show it: 2.4 for 2.4 and all
        later releases."""
        for release, api_key, version in _RELEASES:
            if self.api_versions.get(api_key, (0, -1))[1] >= version:
                return release
        return (0, 9, 0)

    def has(self, request: type[Request[Any]]) -> bool:
        """Return whether the client and the broker have a common version of `request`."""
        return self._newest_common(request, None) is not None

    @property
    def _is_kraft(self) -> bool:
        """Whether the broker has an API that only exists in KRaft mode."""
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


# -- The first release that has each API

_FIRST = """
0.8    0 1 2 3
0.8.1  8 9
0.8.2  10
0.9    11 12 13 14 15 16
0.10.0 17 18
0.10.1 19 20
0.11   21 22 23 24 25 26 27 28 29 30 31 32 33
1.0    34 35 36 37
1.1    38 39 40 41 42
2.2    43
2.3    44
2.4    45 46 47
2.6    48 49
2.7    50 51 57
2.8    60 61 64
3.0    65 66
3.3    55
3.7    68 69 71 72 74 75
3.9    80 81
4.1    76 77 78 79 83 84 85 86 87 88 89 90 91 92
4.4    93 94
"""

# The API keys that exist only in KRaft mode.
_OF_KRAFT = frozenset((55, 64, 71, 72, 74, 75, 80, 81))

# The first releases whose KRaft brokers have these APIs, for APIs that earlier releases had only in
# ZooKeeper mode. KRaft mode exists since 2.8.
_FIRST_WITH_KRAFT = """
3.0    22 24 25 26 28 29 30 31 33 37 43 45 46 48 57
3.5    50 51
3.6    38 39 40 41
"""


def _by_key(table: str) -> dict[int, str]:
    lines = (line.split() for line in table.strip().splitlines())
    return {int(key): release for release, *keys in lines for key in keys}


_FIRST_RELEASES = _by_key(_FIRST)
_FIRST_RELEASES_WITH_KRAFT = _by_key(_FIRST_WITH_KRAFT)


def first_release(api_key: int) -> str | None:
    """Return the first release whose brokers offer the API to clients, such as "2.3" or "3.3 with
    KRaft"; None if unknown.

    A release that has only an unstable version of the API counts if users could enable it.
    """
    release = _FIRST_RELEASES.get(api_key)
    return f"{release} with KRaft" if api_key in _OF_KRAFT else release


def first_release_with_kraft(api_key: int) -> str | None:
    """Return the first release whose KRaft brokers offer the API to clients; None if unknown."""
    release = _FIRST_RELEASES_WITH_KRAFT.get(api_key)
    return first_release(api_key) if release is None else f"{release} with KRaft"
