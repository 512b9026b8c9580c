"""Keep offsets and results together in a file, so that each record counts exactly once.

Run it again, and it goes on where it stopped, whatever happened in between.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError


class State:
    """Counts of keys and the next offset, saved in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = json.loads(path.read_text()) if path.exists() else {}
        self.counts: Counter[str] = Counter(saved.get("counts", {}))
        self.offset: int = saved.get("offset", 0)

    def save(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"offset": self.offset, "counts": self.counts}))
        os.replace(new, self.path)


async def count(bootstrap: str, topic: str, state: State, idle_ms: int) -> None:
    tp = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, state.offset)
        while batch := await consumer.getmany(timeout_ms=idle_ms):
            for record in batch[tp]:
                state.counts[(record.key or b"").decode()] += 1
                state.offset = record.offset + 1
            state.save()
    print(f"up to offset {state.offset}: {dict(sorted(state.counts.items()))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--state", type=Path, default=Path("counts.json"), help="where it is kept")
    parser.add_argument("--idle-ms", type=int, default=2000, help="stop when nothing comes so long")
    given = parser.parse_args()
    try:
        asyncio.run(count(given.bootstrap, given.topic, State(given.state), given.idle_ms))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
