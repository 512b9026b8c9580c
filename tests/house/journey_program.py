"""The program that `journeys.py` runs in another process: use clients, and count their calls.

The program uses only names that aiokafka 0.14 has as well, and imports nothing of this repository
but the client.
"""

import asyncio
import importlib.util
import itertools
import json
import os
import sys

GROUPS = {"group_id": "journeys", "auto_offset_reset": "earliest", "enable_auto_commit": False}
ROUNDS = 12
STARTS = 3
# After this many calls of an operation, the constructors of its messages are compiled.
WARM_UP = 10
QUALIFIED = sys.version_info >= (3, 11)


class Tracer:
    """Counts calls of functions whose source is below `aiokafka`."""

    def __init__(self):
        self._root = os.path.dirname(importlib.util.find_spec("aiokafka").origin) + os.sep
        self._calls = []

    def __enter__(self):
        self._calls = []
        sys.setprofile(self._see)
        return self

    def __exit__(self, *exc_info):
        sys.setprofile(None)

    def _see(self, frame, event, argument):
        if event == "call":
            name = frame.f_code.co_filename
            # Functions that the library has compiled at run time have no file: do not count them.
            if name.startswith(self._root):
                self._calls.append(
                    (name, frame.f_code.co_qualname if QUALIFIED else frame.f_code.co_name)
                )

    def figures(self):
        modules = [module for module, _ in self._calls]
        moves = sum(one != other for one, other in itertools.pairwise(modules))
        return len(set(modules)), moves, len(modules)

    def path(self):
        """Return a line for each series of calls in one module: its path, and the functions."""
        stays = itertools.groupby(self._calls, key=lambda call: call[0][len(self._root) :])
        return [f"{module}: {', '.join(name for _, name in calls)}" for module, calls in stays]


async def least(operation):
    """Return the smallest figures of some runs, and the path of that run. Timers may add calls to a
    run."""
    found = []
    for _ in range(ROUNDS):
        with Tracer() as tracer:
            await operation()
        found.append((tracer.figures(), tracer.path()))
    return min(found)


async def main(servers):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    found = {}
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    async with producer:

        async def send():
            await (await producer.send("orders", b"value", partition=0))

        for _ in range(WARM_UP):
            await send()
        found["send"] = await least(send)

    starts = []
    for _ in range(1 + STARTS):
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=servers, **GROUPS)
        with Tracer() as tracer:
            await consumer.start()
        starts.append((tracer.figures(), tracer.path()))
        await consumer.getone()
        loaded = sorted(m for m in sys.modules if m.startswith("aiokafka"))
        found["modules loaded"] = (len(loaded), 0, 0), loaded
        await consumer.stop()
    # The first start also imports and compiles.
    found["start in a group"] = min(starts[1:])

    consumer = AIOKafkaConsumer("waited-for", bootstrap_servers=servers, **GROUPS)
    async with consumer:

        async def getone():
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0)
            print(json.dumps("waiting"), flush=True)
            await waiting

        for _ in range(WARM_UP):
            await getone()
        found["getone"] = await least(getone)

        async def commit():
            partition = TopicPartition("waited-for", 0)
            await consumer.commit({partition: await consumer.position(partition)})

        for _ in range(WARM_UP):
            await commit()
        found["commit"] = await least(commit)

    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="journeys")
    async with producer:

        async def transact():
            await producer.begin_transaction()
            await producer.send("orders", b"value", partition=0)
            await producer.commit_transaction()

        for _ in range(WARM_UP):
            await transact()
        found["transaction"] = await least(transact)

    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    names = iter(range(100))

    async def create():
        await admin.create_topics([NewTopic(f"new-{next(names)}", 1, 1)])

    for _ in range(WARM_UP):
        await create()
    found["create_topics"] = await least(create)
    await admin.close()
    print(json.dumps(found))


asyncio.run(main(sys.argv[1]))
