"""Record batches in memory, against aiokafka 0.14: `python -m benchmarks.bench_records`.

Both decode the same bytes and encode the same records, each in a process of its own, in turn,
over about 1 MiB; ratios are taken within a round. Decoding includes the CRC and ends at
`ConsumerRecord`s, 500 a call, or columns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from aiokafka.record.batch import RecordBatchBuilder
from benchmarks.environments import CLIENTS, python_of
from benchmarks.rows import AIOKAFKA

SCRIPT = CLIENTS / "records_in_memory.py"
KEY = b"key-of-16-bytes!"
BATCH_BYTES = 64 * 1024
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADER = [("trace", "0123456789abcdef")]
CASES = [
    # name, value size, headers, codec, records
    ("100 B", 100, [], "none", 8_000),
    ("100 B, 1 header", 100, HEADER, "none", 8_000),
    ("1 KiB", 1024, [], "none", 1_000),
    ("10 KiB", 10_240, [], "none", 100),
    ("100 B, lz4", 100, [], "lz4", 8_000),
    ("100 B, zstd", 100, [], "zstd", 8_000),
    ("1 KiB, lz4", 1024, [], "lz4", 1_000),
]


def write_record_set(path: Path, size: int, headers: list, codec: int, records: int) -> None:
    """Batches of about 64 KiB with consecutive offsets, as a broker would send them."""
    value = b"v" * size
    pairs = [(name, content.encode()) for name, content in headers]
    with path.open("wb") as file:
        offset = done = 0
        while done < records:
            builder = RecordBatchBuilder(compression=codec, size_limit=BATCH_BYTES)
            while (
                done < records and builder.append(1_700_000_000_000 + done, KEY, value, pairs) >= 0
            ):
                done += 1
            batch = builder.build()
            batch[:8] = offset.to_bytes(8, "big")
            file.write(batch)
            offset = done


def run(python: str, cases: list[dict[str, Any]], repeat: int) -> dict[str, dict[str, float]]:
    arguments = json.dumps({"cases": cases, "repeat": repeat})
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if python == sys.executable:
        environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    shown = subprocess.run(
        [python, str(SCRIPT), arguments], env=environment, capture_output=True, text=True
    )
    if shown.returncode:
        sys.exit(shown.stderr)
    figures: dict[str, dict[str, float]] = json.loads(shown.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--repeat", type=int, default=40, help="runs a round, of which the best counts"
    )
    parser.add_argument("--peer-python", help="an interpreter that has aiokafka 0.14")
    options = parser.parse_args()
    peer = options.peer_python or python_of(AIOKAFKA)
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for number, (name, size, headers, codec, records) in enumerate(CASES):
            path = Path(folder) / str(number)
            write_record_set(path, size, headers, CODECS[codec], records)
            cases.append(
                {
                    "name": name,
                    "path": str(path),
                    "value_size": size,
                    "headers": headers,
                    "codec": CODECS[codec],
                    "records": records,
                }
            )
        rounds = [
            (run(sys.executable, cases, options.repeat), run(peer, cases, options.repeat))
            for _ in range(options.rounds)
        ]
    show(rounds)


def show(rounds: list[tuple[dict, dict]]) -> None:
    print("CPU ns per record, median of rounds; in brackets aiokafka 0.14 and the ratio\n")
    print("| Records | decode to ConsumerRecord | to columns | encode |")
    print("|---|---|---|---|")
    for name, *_ in CASES:
        cells = []
        for ours, theirs in (("decode", "decode"), ("columns", "decode"), ("encode", "encode")):
            own = median(mine[name][ours] for mine, _ in rounds)
            other = median(peer[name][theirs] for _, peer in rounds)
            ratio = median(peer[name][theirs] / mine[name][ours] for mine, peer in rounds)
            cells.append(f"{own:.0f} ({other:.0f}, {ratio:.1f}x)")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
