"""Every pair of calls at once, cancellation at every turn, lost answers and moving coordinators.

Whatever happens, a transaction counts whole or not at all, as its calls have said; nothing hangs;
and the next transaction works, or else the producer says that it cannot go on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgressError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    ProducerClosed,
    TransactionStateError,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Delay, Fail, FakeCluster, Silence
from tests.support.producers import TOPIC, committed, transactional

RELEASES = ["0.11", "2.1", "2.8", "3.9", "4.3"]
PARTITIONS = (0, 1)
REQUESTS: list[Any] = [
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    ProduceRequest,
    EndTxnRequest,
]


@pytest.fixture(params=RELEASES)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=2, as_version=request.param) as fake:
        await fake.create_topic(TOPIC, assignment={0: (0, 1), 1: (1, 0)})
        await fake.create_topic("source", assignment={0: (0, 1)})
        yield fake
        assert fake.failures == []


class Books:
    """What was done in each transaction, what its calls said, and what the cluster has of it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.sent: dict[int, set[bytes]] = {}
        self.is_committed: dict[int, bool] = {}
        self.with_offsets: set[int] = set()

    def seen(self) -> set[bytes]:
        values = [value for number in PARTITIONS for value in committed(self.cluster, number)]
        assert len(values) == len(set(values)), "doubled"
        return {value for value in values if value is not None}

    def check(self) -> None:
        """All or nothing, as the calls have said."""
        seen = self.seen()
        assert seen <= set().union(*self.sent.values(), set()), "not of any transaction"
        for number, sent in self.sent.items():
            expected = self.is_committed.get(number)
            if expected is None:
                assert sent <= seen or not sent & seen, f"half of {number}"
            else:
                assert (sent & seen) == (sent if expected else set()), f"{number}: {expected}"
        stored = self.cluster.groups.committed("group", "source", 0)
        wanted = [n for n in self.with_offsets if self.is_committed.get(n)]
        assert stored == (max(wanted) if wanted else None)

    async def check_settled(self) -> None:
        """No open transaction keeps readers back."""
        logs = [self.cluster.log(TOPIC, number) for number in PARTITIONS]
        await self.cluster.wait_for(
            lambda: all(log.last_stable_offset == log.end_offset for log in logs)
        )


class Worker:
    """A program that does what the manual says."""

    def __init__(self, producer: Any, books: Books) -> None:
        self.producer = producer
        self.books = books
        self.number = 0
        self.stage = "outside"

    async def transaction(self) -> None:
        """The next transaction, step by step; all of it may be cancelled."""
        self.number += 1
        sent = self.books.sent[self.number] = set()
        self.stage = "begin"
        await self.producer.begin_transaction()
        self.stage = "within"
        for number in PARTITIONS:
            value = b"%d of %d" % (number, self.number)
            await self.producer.send(TOPIC, value, partition=number)
            sent.add(value)
        source = TopicPartition("source", 0)
        await self.producer.send_offsets_to_transaction({source: self.number}, "group")
        self.books.with_offsets.add(self.number)
        self.stage = "commit"
        await self.producer.commit_transaction()
        self.books.is_committed[self.number] = True
        self.stage = "outside"

    async def settle(self, prefers_abort: bool) -> None:
        """After an error or a cancellation."""
        for _ in range(20):
            if self.stage == "outside":
                return
            try:
                if self.stage == "commit" and not prefers_abort:
                    await self._end(is_commit=True)
                else:
                    await self._end(is_commit=False)
            except TransactionStateError:
                if self.stage == "begin":
                    self.stage = "outside"
                    self.books.is_committed[self.number] = False
                # The commit was told to the coordinator already, or a record has failed.
                prefers_abort = not prefers_abort
            except KafkaError as error:
                assert not error.is_fatal, error
                # Open: the same again. Failed: to be aborted.
                if not isinstance(error, KafkaTimeoutError):
                    prefers_abort = True
        raise AssertionError("never settled")

    async def _end(self, *, is_commit: bool) -> None:
        if is_commit:
            await self.producer.commit_transaction()
        else:
            await self.producer.abort_transaction()
        self.books.is_committed[self.number] = is_commit
        self.stage = "outside"


async def finish(worker: Worker) -> None:
    """The next transaction works, and nothing is left open."""
    async with timeout(20):
        await worker.transaction()
        worker.books.check()
        await worker.books.check_settled()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- cancellation


@pytest.mark.parametrize("prefers_abort", [False, True])
async def test_cancelled_at_every_turn(cluster: FakeCluster, prefers_abort: bool) -> None:
    books = Books(cluster)
    async with transactional(cluster) as producer:
        worker = Worker(producer, books)
        for count in range(120):
            task = asyncio.ensure_future(worker.transaction())
            await turns(count)
            task.cancel()
            if count % 3:
                await asyncio.wait([task])
            async with timeout(20):
                await worker.settle(prefers_abort)
                await asyncio.wait([task])
            books.check()
        await finish(worker)


# -- lost answers, moving coordinators

MOVES = "moves"
FAULTS: list[Any] = [
    pytest.param(Cut(), id="cut"),
    pytest.param(Cut(handled=True), id="answer lost"),
    pytest.param(Silence(), id="silent"),
    pytest.param(Silence(handled=True), id="silent after it"),
    pytest.param(MOVES, id="moves"),
    pytest.param(Fail(-1), id="unknown error"),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("request_type", REQUESTS)
async def test_each_request_meets_each_fault(
    cluster: FakeCluster, request_type: Any, fault: Any
) -> None:
    """In every second transaction, which is aborted by hand every fourth time."""
    books = Books(cluster)
    async with transactional(cluster, request_timeout_ms=300, max_block_ms=3000) as producer:
        worker = Worker(producer, books)
        answer: Any = fault
        if fault is MOVES:

            def answer(request: Any, context: Any) -> Any:
                for kind, key in (("transaction", "worker"), ("group", "group")):
                    cluster.move_coordinator(kind, key, 1 - context.node_id)
                return Cut(handled=True)

        for number in range(4):
            with cluster.intercept(request_type, answer, times=1):
                async with timeout(30):
                    try:
                        await worker.transaction()
                    except KafkaError as error:
                        assert not error.is_fatal, error
                        await worker.settle(prefers_abort=number % 2 == 0)
            books.check()
        await finish(worker)


@pytest.mark.parametrize("seed", range(2))
async def test_a_storm(cluster: FakeCluster, seed: int) -> None:
    """Faults, moves and cancellations, drawn at random."""
    draw = random.Random(seed)
    books = Books(cluster)

    def trouble(request: Any, context: Any) -> Any:
        if not isinstance(request, tuple(REQUESTS)) or draw.random() > 0.15:
            return None
        coordinated = not isinstance(request, ProduceRequest)
        passing = [CoordinatorLoadInProgressError, NotCoordinatorError, ConcurrentTransactions]
        code = draw.choice(passing) if coordinated else NotLeaderForPartitionError
        return draw.choice([Cut(), Cut(handled=True), Delay(0.02), Fail(code)])

    cluster_options = {"request_timeout_ms": 2000, "max_block_ms": 5000}
    async with transactional(cluster, **cluster_options) as producer:
        worker = Worker(producer, books)
        with cluster.intercept(None, trouble):
            for _ in range(40):
                task = asyncio.ensure_future(worker.transaction())
                if draw.random() < 0.5:
                    await asyncio.sleep(draw.random() * 0.05)
                    task.cancel()
                    if draw.random() < 0.3:
                        cluster.move_coordinator("transaction", "worker", draw.randrange(2))
                async with timeout(60):
                    (result,) = await asyncio.gather(task, return_exceptions=True)
                    if isinstance(result, KafkaError):
                        assert not result.is_fatal, result
                    elif isinstance(result, Exception):
                        raise result
                    await worker.settle(prefers_abort=draw.random() < 0.5)
                books.check()
        await finish(worker)


# -- two calls at once

Call = Callable[[Any], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "begin": lambda producer: producer.begin_transaction(),
    "send": lambda producer: producer.send(TOPIC, b"sent", partition=0),
    "send_and_wait": lambda producer: producer.send_and_wait(TOPIC, b"written", partition=1),
    "offsets": lambda producer: producer.send_offsets_to_transaction(
        {TopicPartition("source", 0): 1}, "group"
    ),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
    "stop": lambda producer: producer.stop(),
}
ADDS = {"send": b"sent", "send_and_wait": b"written"}


@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("first", CALLS)
async def test_two_calls_at_once(cluster: FakeCluster, first: str, second: str) -> None:
    for count in (0, 2, 20):
        name = f"{count}"
        async with transactional(cluster, transactional_id=name) as producer:
            before = {number: len(committed(cluster, number)) for number in PARTITIONS}
            await producer.begin_transaction()
            await producer.send(TOPIC, b"base", partition=0)
            with cluster.intercept(None, Delay(0.002)):
                one = asyncio.ensure_future(CALLS[first](producer))
                await turns(count)
                two = asyncio.ensure_future(CALLS[second](producer))
                async with timeout(20):
                    results = await asyncio.gather(one, two, return_exceptions=True)
            said = dict(zip((first, second), results, strict=False))
            for result in results:
                if isinstance(result, BaseException):
                    assert isinstance(result, (KafkaError, TransactionStateError)), result
                    assert not result.is_fatal or isinstance(result, ProducerClosed), result
            if first != second:
                assert not (said.get("commit", 1) is None and said.get("abort", 1) is None)
            if "stop" not in (first, second):
                await end_open(producer, said)
            found = [
                value
                for number in PARTITIONS
                for value in committed(cluster, number)[before[number] :]
            ]
            check_pair(found, first, second, results)
            if "stop" not in (first, second):
                async with timeout(20), producer.transaction():
                    await producer.send(TOPIC, b"next", partition=0)
        logs = [cluster.log(TOPIC, number) for number in PARTITIONS]
        assert all(log.last_stable_offset == log.end_offset for log in logs)


async def end_open(producer: Any, said: dict[str, Any]) -> None:
    """Abort what is open after the calls."""
    try:
        async with timeout(20):
            await producer.abort_transaction()
    except TransactionStateError:
        pass


def check_pair(found: list[Any], first: str, second: str, results: list[Any]) -> None:
    """Of the transaction all counts, or nothing."""
    did = list(zip((first, second), results, strict=True))
    if any(name == "commit" and result is None for name, result in did):
        accepted = [
            ADDS[name]
            for name, result in did
            if name in ADDS and not isinstance(result, BaseException)
        ]
        assert sorted(found) == sorted([b"base", *accepted])
    else:
        assert found == []
