"""Any order of finishing: committable is the lowest unfinished offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.parallel.work import OffsetTracker


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Takes of rising offsets with gaps, and finishes in any order, mixed."""
    steps: list[tuple[str, int]] = []
    taken: list[int] = []
    offset = draw(st.integers(0, 2**62))
    for _ in range(draw(st.integers(0, 40))):
        if taken and draw(st.booleans()):
            steps.append(("finish", taken.pop(draw(st.integers(0, len(taken) - 1)))))
        else:
            steps.append(("take", offset))
            taken.append(offset)
            offset += draw(st.integers(1, 5))
    return steps


@given(histories())
def test_committable_is_the_lowest_unfinished(steps: list[tuple[str, int]]) -> None:
    tracker = OffsetTracker()
    taken: list[int] = []
    finished: set[int] = set()
    for name, offset in steps:
        before = tracker.committable
        if name == "take":
            tracker.take(offset)
            taken.append(offset)
        else:
            tracker.finish(offset)
            finished.add(offset)
        unfinished = [each for each in taken if each not in finished]
        lowest = unfinished[0] if unfinished else taken[-1] + 1
        assert tracker.committable == lowest
        assert tracker.committable >= before
        assert tracker.position == taken[-1] + 1
        assert tracker.span == len([each for each in taken if each >= lowest])


def test_a_new_one_has_nothing() -> None:
    tracker = OffsetTracker()
    assert (tracker.committable, tracker.position, tracker.span) == (-1, -1, 0)


@pytest.mark.parametrize("offset", [3, 5, 8])
def test_only_what_is_open_can_finish(offset: int) -> None:
    tracker = OffsetTracker()
    for each in (4, 5, 6, 7):
        tracker.take(each)
    tracker.finish(5)
    with pytest.raises(ValueError, match="not open"):
        tracker.finish(offset)


def test_offsets_go_up() -> None:
    tracker = OffsetTracker()
    tracker.take(4)
    with pytest.raises(ValueError, match="offset 4 comes after 4"):
        tracker.take(4)
