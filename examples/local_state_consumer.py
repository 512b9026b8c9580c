"""Count keys, with the counts and the offsets of each partition in a file of its own.

Start several: the group assigns the partitions, and each file moves with its partition. A file
whose offset Kafka has deleted meanwhile is useless, so its partition is counted from the start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AsyncConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError


class LocalState:
    """Counts of keys and the last offset by partition; saved in one step, so that they agree."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[TopicPartition, Counter[str]] = {}
        self._offsets: dict[TopicPartition, int] = {}

    def _path(self, tp: TopicPartition) -> Path:
        return self._folder / f"my-partition-state-{tp.topic}-{tp.partition}.json"

    def save(self) -> None:
        for tp, counts in self._counts.items():
            path = self._path(tp)
            new = path.with_suffix(".new")
            new.write_text(json.dumps({"last_offset": self._offsets[tp], "counts": counts}))
            os.replace(new, path)

    def load(self, partitions: Iterable[TopicPartition]) -> None:
        self._counts.clear()
        self._offsets.clear()
        for tp in partitions:
            path = self._path(tp)
            saved = json.loads(path.read_text()) if path.exists() else {}
            self._counts[tp] = Counter(saved.get("counts", {}))
            self._offsets[tp] = saved.get("last_offset", -1)

    def discard(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._counts[tp] = Counter()
            self._offsets[tp] = -1

    def add(self, tp: TopicPartition, counts: Counter[str], last_offset: int) -> None:
        self._counts[tp] += counts
        self._offsets[tp] = last_offset

    def last_offset(self, tp: TopicPartition) -> int:
        return self._offsets[tp]


class StateListener(AsyncConsumerRebalanceListener):
    """Hands the files over to the next owners of the partitions."""

    def __init__(self, consumer: AIOKafkaConsumer, state: LocalState) -> None:
        self._consumer = consumer
        self._state = state

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        print("Revoked", sorted(tp.partition for tp in revoked), flush=True)
        self._state.save()

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        print("Assigned", sorted(tp.partition for tp in assigned), flush=True)
        self._state.load(assigned)
        for tp in assigned:
            last_offset = self._state.last_offset(tp)
            if last_offset < 0:
                await self._consumer.seek_to_beginning(tp)
            else:
                self._consumer.seek(tp, last_offset + 1)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        # Others may have counted on meanwhile: what is in memory must not overwrite their files.
        print("Lost", sorted(tp.partition for tp in lost), flush=True)
        self._state.load([])


async def count_keys(consumer: AIOKafkaConsumer, state: LocalState, idle_ms: int) -> None:
    while True:
        try:
            batches = await consumer.getmany(timeout_ms=idle_ms)
        except OffsetOutOfRangeError as error:
            partitions = error.args[0].keys()
            print("Outdated", sorted(tp.partition for tp in partitions))
            state.discard(partitions)
            await consumer.seek_to_beginning(*partitions)
            continue
        if not batches:
            return
        for tp, records in batches.items():
            counts = Counter(record.key for record in records)
            print(f"Process {tp.topic}-{tp.partition} {dict(sorted(counts.items()))}", flush=True)
            state.add(tp, counts, records[-1].offset)


async def save_every_second(state: LocalState) -> None:
    while True:
        await asyncio.sleep(1)
        state.save()


async def consume(bootstrap: str, topic: str, group: str, state: LocalState, idle_ms: int) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",
        key_deserializer=lambda key: key.decode() if key else "",
    )
    async with consumer:
        consumer.subscribe([topic], listener=StateListener(consumer, state))
        saving = asyncio.create_task(save_every_second(state))
        try:
            await count_keys(consumer, state, idle_ms)
        finally:
            saving.cancel()
            state.save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--group", default="my_group")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"), help="where the files are")
    parser.add_argument("--idle-ms", type=int, default=5000, help="stop when nothing comes so long")
    given = parser.parse_args()
    state = LocalState(given.folder)
    try:
        asyncio.run(consume(given.bootstrap, given.topic, given.group, state, given.idle_ms))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
