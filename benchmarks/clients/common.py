"""What the client scripts share. Imports little: its cost is part of every figure."""

import json
import os
import sys
import time

WORKERS = 64
CHECK_EVERY = 10_000
PER_CALL = 500
WARM_UP = 20
"""Transactions that do not count: the brokers look for coordinators then."""


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
        self.per_commit = given.get("per_commit")
        self.authority = given.get("authority")
        self.batch_size = given.get("batch_size")
        self.codecs = given.get("codecs", ["none"])
        self.headers = [
            (f"header-{n}", b"0123456789abcdef") for n in range(given.get("headers", 0))
        ]
        self.is_idempotent = given.get("idempotent")
        self.tasks = given.get("tasks", WORKERS)
        self.loop = given.get("loop", "asyncio")
        self.stored_batch = given.get("stored_batch", 1_000_000)

    def values(self):
        """A thousand payloads that compress about as JSON text does; of large ones some are the
        same."""
        count = 1000 if self.size < 65536 else 50
        different = [payload(number, self.size) for number in range(count)]
        return [different[number % count] for number in range(1000)]

    def keys(self):
        return [b"key-%d" % number for number in range(4096)] if self.keyed else [None]


def payload(number, size):
    text = bytearray()
    while len(text) < size:
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        text += b'{"id": %d, "name": "customer-%d", "amount": %d.%02d, "state": "active"},' % (
            number,
            number % 9973,
            number % 499,
            number % 100,
        )
    return bytes(text[:size])


class Clock:
    """Time and CPU time: of all of it, and from the first records on, behind what a start costs."""

    def __init__(self):
        self.begin = time.perf_counter()
        self.first = None

    def started(self, records=1):
        """Say that the first records are done. Only the first call counts."""
        if self.first is None:
            self.first = time.perf_counter(), time.process_time(), records

    def rate(self, records):
        now, used = time.perf_counter(), time.process_time()
        result = {"records": records, "seconds": now - self.begin}
        if self.first:
            begin, before, few = self.first
            result["rate_after"] = (records - few) / (now - begin)
            result["cpu_after"] = (used - before) * 1e6 / (records - few)
        return result


def percentiles(seconds):
    ordered = sorted(seconds)
    return {
        "records": len(ordered),
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1e3,
    }


def each(cpu, records):
    """What so many CPU seconds are for a million."""
    return {"cpu_after": cpu * 1e6 / records}


def new_group(work):
    return f"{work.topic}-{os.getpid()}"


def check(done, wanted):
    if done != wanted:
        sys.exit(f"{done} instead of {wanted} records")


def cpu_seconds():
    return time.process_time()


def rss_mib():
    """Return the memory that this process holds now; 0 where it cannot be read."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:  # not on Linux
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_rss_mib():
    """Return the most memory that this process held, without that of the one that started it."""
    try:
        with open("/proc/self/status") as file:
            (peak,) = (line.split()[1] for line in file if line.startswith("VmHWM"))
    except OSError:  # not on Linux
        return {}
    return {"rss_mib": int(peak) / 1024}


def main(workloads):
    """Run the workload that ``argv[2]`` names and print its result as one line of JSON."""
    work = Work(json.loads(sys.argv[1]))
    result = workloads[sys.argv[2]](work)
    print(json.dumps(result | peak_rss_mib()), flush=True)
