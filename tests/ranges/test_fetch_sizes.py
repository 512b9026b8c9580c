"""How many bytes a fetch of a range asks for."""

from __future__ import annotations

from aiokafka.ranges import OffsetSizes
from aiokafka.ranges.state import FetchSize

LIMIT = 8 * 1024 * 1024


def test_the_first_fetch_is_small() -> None:
    assert FetchSize("t", OffsetSizes()).ask(10**6, LIMIT) == 64 * 1024
    assert FetchSize("t", OffsetSizes()).ask(10, LIMIT) == 20 * 1024


def test_later_ones_take_what_is_left() -> None:
    size = FetchSize("t", OffsetSizes())
    size.ask(10_000, LIMIT)
    size.served(60_000, 600, 10_000)
    assert 900_000 < size.ask(9_400, LIMIT) < 1_100_000
    assert size.ask(10**6, LIMIT) == LIMIT


def test_other_readers_know_what_one_has_learned() -> None:
    sizes = OffsetSizes()
    FetchSize("t", sizes).served(60_000, 600, 10_000)
    assert 100_000 < FetchSize("t", sizes).ask(1000, LIMIT) < 130_000
    assert FetchSize("u", sizes).ask(1000, LIMIT) == 64 * 1024


def test_ranges_without_records_teach_nothing() -> None:
    """Their records are gone by compaction, and the next range may have some."""
    sizes = OffsetSizes()
    size = FetchSize("t", sizes)
    size.served(0, 100, 500)
    assert size.ask(10**6, LIMIT) == FetchSize("t", sizes).ask(10**6, LIMIT) == 64 * 1024


def test_it_grows_until_a_batch_fits() -> None:
    size = FetchSize("t", OffsetSizes())
    asked = [size.ask(10, LIMIT)]
    while size.double(LIMIT):
        asked.append(size.ask(10, LIMIT))
    assert asked[1] == 2 * asked[0]
    assert asked[-1] == LIMIT
    assert len(asked) < 12


def test_it_forgets_the_topics_that_were_seen_longest_ago() -> None:
    sizes = OffsetSizes()
    for number in range(1100):
        FetchSize(str(number), sizes).served(10**6, 100, 10**6)
    assert sizes.of("0") is None
    assert sizes.of("1099") is not None
