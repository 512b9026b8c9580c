"""Send records from code without asyncio: a view of Django, a task of Celery, a script.

One thread of the process runs an event loop with one producer. Any other thread sends through it.
Make it after the process has forked (in `worker_process_init` of Celery, in `post_fork` of
Gunicorn): neither threads nor connections survive a fork.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.structs import RecordMetadata


class SyncProducer:
    """A producer for threads: `send` returns a future of `concurrent.futures`."""

    def __init__(self, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka", daemon=True)
        self._thread.start()
        try:
            self._producer = self._call(self._start(options)).result()
        except BaseException:
            self._end_thread()
            raise

    async def _start(self, options: dict[str, Any]) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**options)
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        return producer

    def _call(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def send(self, topic: str, **record: Any) -> Future[RecordMetadata]:
        """Begin to send; the future has the metadata when the record is written."""
        return self._call(self._producer.send_and_wait(topic, **record))

    def send_and_wait(self, topic: str, *, timeout: float = 30, **record: Any) -> RecordMetadata:
        """Send, and wait in this thread for at most `timeout` seconds."""
        sent = self.send(topic, **record)
        try:
            return sent.result(timeout)
        except FutureTimeoutError:
            raise KafkaTimeoutError(f"{topic}: not written within {timeout} s") from None

    def close(self) -> None:
        """Wait for what was sent, and end the thread."""
        try:
            self._call(self._producer.stop()).result()
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    given = parser.parse_args()
    try:
        producer = SyncProducer(bootstrap_servers=given.bootstrap)
    except KafkaError as error:
        sys.exit(str(error))
    try:
        futures = [producer.send(given.topic, value=b"%d" % number) for number in range(10)]
        print(f"{len([future.result(30) for future in futures])} records written")
        last = producer.send_and_wait(given.topic, value=b"last")
        print(f"the last one at offset {last.offset}")
    finally:
        producer.close()


if __name__ == "__main__":
    main()
