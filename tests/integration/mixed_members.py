"""Members of one group made with different clients, which all behave the same: read, remember the
numbers, commit now and then, leave when told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol

import confluent_kafka
import kafka as kafka_python
from confluent_kafka import KafkaError
from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor as TheirCooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor as TheirRangeAssignor
from kafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor as TheirRoundRobinAssignor,
)

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import ConsumerStoppedError

SESSION_MS = 10_000
HEARTBEAT_MS = 300
_OURS: dict[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_KAFKA_PYTHON: dict[str, Any] = {
    "range": TheirRangeAssignor,
    "roundrobin": TheirRoundRobinAssignor,
    "cooperative-sticky": TheirCooperativeStickyAssignor,
}


class Member(Protocol):
    """`owned`: partitions; `seen`: the numbers read."""

    owned: set[int]
    seen: list[int]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def check(self) -> None:
        """Raise what ended it."""


class Ours:
    def __init__(self, servers: str, topic: str, assignors: list[str], **options: Any) -> None:
        self.seen: list[int] = []
        if "group_protocol" not in options:
            options |= {
                "partition_assignment_strategy": [_OURS[name] for name in assignors],
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": HEARTBEAT_MS,
            }
        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=topic,
            client_id="ours",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            **options,
        )
        self._reading: asyncio.Task[None] | None = None

    @property
    def owned(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    async def start(self) -> None:
        await self._consumer.start()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                for records in (await self._consumer.getmany(timeout_ms=500)).values():
                    self.seen.extend(int(record.value) for record in records)
        except ConsumerStoppedError:
            pass

    def check(self) -> None:
        if self._reading is not None and self._reading.done():
            self._reading.result()

    async def stop(self) -> None:
        await self._consumer.stop()
        if self._reading is not None:
            await self._reading


class _Threaded:
    """A member that blocks, in a thread of its own."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.seen: list[int] = []
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    async def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, 40)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not stop"
        self.check()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._failure = error
        finally:
            self.owned = set()

    def _run(self) -> None:
        raise NotImplementedError


class Confluent(_Threaded):
    def __init__(self, servers: str, topic: str, assignors: list[str], **options: Any) -> None:
        super().__init__()
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": topic,
            "client.id": "confluent",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
        }
        if "group_protocol" in options:
            settings["group.protocol"] = options["group_protocol"]
        else:
            settings |= {
                "partition.assignment.strategy": ",".join(assignors),
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        self._settings, self._topic = settings, topic

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is not None and error.code() == KafkaError.REBALANCE_IN_PROGRESS:
                    continue  # of a JoinGroup, which librdkafka repeats
                assert error is None, error
                self.seen.append(int(message.value() or b""))
            self.owned = {tp.partition for tp in consumer.assignment()}
        consumer.close()


class KafkaPython(_Threaded):
    def __init__(self, servers: str, topic: str, assignors: list[str]) -> None:
        super().__init__()
        self._topic = topic
        self._settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": topic,
            "client_id": "kafka-python",
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 500,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "partition_assignment_strategy": [_KAFKA_PYTHON[name] for name in assignors],
        }

    def _run(self) -> None:
        consumer = kafka_python.KafkaConsumer(**self._settings)
        # As the leader of a group it assigns nothing, for good, if it does not know the topic yet.
        while consumer.partitions_for_topic(self._topic) is None and not self._stop.wait(0.05):
            pass
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            for records in consumer.poll(timeout_ms=100).values():
                self.seen.extend(int(record.value) for record in records)
            self.owned = {tp.partition for tp in consumer.assignment()}
        consumer.close()


CLIENTS: dict[str, Callable[..., Member]] = {
    "ours": Ours,
    "confluent": Confluent,
    "kafka-python": KafkaPython,
}
