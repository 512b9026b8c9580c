"""The table and the package give the same checksum, that of RFC 3720."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.record.crc32c import crc32c, crc32c_by_table


@pytest.mark.parametrize("checksum", [crc32c, crc32c_by_table])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_known_checksums(checksum: object, data: bytes, expected: int) -> None:
    assert callable(checksum)
    assert checksum(data) == expected
    assert checksum(memoryview(data)) == expected


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_table_equals_package(data: bytes, cut: int) -> None:
    assert crc32c_by_table(data) == crc32c(data)
    assert crc32c_by_table(data[cut:], crc32c_by_table(data[:cut])) == crc32c(data)
