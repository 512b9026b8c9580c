"""A member of a share group in a process of its own, which tests kill. It prints what it does, each
line with the time of the machine's monotonic clock:

- ``H partition offset delivery_count time``: a handler begins;
- ``R partition offset time``: it fails, so that the record is released;
- ``S partition offset time``: an acknowledgement has succeeded; ``F`` ...: it has failed.

A handler fails for every record whose number ends with 13 at its first delivery. SIGTERM stops the
member.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

from aiokafka import AIOKafkaShareConsumer, ShareRecord


def say(*words: object) -> None:
    # One write for each line: a killed process leaves no half of it.
    os.write(1, (" ".join(map(str, words)) + f" {time.monotonic_ns()}\n").encode())


async def main(
    servers: str, topic: str, group: str, mode: Any, concurrency: str, work_ms: str
) -> None:
    async def handle(record: ShareRecord[Any, Any]) -> None:
        place = record.partition, record.offset
        say("H", *place, record.delivery_count)
        await asyncio.sleep(int(work_ms) / 1000)
        if record.value.endswith(b"13") and record.delivery_count == 1:
            say("R", *place)
            raise ValueError("the first attempt fails")

    def report(tp: Any, offsets: list[int], error: Exception | None) -> None:
        for offset in offsets:
            say("S" if error is None else "F", tp.partition, offset)

    consumer = AIOKafkaShareConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        share_acquire_mode=mode,
        request_timeout_ms=30_000,
    )
    consumer.set_acknowledgement_commit_callback(report)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with consumer:
        processing = asyncio.ensure_future(consumer.process(handle, concurrency=int(concurrency)))
        waiting = asyncio.ensure_future(stopped.wait())
        await asyncio.wait([processing, waiting], return_when=asyncio.FIRST_COMPLETED)
        await consumer.stop()
        await processing


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
