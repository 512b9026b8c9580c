"""What a process needs from its start to the first record that it reads: `start_up.py JSON _`.

The client is the one that the interpreter has; each try is a process of its own.
"""

import subprocess
import sys
import time

from common import main, percentiles

OF_AIOKAFKA = """
import asyncio, sys, time
from aiokafka import AIOKafkaConsumer, TopicPartition

async def main(servers, topic):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.start()
    await consumer.getone()
    print(time.perf_counter(), time.process_time(), flush=True)
    await consumer.stop()

asyncio.run(main(*sys.argv[1:]))
"""
OF_CONFLUENT = """
import sys, time
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

servers, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": "benchmark"})
consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
while consumer.poll(1) is None:
    pass
print(time.perf_counter(), time.process_time(), flush=True)
consumer.close()
"""


def code():
    try:
        import aiokafka  # noqa: F401
    except ImportError:
        return OF_CONFLUENT
    return OF_AIOKAFKA


def start_up(work):
    # Isolated, or the sources in the working directory would be everyone's package.
    command = [sys.executable, "-I", "-c", code(), work.servers, work.topic]
    waits, used = [], []
    for number in range(work.records + 1):
        begin = time.perf_counter()  # of a clock that all processes have in common
        shown = subprocess.run(command, capture_output=True, check=True).stdout.split()
        # The first one may have to write byte code.
        if number:
            waits.append(float(shown[0]) - begin)
            used.append(float(shown[1]) * 1e3)
    return percentiles(waits) | {"cpu_ms": sorted(used)[len(used) // 2]}


if __name__ == "__main__":
    main({"start_up": start_up})
