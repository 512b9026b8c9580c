"""Ask by a record and wait for the record that answers it.

The program that asks reads one partition of the topic of replies, and says which in a header.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from types import TracebackType

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError


class Requester:
    """Sends requests and gives each its reply."""

    def __init__(self, bootstrap: str, topic: str, reply_to: TopicPartition) -> None:
        self._topic = topic
        self._reply_to = reply_to
        self._waiting: dict[bytes, asyncio.Future[bytes | None]] = {}
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)

    async def __aenter__(self) -> Requester:
        await self._producer.start()
        try:
            await self._consumer.start()
            self._consumer.assign([self._reply_to])
            # Before the first request: what is written from now on is read.
            await self._consumer.seek_to_end(self._reply_to)
        except BaseException:
            await self._consumer.stop()
            await self._producer.stop()
            raise
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await self._consumer.stop()
        await self._producer.stop()

    async def ask(self, question: bytes, timeout: float = 10) -> bytes | None:
        """Return the reply. Raises asyncio.TimeoutError: the request may still be carried out."""
        name = uuid.uuid4().bytes
        headers = [
            ("correlation-id", name),
            ("reply-topic", self._reply_to.topic.encode()),
            ("reply-partition", b"%d" % self._reply_to.partition),
        ]
        reply = self._waiting[name] = asyncio.get_running_loop().create_future()
        try:
            await self._producer.send_and_wait(self._topic, question, headers=headers)
            return await asyncio.wait_for(reply, timeout)
        finally:
            del self._waiting[name]

    async def _read(self) -> None:
        async for record in self._consumer:
            reply = self._waiting.get(dict(record.headers).get("correlation-id", b""))
            if reply is not None and not reply.done():
                reply.set_result(record.value)


async def answer(bootstrap: str, topic: str) -> None:
    """Answer every request with its text in capitals, at least once; never ends by itself."""
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id="capitals",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        async for record in consumer:
            headers = dict(record.headers)
            await producer.send_and_wait(
                headers["reply-topic"].decode(),
                (record.value or b"").upper(),
                partition=int(headers["reply-partition"]),
                headers=[("correlation-id", headers["correlation-id"])],
            )
            await consumer.commit()


async def run(bootstrap: str) -> None:
    answering = asyncio.create_task(answer(bootstrap, "requests"))
    try:
        async with Requester(bootstrap, "requests", TopicPartition("replies", 0)) as requester:
            replies = await asyncio.gather(*(requester.ask(b"question %d" % n) for n in range(3)))
        for reply in replies:
            print(reply)
    finally:
        answering.cancel()
        await asyncio.wait([answering])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
