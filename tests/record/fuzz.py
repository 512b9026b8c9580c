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
from collections.abc import Callable

from aiokafka.errors import CorruptRecordError, UnsupportedCodecError
from aiokafka.record.batch import RecordReader, iter_batches
from aiokafka.record.columns import ColumnReader
from tests.record.samples import HEADER_SIZE, make_record_sets, mend

ACCEPTED = (CorruptRecordError, UnsupportedCodecError)
LIMIT = 1 << 18  # of decompressed bytes
MOST_CALLS = 2000  # a record set of a few hundred bytes has not so many parts

ODD_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
ODD_NUMBERS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 60, 127, 128, 32767, (1 << 31) - 1, (1 << 63) - 1)
ODD_VARINTS = (b"\x01", b"\x03", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\x80")
HEADER_FIELDS = ((0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (23, 4), (27, 8), (35, 8), (57, 4))


def flip_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice(ODD_BYTES)


def set_number(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((2, 4, 8))
    put_number(data, rng.randrange(len(data)), size, rng)


def set_header_field(data: bytearray, rng: random.Random) -> None:
    at, size = rng.choice(HEADER_FIELDS)
    put_number(data, at, size, rng)


def put_number(data: bytearray, at: int, size: int, rng: random.Random) -> None:
    number = rng.choice(ODD_NUMBERS) + rng.randrange(-2, 3)
    data[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def set_varint(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    odd = rng.choice(ODD_VARINTS)
    data[at : at + rng.choice((1, len(odd)))] = odd


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def remove(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randrange(1, 9)]


def repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.randrange(1, 40)]


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
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


def mutate(sample: bytes, rng: random.Random) -> bytearray:
    data = bytearray(sample)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(MUTATIONS)(data, rng)
        if not data:
            break
    if len(data) > HEADER_SIZE and rng.random() < 0.3:
        data[:] = mend(data)
    return data


def exact(data: bytearray) -> bytes:
    """A copy in memory of its own, at whose end a sanitizer watches."""
    return bytes(data)


class Fuzzer:
    """Mutates samples and counts what comes of it."""

    def __init__(self, seed: int, samples: list[bytes] | None = None) -> None:
        self.rng = random.Random(seed)
        self.samples = samples or make_record_sets()
        self.outcomes: Counter[str] = Counter()

    def run(self, mutations: int) -> None:
        rng = self.rng
        for _ in range(mutations):
            data = exact(mutate(rng.choice(self.samples), rng))
            options = {
                "position": rng.choice((0, 0, 0, 2, 101)),
                "check_crcs": rng.random() < 0.3,
                "read_committed": rng.random() < 0.3,
                "aborted": [(11, 0)],
                "max_decompressed_bytes": LIMIT,
            }
            try:
                self.outcomes[read_everything(data, options)] += 1
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
    walk_batches(data)
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
            batch.records(LIMIT)
    except ACCEPTED:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    form = "pure Python" if str(sys.modules[RecordReader.__module__].__file__).endswith(".py") else "compiled"
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
