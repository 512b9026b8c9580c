"""Damage real record sets and read them: `python -m tests.record.fuzz --mutations 10000000`.

Only CorruptRecordError and UnsupportedCodecError may come out, reading must end, and the reader of
records and the reader of columns must agree on what can be read.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from aiokafka.errors import CorruptRecordError, UnsupportedCodecError
from aiokafka.record.batch import RecordReader, iter_batches
from aiokafka.record.columns import ColumnReader
from tests.record.samples import HEADER_SIZE, make_record_sets, mend, read_records

T = TypeVar("T")

ACCEPTED = (CorruptRecordError, UnsupportedCodecError)
POSITIONS = (0, 0, 0, 2, 101)
ABORTED = [(11, 0)]
LIMIT = 1 << 18  # of decompressed bytes
MOST_CALLS = 2000  # a record set of a few hundred bytes has not so many parts

ODD_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
ODD_NUMBERS = (
    -(1 << 63),
    -(1 << 31),
    -2,
    -1,
    0,
    1,
    60,
    127,
    128,
    32767,
    (1 << 31) - 1,
    (1 << 63) - 1,
)
ODD_VARINTS = (
    b"\x01",
    b"\x03",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 12,
    b"\x80",
)
HEADER_FIELDS = (
    (0, 8),
    (8, 4),
    (12, 4),
    (16, 1),
    (17, 4),
    (21, 2),
    (23, 4),
    (27, 8),
    (35, 8),
    (57, 4),
)


class Dice:
    """Random numbers by the cheapest way there is: most of the time goes into them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def choose(self, things: Sequence[T]) -> T:
        return things[int(self.random() * len(things))]


def flip_bit(data: bytearray, dice: Dice) -> None:
    data[dice.below(len(data))] ^= 1 << dice.below(8)


def set_byte(data: bytearray, dice: Dice) -> None:
    data[dice.below(len(data))] = dice.choose(ODD_BYTES)


def set_number(data: bytearray, dice: Dice) -> None:
    size = dice.choose((2, 4, 8))
    put_number(data, dice.below(len(data)), size, dice)


def set_header_field(data: bytearray, dice: Dice) -> None:
    at, size = dice.choose(HEADER_FIELDS)
    put_number(data, at, size, dice)


def put_number(data: bytearray, at: int, size: int, dice: Dice) -> None:
    number = dice.choose(ODD_NUMBERS) + dice.below(5) - 2
    data[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def set_varint(data: bytearray, dice: Dice) -> None:
    at = dice.below(len(data))
    odd = dice.choose(ODD_VARINTS)
    data[at : at + dice.choose((1, len(odd)))] = odd


def truncate(data: bytearray, dice: Dice) -> None:
    del data[dice.below(len(data)) :]


def remove(data: bytearray, dice: Dice) -> None:
    at = dice.below(len(data))
    del data[at : at + 1 + dice.below(8)]


def repeat(data: bytearray, dice: Dice) -> None:
    at = dice.below(len(data))
    data[at:at] = data[at : at + 1 + dice.below(39)]


MUTATIONS: tuple[Callable[[bytearray, Dice], None], ...] = (
    flip_bit,
    flip_bit,
    set_byte,
    set_byte,
    set_number,
    set_header_field,
    set_header_field,
    set_varint,
    set_varint,
    truncate,
    remove,
    repeat,
)


def mutate(sample: bytes, dice: Dice) -> bytearray:
    data = bytearray(sample)
    for _ in range(dice.choose((1, 1, 1, 2, 3))):
        dice.choose(MUTATIONS)(data, dice)
        if not data:
            break
    if len(data) > HEADER_SIZE and dice.random() < 0.3:
        data[:] = mend(data)
    return data


class Fuzzer:
    """Mutates samples and counts the results."""

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.samples = make_record_sets()
        self.outcomes: Counter[str] = Counter()

    def run(self, mutations: int) -> None:
        dice = self.dice
        for number in range(mutations):
            # As bytes: memory of its own, at whose end a sanitizer watches.
            data = bytes(mutate(dice.choose(self.samples), dice))
            options = {
                "position": dice.choose(POSITIONS),
                "check_crcs": dice.random() < 0.3,
                "read_committed": dice.random() < 0.3,
                "aborted": ABORTED,
                "max_decompressed_bytes": LIMIT,
            }
            try:
                self.outcomes[read_everything(data, options)] += 1
                if not number % 8:
                    walk_batches(data)
            except BaseException:
                print(f"input {data.hex()}\noptions {options}", file=sys.stderr)
                raise


def read_everything(data: bytes, options: dict) -> str:
    reader = RecordReader(data, "topic", 0, **options)
    offsets, faults = [], 0
    for _ in range(MOST_CALLS):
        try:
            records = reader.take(7)
        except ACCEPTED:
            faults += 1
            reader.skip()
            continue
        if not records:
            break
        offsets += [record.offset for record in records]
    else:
        raise AssertionError("reading does not end")
    assert reader.exhausted
    assert offsets == sorted(set(offsets))
    columns_agree(data, options, offsets)
    return ("nothing read" if not offsets else "read") + (", refused" if faults else "")


def columns_agree(data: bytes, options: dict, offsets: list[int]) -> None:
    """The columns up to the first fault are a beginning of what the reader found."""
    reader = ColumnReader(data, **options)
    found: list[int] = []
    try:
        while (columns := reader.read(9)).rows:
            found += struct.unpack(f"={columns.rows}q", columns.offsets)
            assert len(columns.keys.offsets) == 4 * (columns.rows + 1)
            assert struct.unpack("=i", columns.values.offsets[-4:])[0] == len(columns.values.data)
    except ACCEPTED:
        assert found == offsets[: len(found)]
    else:
        assert found == offsets


def walk_batches(data: bytes) -> None:
    try:
        for batch in iter_batches(data):
            read_records(batch, LIMIT)
    except ACCEPTED:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    form = (
        "pure Python"
        if str(sys.modules[RecordReader.__module__].__file__).endswith(".py")
        else "compiled"
    )
    print(f"{options.mutations:,} mutations, seed {options.seed}, {form}", flush=True)
    fuzzer = Fuzzer(options.seed)
    start = shown = time.monotonic()
    done = 0
    while done < options.mutations:
        step = min(5_000, options.mutations - done)
        fuzzer.run(step)
        done += step
        now = time.monotonic()
        if now - shown > 30 or done == options.mutations:
            shown = now
            print(f"{done:,} in {now - start:.0f} s, {done / (now - start):,.0f}/s", flush=True)
    for outcome, count in sorted(fuzzer.outcomes.items()):
        print(f"{count:>12,} {outcome}")


if __name__ == "__main__":
    main()
