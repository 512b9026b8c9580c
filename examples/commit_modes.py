"""The ways to commit, to try out: automatically, by hand, or not at all; and how to start over.

python commit_modes.py                          commit in the background
python commit_modes.py --disable-auto-commit    commit by hand, after each batch
python commit_modes.py --no-commit              never commit: each run reads the same
python commit_modes.py --reset                  read nothing, but let the next run start over
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Set

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError


class Reporter(ConsumerRebalanceListener):
    """Tells what the group does."""

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        print("Revoked", sorted(tp.partition for tp in revoked))

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        print("Assigned", sorted(tp.partition for tp in assigned))


async def reset(consumer: AIOKafkaConsumer) -> None:
    """Commit the beginning of every partition that this member has."""
    await consumer.seek_to_beginning()
    positions = {tp: await consumer.position(tp) for tp in consumer.assignment()}
    await consumer.commit(positions)
    for tp, offset in sorted(positions.items()):
        print(f"{tp.topic}-{tp.partition}: the next run begins at {offset}")


async def consume(consumer: AIOKafkaConsumer, commits_by_hand: bool, idle_ms: int) -> None:
    stop = asyncio.Event()
    # A signal only asks to stop; the loop below ends when it has finished its batch.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    while not stop.is_set():
        batches = await consumer.getmany(timeout_ms=idle_ms)
        if not batches:
            break
        for records in batches.values():
            for record in records:
                print(f"Got {record.partition}:{record.offset} {record.value!r}")
        if commits_by_hand:
            await consumer.commit()


async def run(given: argparse.Namespace) -> None:
    is_automatic = not (given.disable_auto_commit or given.no_commit or given.reset)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        auto_offset_reset="earliest",
        enable_auto_commit=is_automatic,
    )
    consumer.subscribe([given.topic], listener=Reporter())
    async with consumer:
        if given.reset:
            await reset(consumer)
        else:
            await consume(consumer, given.disable_auto_commit, given.idle_ms)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="test")
    parser.add_argument("--group", default="test-group")
    parser.add_argument("--idle-ms", type=int, default=5000, help="stop when nothing comes so long")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--disable-auto-commit", action="store_true", help="commit by hand")
    modes.add_argument("--no-commit", action="store_true", help="never commit")
    modes.add_argument("--reset", action="store_true", help="only go back to the beginning")
    try:
        asyncio.run(run(parser.parse_args()))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
