"""Which release of Kafka a broker is taken for."""

from __future__ import annotations

import pytest

from aiokafka.protocol.versions import BrokerVersions

LEAST = [
    ((2, 4, 0), {3: (0, 9)}),
    ((2, 3, 0), {3: (0, 8), 11: (0, 5)}),
    ((2, 0, 0), {3: (0, 6), 11: (0, 3), 12: (0, 2)}),
    ((1, 0, 0), {3: (0, 5), 11: (0, 2), 12: (0, 1), 0: (0, 5)}),
    ((0, 11, 0), {3: (0, 4), 11: (0, 2), 12: (0, 1), 0: (0, 3)}),
    ((0, 10, 1), {3: (0, 2), 11: (0, 1), 12: (0, 0), 0: (0, 2), 18: (0, 0)}),
    ((0, 10, 0), {3: (0, 1), 11: (0, 0), 12: (0, 0), 0: (0, 2), 18: (0, 0)}),
    ((0, 9, 0), {3: (0, 0), 11: (0, 0), 12: (0, 0), 0: (0, 1)}),
]


@pytest.mark.parametrize(("release", "api_versions"), LEAST)
def test_a_release_is_known_by_what_came_with_it(
    release: tuple[int, int, int], api_versions: dict[int, tuple[int, int]]
) -> None:
    assert BrokerVersions(api_versions).release == release
