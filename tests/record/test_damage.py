"""Where reading goes on after a batch that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.errors import CorruptRecordError
from aiokafka.record.batch import RecordReader
from tests.record.samples import (
    ABORT,
    COMMIT,
    make_marker,
    transaction,
    with_body,
)


def end_of_bad(data: bytes, position: int = 0, **options: Any) -> int:
    """What is said of the first batch that cannot be read, after the records before it."""
    reader = RecordReader(data, "topic", 3, position=position, **options)
    with pytest.raises(CorruptRecordError):
        while reader.take(9):
            pass
    end = reader.batch_end
    reader.skip()
    assert reader.position == max(end, position + 1)
    return end


def damage(batch: bytes, at: int = -1) -> bytes:
    data = bytearray(batch)
    data[at] ^= 1
    return bytes(data)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
@pytest.mark.parametrize("options", [{}, {"read_committed": True, "aborted": [(1, 0)]}])
def test_a_damaged_marker_has_an_end(kind: int, options: dict[str, Any]) -> None:
    """It is not returned, but has to be read, and an application goes past it by its end."""
    marker = damage(make_marker(kind, base_offset=2, producer_id=1))
    for behind in (b"", transaction(2, 3), b"not the header of a batch"):
        assert end_of_bad(transaction(1, 0) + marker + behind, **options) == 3


def test_a_marker_without_a_key_has_an_end() -> None:
    marker = with_body(make_marker(ABORT, base_offset=2, producer_id=1), bytes(9))
    data = transaction(1, 0) + marker + transaction(1, 3)
    assert end_of_bad(data, read_committed=True, aborted=[(1, 0)]) == 3
