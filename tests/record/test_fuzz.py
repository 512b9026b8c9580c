"""A short run of the fuzzer; `make fuzz` runs a long one."""

from __future__ import annotations

import os

import pytest

from tests.record.fuzz import Fuzzer

MUTATIONS = 200_000 if os.environ.get("AIOKAFKA_LONG") else 5_000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5 if os.environ.get("AIOKAFKA_LONG") else 1))
def test_damage_is_refused_and_reading_ends(seed: int) -> None:
    fuzzer = Fuzzer(seed)
    fuzzer.run(MUTATIONS)
    # Otherwise the mutations do not reach what they are for.
    assert set(fuzzer.outcomes) == {
        "nothing read",
        "nothing read, refused",
        "read",
        "read, refused",
    }
