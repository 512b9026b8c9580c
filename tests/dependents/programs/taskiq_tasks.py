"""Tasks of taskiq, run by its own worker. Arguments come by the environment, for it imports this.

As a program it starts tasks and prints their results, which come back by a file per task.
"""

import asyncio
import json
import os
from pathlib import Path

from kafka.coordinator.assignors.range import RangePartitionAssignor
from taskiq import AsyncResultBackend, TaskiqResult
from taskiq_aio_kafka import AioKafkaBroker
from taskiq_aio_kafka.topic import Topic

SERVERS, PREFIX, RESULTS = (
    os.environ[f"TASKIQ_{name}"] for name in ("SERVERS", "PREFIX", "RESULTS")
)


class Files(AsyncResultBackend):
    """Results as files, for a worker is another process."""

    async def set_result(self, task_id: str, result: TaskiqResult) -> None:
        path = Path(RESULTS) / task_id
        path.with_suffix(".new").write_text(
            json.dumps([result.return_value, repr(result.error) if result.is_err else None])
        )
        path.with_suffix(".new").rename(path)

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult:
        value, error = json.loads((Path(RESULTS) / task_id).read_text())
        return TaskiqResult(is_err=error is not None, return_value=value or error, execution_time=0)

    async def is_result_ready(self, task_id: str) -> bool:
        return (Path(RESULTS) / task_id).exists()


more = Topic(f"{PREFIX}-more")
broker = AioKafkaBroker(
    bootstrap_servers=SERVERS, kafka_topic=f"{PREFIX}-tasks", kafka_topics=[more]
).with_result_backend(Files())
broker.configure_producer(request_timeout_ms=20000, compression_type="gzip")
broker.configure_consumer(
    group_id=f"{PREFIX}-workers",
    auto_offset_reset="earliest",
    partition_assignment_strategy=[RangePartitionAssignor],
)


@broker.task(task_name="add")
async def add(one: int, two: int) -> int:
    return one + two


@broker.task_with_topic(more, task_name="fail")
async def fail(text: str) -> None:
    raise ValueError(text)


async def main() -> None:
    await broker.startup()
    tasks = [await add.kiq(number, 1) for number in range(20)]
    failing = await fail.kiq("as it should")
    sums = [(await task.wait_result(timeout=50)).return_value for task in tasks]
    failed = await failing.wait_result(timeout=50)
    print(json.dumps({"event": "sums", "sums": sums}), flush=True)
    print(json.dumps({"event": "failed", "is": failed.is_err, "error": failed.return_value}))
    await broker.shutdown()
    print(json.dumps({"event": "stopped"}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
