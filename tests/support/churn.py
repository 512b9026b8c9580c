"""A group whose members come and go, and a model of the records that each member must get."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Set
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
)
from aiokafka.testing import FakeCluster
from aiokafka.testing.actions import Action
from tests.support.consumers import fill

PARTITIONS = 4
MOST_MEMBERS = 3
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]

# Short sessions: the group soon removes a member whose LeaveGroup got lost.
BROKERS = {
    "group.consumer.heartbeat.interval.ms": 10,
    "group.consumer.session.timeout.ms": 500,
    "group.min.session.timeout.ms": 100,
}

# Errors that a commit may raise when the membership changes during the commit.
_EXPECTED_ERRORS = (CommitFailedError, KafkaTimeoutError, IllegalStateError)


class Member(ConsumerRebalanceListener):
    """A consumer, and the possible offsets of the next record of each assigned partition (`next`).

    After a record or a seek, one offset is possible. Before, it is the committed offset; with a
    commit in flight there are two possible offsets, because the commit may be applied before or
    after the consumer fetches the committed offset.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.consumer = self._new_consumer()
        self.next: dict[int, set[int]] = {}
        self.paused: set[int] = set()
        self.committing: dict[int, int] = {}
        self.starting = asyncio.get_running_loop().create_task(self._start())
        self.commit: asyncio.Task[None] | None = None

    def _new_consumer(self) -> AIOKafkaConsumer:
        consumer = self.group.make_consumer()
        consumer.subscribe(["t"], listener=self)
        return consumer

    async def _start(self) -> None:
        while True:
            try:
                await self.consumer.start()
                return
            except KafkaConnectionError:
                # A fault dropped every connection before the first metadata, and start() does not
                # retry.
                assert not self.next, "it had an assignment, so it had found a broker"
                self.consumer = self._new_consumer()

    @property
    def is_ready(self) -> bool:
        """Whether the consumer has started. Raises the error of a failed start."""
        return self.starting.done() and self.starting.result() is None

    # -- calls of the rebalance listener -----------------------------------------------------------

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        for tp in assigned:
            number = tp.partition
            assert number not in self.next, f"{tp} is assigned twice"
            self.next[number] = {self.group.committed(number)}
            if number in self.committing:
                self.next[number].add(self.committing[number])

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        self._give_up(revoked)

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        self._give_up(lost)

    def _give_up(self, gone: Set[TopicPartition]) -> None:
        for tp in gone:
            del self.next[tp.partition]
            self.paused.discard(tp.partition)

    # -- steps of the test -------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Count the returned records as processed: the next call may commit their offsets."""
        for number, offsets in self.next.items():
            self.group.note_finished(number, max(offsets))

    def check(self, records: list[Any]) -> None:
        for record in records:
            number = record.partition
            assert number in self.next, f"{number} is not this member's"
            assert number not in self.paused, f"{number} is paused"
            assert record.offset in self.next[number], (record.offset, self.next[number])
            assert int(record.value) == record.offset
            self.next[number] = {record.offset + 1}

    async def poll(self, limit: int, timeout_ms: int = 0) -> None:
        self.begin_call()
        found = await self.consumer.getmany(max_records=limit, timeout_ms=timeout_ms)
        self.check([record for batch in found.values() for record in batch])

    async def settle(self) -> None:
        """Where two offsets are possible, keep the consumer's position: at the end of the log no
        further record would show which offset is right."""
        for number, offsets in list(self.next.items()):
            tp = TPS[number]
            is_owned = len(offsets) > 1 and tp in self.consumer.assignment()
            if is_owned and self.consumer.lag(tp) is not None:
                position = await self.consumer.position(tp)
                if self.next.get(number) is offsets:
                    assert position in offsets, (number, position, offsets)
                    self.next[number] = {position}

    async def ask_and_cancel(self, turns: int, *, one: bool) -> None:
        """Cancel a getone or getmany call after `turns` loop iterations; the call may have ended
        before."""

        async def ask() -> None:
            self.begin_call()
            if one:
                self.check([await self.consumer.getone()])
            else:
                found = await self.consumer.getmany(timeout_ms=1000)
                self.check([record for batch in found.values() for record in batch])

        task = asyncio.get_running_loop().create_task(ask())
        await self.group.turn(turns)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    def seek(self, number: int, offset: int) -> None:
        if number in self.next and TPS[number] in self.consumer.assignment():
            offset = min(offset, self.group.end(number))
            self.consumer.seek(TPS[number], offset)
            self.next[number] = {offset}
            self.group.note_finished(number, offset)

    def set_paused(self, number: int, on: bool) -> None:
        if number in self.next and TPS[number] in self.consumer.assignment():
            (self.consumer.pause if on else self.consumer.resume)(TPS[number])
            (self.paused.add if on else self.paused.discard)(number)

    def begin_commit(self) -> None:
        """Commit the returned records in the next loop iteration, unless a commit is in flight."""
        if self.commit is not None:
            if not self.commit.done():
                return
            self.end_commit()
        mine = self.consumer.assignment()
        self.committing = {
            number: max(offsets) for number, offsets in self.next.items() if TPS[number] in mine
        }
        for number, offset in self.committing.items():
            self.group.note_finished(number, offset)
        self.commit = asyncio.get_running_loop().create_task(self._commit())

    async def _commit(self) -> None:
        offsets = {TPS[number]: offset for number, offset in self.committing.items()}
        try:
            if offsets:
                await self.consumer.commit(offsets)
        finally:
            self.committing = {}

    def end_commit(self) -> None:
        commit, self.commit = self.commit, None
        error = None if commit is None or commit.cancelled() else commit.exception()
        assert error is None or isinstance(error, _EXPECTED_ERRORS), error

    async def stop(self) -> None:
        """Cancel a pending start, and stop the consumer, which leaves the group."""
        self.begin_call()
        self.starting.cancel()
        await asyncio.wait([self.starting])
        await self.consumer.stop()
        if self.commit is not None:
            await asyncio.wait([self.commit], timeout=5)
            assert self.commit.done(), "a commit outlives its consumer"
            if not self.commit.cancelled():
                self.commit.exception()


class Group:
    """A cluster with a topic, members that come and go, and the processed offsets, which limit the
    offsets that may be committed."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.members: list[Member] = []
        self.cluster = FakeCluster(brokers=2, config=BROKERS)
        self._finished = dict.fromkeys(range(PARTITIONS), 0)
        self._faults: list[Any] = []

    async def start(self) -> None:
        await self.cluster.start()
        await self.cluster.create_topic("t", partitions=PARTITIONS, replication_factor=2)

    def make_consumer(self) -> AIOKafkaConsumer:
        options = {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 20,
            "retry_backoff_ms": 5,
            "reconnect_backoff_ms": 5,
            "max_partition_fetch_bytes": 500,
            "fetch_buffer_memory": 4000,
            "rebalance_timeout_ms": 200,
            "request_timeout_ms": 5000,
            "auto_commit_interval_ms": 5,
            **self.options,
        }
        if "group_protocol" not in options:
            options |= {"heartbeat_interval_ms": 5, "session_timeout_ms": 500}
        return AIOKafkaConsumer(**options)

    # -- offsets -----------------------------------------------------------------------------------

    def end(self, number: int) -> int:
        return self.cluster.log("t", number).end_offset

    def committed(self, number: int) -> int:
        """Return the offset at which a new owner of the partition begins."""
        return self.cluster.groups.committed("g", "t", number) or 0

    def note_finished(self, number: int, offset: int) -> None:
        self._finished[number] = max(self._finished[number], offset)

    def check_commits(self) -> None:
        """Check that no committed offset is after the processed records."""
        for number, offset in self._finished.items():
            assert self.committed(number) <= offset, f"partition {number} is committed too far"

    # -- churn -------------------------------------------------------------------------------------

    def member(self, index: int) -> Member | None:
        """Return a started member, None without one."""
        ready = [member for member in self.members if member.is_ready]
        return ready[index % len(ready)] if ready else None

    def join(self) -> None:
        if len(self.members) < MOST_MEMBERS:
            self.members.append(Member(self))

    async def leave(self, index: int) -> None:
        if self.members:
            member = self.members.pop(index % len(self.members))
            async with timeout(20):
                await member.stop()

    def expire(self, index: int) -> None:
        """Let the session of a member expire, so that the group removes the member."""
        groups = self.cluster.groups
        group: Any = groups.consumer.get("g") or groups.classic.get("g")
        if group is not None and group.members:
            ids = list(group.members)
            groups.expire("g", ids[index % len(ids)])

    def rebalance(self) -> None:
        if "g" in self.cluster.groups.classic:
            self.cluster.groups.rebalance("g")

    def write(self, number: int, count: int) -> None:
        fill(self.cluster, number, count, batch=4)

    def fault(self, api: Any, answer: Action, times: int) -> None:
        self._faults.append(self.cluster.intercept(api, answer, times=times))

    async def turn(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    # -- the end -----------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Remove the faults, and check that the members recover: they read all partitions to the
        end."""
        for fault in self._faults:
            fault.remove()
        if not self.members:
            self.join()
        await self._read_all()
        while not await self._are_positions_right():
            await asyncio.sleep(0.001)
            await self._read_all()
        self.check_commits()

    async def _read_all(self) -> None:
        async with timeout(20):
            while not self._is_all_read():
                for member in self.members:
                    if member.is_ready:
                        for number in list(member.paused):
                            member.set_paused(number, False)
                        await member.poll(100, timeout_ms=5)
                        await member.settle()
                await asyncio.sleep(0.001)

    async def _are_positions_right(self) -> bool:
        """Check the positions. Return False if a member whose session has expired notices it now,
        and loses its partitions."""
        for member in self.members:
            for number, offsets in list(member.next.items()):
                try:
                    position = await member.consumer.position(TPS[number])
                except IllegalStateError:
                    return False
                assert position in offsets
        return True

    def _is_all_read(self) -> bool:
        if not all(member.is_ready for member in self.members):
            return False
        owned = [number for member in self.members for number in member.next]
        return sorted(owned) == list(range(PARTITIONS)) and all(
            offsets == {self.end(number)} or (not self.end(number) and offsets == {0})
            for member in self.members
            for number, offsets in member.next.items()
        )

    async def close(self) -> None:
        for member in self.members:
            await member.stop()
        await self.cluster.stop()
        assert self.cluster.failures == []


async def in_time(work: Coroutine[Any, Any, None]) -> None:
    """Run a step with a time limit."""
    async with timeout(30):
        await work
