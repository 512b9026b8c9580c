"""How long the event loop stands still while records are read and written.

A pause is one turn of the loop without its wait for sockets: what else is ready waits so long.
The time of the clock has in it what other processes took; the CPU time of the thread has not.
"""

import asyncio
import gc
import selectors
import time

from aiokafka_client import start_consumer, start_producer
from common import PER_CALL, WORKERS, main

VALUES = []


class Selector(selectors.DefaultSelector):
    """Knows when the loop began to wait, and when it went on."""

    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self):
        self.pause = self.cpu = 0.0
        self.begin, self.used = time.perf_counter(), time.thread_time()

    def select(self, timeout=None):
        self.pause = max(self.pause, time.perf_counter() - self.begin)
        self.cpu = max(self.cpu, time.thread_time() - self.used)
        found = super().select(timeout)
        self.begin, self.used = time.perf_counter(), time.thread_time()
        return found


async def by_hundreds(work):
    consumer, done = await start_consumer(work), 0
    while done < work.records:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=PER_CALL)).values():
            done += len(records)
    await consumer.stop()


async def one_by_one(work):
    consumer, done = await start_consumer(work), 0
    async for _record in consumer:
        done += 1
        if done == work.records:
            break
    await consumer.stop()


async def send(work):
    producer = await start_producer(work)
    for number in range(0, work.records, PER_CALL):
        values = VALUES[number % 1000 : number % 1000 + PER_CALL]
        await asyncio.gather(*[await producer.send(work.target, value) for value in values])
    await producer.stop()


async def send_from_tasks(work):
    producer = await start_producer(work)

    async def worker():
        for number in range(work.records // 10 // WORKERS):
            await producer.send_and_wait(work.target, VALUES[number % 1000])

    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    await producer.stop()


def pauses(work):
    selector = Selector()
    loop = asyncio.SelectorEventLoop(selector)
    VALUES.extend(work.values())
    found = {}
    for work_of in (by_hundreds, one_by_one, send, send_from_tasks):
        # Once to be warm: what a first call loads and compiles is not what is asked for.
        loop.run_until_complete(work_of(work))
        # A full collection looks at every object there is, the interpreter's too: from here on it
        # looks at those that the work has made.
        gc.collect()
        gc.freeze()
        selector.reset()
        loop.run_until_complete(work_of(work))
        found[work_of.__name__] = selector.pause * 1e3, selector.cpu * 1e3
    loop.close()
    result = {"records": work.records}
    for name, (pause, cpu) in found.items():
        result |= {f"{name}_ms": pause, f"{name}_cpu_ms": cpu}
    result["pause_ms"] = max(pause for pause, _ in found.values())
    result["pause_cpu_ms"] = max(cpu for _, cpu in found.values())
    return result


if __name__ == "__main__":
    main({"pauses": pauses})
