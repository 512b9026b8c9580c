"""A program in the environment of another project, whose lines of JSON are its story."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from tests.dependents.environments import python_of

PROGRAMS = Path(__file__).parent / "programs"
# Seconds for anything to happen, on a busy machine.
PATIENCE = 60

Event = dict[str, Any]


class Program:
    """A program that runs: what it told so far, in order."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.events: list[Event] = []

    def of(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    async def until(self, is_enough: Callable[[], Any]) -> None:
        """Read on until the events fulfil a condition. Fails if the program ends before."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not is_enough():
            if not await self._read(deadline):
                raise AssertionError(f"it ended early: {self._story()}")

    async def told(self, kind: str, count: int = 1) -> list[Event]:
        """Wait for so many events of a kind."""
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def end(self) -> int:
        """Wait for its end; return its exit code."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while await self._read(deadline):
            pass
        return await asyncio.wait_for(self._process.wait(), PATIENCE)

    async def _read(self, deadline: float) -> bool:
        assert self._process.stdout is not None
        left = deadline - asyncio.get_running_loop().time()
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), left)
        except asyncio.TimeoutError:
            raise AssertionError(f"nothing more in time: {self._story()}") from None
        if line.startswith(b"{"):
            self.events.append(json.loads(line))
        return bool(line)

    def _story(self) -> str:
        return f"{self.events}\n{self._log.read_text()[-6000:]}"


@asynccontextmanager
async def running(
    environment: str, program: str, *arguments: str, log: Path, **variables: str
) -> AsyncIterator[Program]:
    """Run a program in a project's environment; it is killed at the end if it still runs."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            str(python_of(environment)),
            program if program == "-m" else str(PROGRAMS / program),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=1 << 24,
            env={**os.environ, **variables},
        )
    try:
        yield Program(process, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def read(servers: str, topic: str, count: int) -> list[ConsumerRecord[Any, Any]]:
    """The first records of a topic, as our consumer finds them."""
    found: list[ConsumerRecord[Any, Any]] = []
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    async with consumer:
        while len(found) < count:
            found.append(await asyncio.wait_for(consumer.getone(), PATIENCE))
    return found


async def committed(servers: str, group: str, topic: str) -> int | None:
    """What a group has committed for partition 0 of a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer:
        return await consumer.committed(TopicPartition(topic, 0))
