"""What the client scripts share. Imports little: its cost is part of every figure."""

import json
import os
import sys
import time

WORKERS = 64
CHECK_EVERY = 10_000
PER_CALL = 500


class Work:
    """The work that the harness asks for: ``argv[1]`` is JSON."""

    def __init__(self, given):
        self.servers = given["servers"]
        self.topic = given["topic"]
        self.partitions = given["partitions"]
        self.records = given["records"]
        self.size = given["size"]
        self.keyed = given.get("keyed", False)
        self.compression = given.get("compression")
        self.seconds = given.get("seconds", 5)
        self.target = given.get("target")
        self.per_transaction = given.get("per_transaction")
        self.codecs = given.get("codecs", ["none"])

    def values(self):
        """A thousand different payloads that compress about as JSON text does."""
        return [payload(number, self.size) for number in range(1000)]

    def keys(self):
        return [b"key-%d" % number for number in range(4096)] if self.keyed else [None]


def payload(number, size):
    text = b""
    while len(text) < size:
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        text += b'{"id": %d, "name": "customer-%d", "amount": %d.%02d, "state": "active"},' % (
            number,
            number % 9973,
            number % 499,
            number % 100,
        )
    return text[:size]


class Clock:
    """Time from the first to the last record; the CPU time of the process is the harness's part."""

    def __init__(self):
        self.begin = time.perf_counter()

    def rate(self, records):
        return {"records": records, "seconds": time.perf_counter() - self.begin}


def percentiles(seconds):
    ordered = sorted(seconds)
    return {
        "records": len(ordered),
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1e3,
    }


def new_group(work):
    return f"{work.topic}-{os.getpid()}"


def check(done, wanted):
    if done != wanted:
        sys.exit(f"{done} instead of {wanted} records")


def cpu_seconds():
    return time.process_time()


def main(workloads):
    """Run the workload that ``argv[2]`` names and print its result as one line of JSON."""
    work = Work(json.loads(sys.argv[1]))
    print(json.dumps(workloads[sys.argv[2]](work)), flush=True)
