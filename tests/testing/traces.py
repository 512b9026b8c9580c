"""Print the trace of a program with much in it, for a row of seeds.

The same lines must come out whatever `PYTHONHASHSEED` is, in every process, each time::

    python -m tests.testing.traces 20            # seeds 0 to 19
    python -m tests.testing.traces 20 --again    # each seed twice in this process
    python -m tests.testing.traces 20 --apart    # in two processes with other hashes; compared
    python -m tests.testing.traces 1 17 --steps  # seed 17, with every callback, for diff
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import zlib
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation
from aiokafka.testing.simulation.loop import name_of

TOPICS = {"orders": 5, "payments": 3, "audit": 2}


class Steps:
    """A checksum over every callback and every timer, in their order."""

    def __init__(self, loop: Any, *, keep: bool) -> None:
        self.sum = 0
        self.lines: list[str] = []
        self._keep = keep
        self._loop = loop
        self._call_soon, self._call_at = loop.call_soon, loop.call_at
        loop.call_soon, loop.call_at = self.call_soon, self.call_at

    def _note(self, callback: Any, when: float) -> None:
        line = f"{self._loop.time():.9f} {when:.9f} {name_of(callback)}"
        self.sum = zlib.crc32(line.encode(), self.sum)
        if self._keep:
            self.lines.append(line)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self._note(callback, 0)
        return self._call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        self._note(callback, when)
        return self._call_at(when, callback, *args, context=context)


async def program(simulation: Simulation) -> None:
    """Producers of three kinds, a group of each protocol, admin calls, and faults."""
    random = simulation.random
    async with FakeCluster(brokers=3, racks=["a", "b", None]) as cluster:
        for name, partitions in TOPICS.items():
            await cluster.create_topic(name, partitions, 3)
        await asyncio.gather(
            _break(simulation, cluster),
            _produce(simulation, cluster, {"linger_ms": 5}),
            _produce(simulation, cluster, {"acks": 1, "enable_idempotence": False}),
            _transact(simulation, cluster),
            _consume(simulation, cluster, {"group_id": "classic"}),
            _consume(simulation, cluster, {"group_id": "classic"}),
            _consume(simulation, cluster, {"group_id": "new", "group_protocol": "consumer"}),
            _consume(simulation, cluster, {"group_id": "new", "group_protocol": "consumer"}),
            _administer(cluster, random),
        )


async def _break(simulation: Simulation, cluster: FakeCluster) -> None:
    random = simulation.random
    for _ in range(5):
        await asyncio.sleep(random.random() * 0.8)
        broker = random.randrange(3)
        host, _, port = cluster.address(broker).rpartition(":")
        line = simulation.network.line(host, int(port))
        what = random.choice(["reset", "lose", "cut", "stop", "leaders", "coordinator", "stall"])
        if what == "reset":
            simulation.network.reset()
        elif what == "lose":
            line.lose(to_server=random.random() < 0.5)
        elif what == "cut":
            line.cut_at = random.randrange(1, 5000)
        elif what == "stop":
            await cluster.stop_broker(broker)
        elif what == "leaders":
            cluster.move_leader(("orders", random.randrange(5)), broker)
        elif what == "coordinator":
            cluster.move_coordinator("group", "classic", broker)
        else:
            simulation.loop.stall(0.1, 0.3)
        await asyncio.sleep(random.random() * 0.5)
        line.restore()
        simulation.loop.stall(0, 0)
        await cluster.start_broker(broker)


async def _produce(simulation: Simulation, cluster: FakeCluster, options: dict[str, Any]) -> None:
    random = simulation.random
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        for number in range(60):
            topic = random.choice(list(TOPICS))
            try:
                await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
            except KafkaError:
                pass
            await asyncio.sleep(random.random() * 0.05)


async def _transact(simulation: Simulation, cluster: FakeCluster) -> None:
    options: dict[str, Any] = {"transactional_id": "t", "transaction_timeout_ms": 10_000}
    servers = cluster.bootstrap_servers
    try:
        async with AIOKafkaProducer(bootstrap_servers=servers, **options) as producer:
            for number in range(8):
                async with producer.transaction():
                    for topic in TOPICS:
                        await producer.send(topic, b"in transaction %d" % number)
                    await producer.send_offsets_to_transaction(
                        {TopicPartition("orders", p): number for p in range(5)}, "side"
                    )
                await asyncio.sleep(simulation.random.random() * 0.2)
    except KafkaError:
        pass


async def _consume(simulation: Simulation, cluster: FakeCluster, options: dict[str, Any]) -> None:
    await asyncio.sleep(simulation.random.random())
    async with AIOKafkaConsumer(
        *TOPICS,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=300,
        isolation_level=simulation.random.choice(["read_committed", "read_uncommitted"]),
        client_rack="b",
        **options,
    ) as consumer:
        for _ in range(12):
            try:
                await consumer.getmany(timeout_ms=250)
            except KafkaError:
                pass


async def _administer(cluster: FakeCluster, random: Any) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for number in range(6):
            await asyncio.sleep(random.random() * 0.5)
            try:
                await admin.create_topics([NewTopic(f"new-{number}-{i}", 3, 2) for i in range(3)])
                await admin.describe_topics()
                await admin.list_consumer_groups()
                await admin.list_consumer_group_offsets("classic")
                await admin.describe_consumer_groups(["classic", "new"])
            except KafkaError:
                pass


def trace(seed: int, *, keep: bool = False) -> tuple[str, list[str]]:
    """The trace of a seed, and with `keep` all its steps."""
    simulation = Simulation(seed, limit_s=600)
    steps = Steps(simulation.loop, keep=keep)
    ending = "ended"
    try:
        simulation.run(program(simulation))
    except Exception as error:
        ending = f"{type(error).__name__} {str(error).splitlines()[0]}"
    return f"{seed} {simulation.trace} {steps.sum:08x} {ending}", steps.lines


def differences(count: int, first: int = 0) -> list[str]:
    """Traces of two processes with other hashes, where they differ."""
    runs = []
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.testing.traces", str(count), str(first)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    one, other = (run.communicate()[0].splitlines() for run in runs)
    if len(one) != count or len(other) != count:
        return [f"of {count} runs {len(one)} and {len(other)} came to an end"]
    pairs = zip(one, other, strict=True)
    return [f"{mine}\n{yours}\n" for mine, yours in pairs if mine != yours]


def main(arguments: list[str]) -> None:
    logging.disable()
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    count, first = (*numbers, 0)[:2]
    if "--apart" in arguments:
        found = differences(count, first)
        print(*found, f"{len(found)} of {count} seeds differ", sep="\n")
        sys.exit(bool(found))
    for seed in range(first, first + count):
        line, steps = trace(seed, keep="--steps" in arguments)
        if "--again" in arguments and trace(seed)[0] != line:
            line = f"{seed} differs from itself: {trace(seed)[0]} and {line}"
        print(*steps, line, sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
