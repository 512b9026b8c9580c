"""Which release of Kafka was the first to have an API."""

from __future__ import annotations

__all__ = ["first_release", "first_release_with_kraft"]

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
"""

_OF_KRAFT = frozenset((55, 64, 71, 72, 74, 75, 80, 81))

# Brokers with ZooKeeper had these before those with KRaft, which began with 2.8.
_FIRST_WITH_KRAFT = """
3.0    22 24 25 26 28 29 30 31 33 37 43 45 46 48 57
3.5    50 51
3.6    38 39 40 41
"""


def _by_key(table: str) -> dict[int, str]:
    lines = (line.split() for line in table.strip().splitlines())
    return {int(key): release for release, *keys in lines for key in keys}


_RELEASES = _by_key(_FIRST)
_RELEASES_WITH_KRAFT = _by_key(_FIRST_WITH_KRAFT)


def first_release(api_key: int) -> str | None:
    """Return the first release that serves an API to clients, such as "2.3"; None if unknown.

    Early access does not count, unless it could be turned on.
    """
    release = _RELEASES.get(api_key)
    return f"{release} with KRaft" if api_key in _OF_KRAFT else release


def first_release_with_kraft(api_key: int) -> str | None:
    """Return the first release whose brokers serve an API to clients without ZooKeeper; None if
    unknown.
    """
    release = _RELEASES_WITH_KRAFT.get(api_key)
    return first_release(api_key) if release is None else f"{release} with KRaft"
