"""Rows of a table: a request that is answered with an error for ever, and what users see of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.errors import BrokerResponseError
from aiokafka.health import ConsumerHealth, ProducerHealth
from aiokafka.testing import Edit, Fail, FakeCluster, Silence

UNEXPECTED = -1
UNKNOWN = 999
SILENCE = None
"""No code, and no response at all."""

SECONDS = 8.0
"""How long users have seen nothing, at most: five seconds, and a few for what comes before."""

_CALM = ("running", "starting", "new")

T0 = TopicPartition("t", 0)


def retriable_codes() -> list[int | None]:
    """Return every code that a client may see for ever without any call raising it, and
    `SILENCE`."""
    found = {
        each.errno
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, BrokerResponseError) and each.retriable
    }
    return [*sorted(found), UNEXPECTED, UNKNOWN, SILENCE]


class Row(NamedTuple):
    """One code, for ever."""

    request: str
    code: int | None
    call: str
    """What the call has come to: "waits", "raises ...", "returns"."""
    seconds: float
    """When the call ended, or the first WARNING was logged."""
    state: str
    stalled: str
    """What `health()` lists, and what it gives as the last error."""
    warning: str
    """The first one in the log."""

    @property
    def is_silent(self) -> bool:
        """Whether nothing tells of it: no exception, or neither the log nor `health()`."""
        if self.call != "waits":
            return False
        return not self.warning or (self.state in _CALM and not self.stalled)

    def __str__(self) -> str:
        code = "none" if self.code is SILENCE else self.code
        where = f"{self.request:<31}{code:>4}  {self.call:<38}{self.seconds:5.1f} s"
        return f"{where}  {self.state:<12} {self.stalled[:60]:<60} {self.warning[:90]}"


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[tuple[str, float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        client = str(getattr(record, "client_id", ""))
        now = asyncio.get_running_loop().time()
        self.lines.append((client, now, record.getMessage().partition(": ")[2]))

    def first(self, client: str) -> tuple[float, str] | None:
        """Return the first line about a client: when, and what."""
        return next(((at, text) for name, at, text in self.lines if name == client), None)


@contextmanager
def _logged() -> Iterator[_Log]:
    log = _Log()
    logger = logging.getLogger("aiokafka")
    logger.addHandler(log)
    try:
        yield log
    finally:
        logger.removeHandler(log)


Client = AIOKafkaConsumer[Any, Any] | AIOKafkaProducer[Any, Any]
Fault = Callable[[], None]
Call = Callable[[Any, FakeCluster, Fault], Awaitable[object]]
"""Starts a client and has it do something; it begins the fault when that is due."""


class Scene(NamedTuple):
    """How a request comes about."""

    request: str
    api: Any
    make: Callable[..., Client]
    call: Call
    options: dict[str, Any] = {}
    cluster: dict[str, Any] = {}
    fault: Callable[[int], Any] = Fail
    silent_for: float = SECONDS
    """How long a broker may take for the response, before anything is logged."""


async def rows_of(scene: Scene) -> list[Row]:
    """Return a row for each code; all of them at the same time, in clusters of their own."""
    with _logged() as log:
        rows = (_row(scene, code, log) for code in retriable_codes())
        return list(await asyncio.gather(*rows))


async def _row(scene: Scene, code: int | None, log: _Log) -> Row:
    loop = asyncio.get_running_loop()
    name = f"{scene.request}-{code}".replace(" ", "-")
    async with FakeCluster(**{"brokers": 1, **scene.cluster}) as cluster:
        await cluster.create_topic("t", replication_factor=scene.cluster.get("brokers", 1))
        cluster.log("t", 0).append(b"x")
        client = scene.make(
            bootstrap_servers=cluster.bootstrap_servers, client_id=name, **scene.options
        )
        begun: list[float] = []

        def begin() -> None:
            begun.append(loop.time())
            cluster.intercept(scene.api, Silence() if code is SILENCE else scene.fault(code))

        task = asyncio.ensure_future(scene.call(client, cluster, begin))
        async with _ended(task, client):
            while not begun and not task.done():
                await asyncio.sleep(0.01)
            limit = scene.silent_for if code is SILENCE else SECONDS
            await asyncio.wait([task], timeout=begun[0] + limit - loop.time())
            row = _seen(scene.request, code, task, client.health(), log.first(name), begun[0])
    return row


@asynccontextmanager
async def _ended(task: asyncio.Future[object], client: Client) -> AsyncIterator[None]:
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await client.stop(timeout=0)


def _seen(
    request: str,
    code: int | None,
    task: asyncio.Future[object],
    health: ConsumerHealth | ProducerHealth,
    warning: tuple[float, str] | None,
    began_at: float,
) -> Row:
    at, text = warning or (began_at, "")
    call = "waits"
    if task.done():
        error = task.exception()
        call = "returns" if error is None else f"raises {type(error).__name__}"
    stalled = "; ".join(f"{each.what}: {each.reason}" for each in health.stalled)
    return Row(request, code, call, at - began_at, str(health.state), stalled, text)


# -- faults that Fail has no shape for


def fetch_partition(code: int) -> Edit:
    """Have Fetch refuse each partition; by itself it refuses the whole."""

    def change(response: Any) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                data.error_code, data.records = code, None

    return Edit(change)


def offset_fetch_partition(code: int) -> Edit:
    """Have OffsetFetch refuse each partition; by itself it refuses the group."""

    def change(response: Any) -> None:
        for group in response.groups or [response]:
            for topic in group.topics:
                for data in topic.partitions:
                    data.error_code, data.committed_offset = code, -1

    return Edit(change)
