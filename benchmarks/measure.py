"""Runs the rows: clients in turn, several rounds, each in a process of its own."""

from __future__ import annotations

import statistics
import sys
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.environments import python_of, run_client, run_script, why_not
from benchmarks.rows import CONFLUENT, OURS, OURS_ASSIGNED, OURS_UVLOOP, Row

_WITH_TARGET = ("transactions", "pauses", "handler")
"""Workloads that read from one topic and write to another."""

Sample = dict[str, float]
Result = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Broker:
    """What the rows run on. Without `tls_servers` the rows on TLS are left out. `warm`: the
    workloads that have run here once."""

    version: str
    servers: str
    tls_servers: str = ""
    authority: str = ""
    warm: set[str] = field(default_factory=set)

    def of(self, row: Row) -> dict[str, object]:
        """Return how the clients of a row connect."""
        if row.tls:
            return {"servers": self.tls_servers, "authority": self.authority}
        return {"servers": self.servers}


@dataclass(frozen=True)
class Measured:
    """A row: the medians of each client, and of each target what was reached."""

    clients: Result
    reached: dict[str, float]


def measure(row: Row, broker: Broker, rounds: int, clients: Iterable[str]) -> Measured:
    """Run a row. Ratios are taken within a round; their median counts."""
    chosen = [client for client in row.clients if client in set(clients) and can_run(client)]
    samples: dict[str, list[Sample]] = {client: [] for client in chosen}
    work = _work(row, broker)
    plain = work | {"servers": broker.servers}
    # A record for every partition at least: a new leader refuses its first requests.
    _topic("fill", plain | {"records": max(row.stored, row.partitions)})
    try:
        if row.records and row.workload not in broker.warm:
            # Java interprets what it has not compiled yet: the first client of the first round
            # would get a broker that is several times slower than that of the others. Clients use
            # different versions of the requests (of transactions, too): ours the newest, the last
            # client older ones.
            broker.warm.add(row.workload)
            for client in dict.fromkeys((chosen[0], chosen[-1])):
                _sample(row, client, work)
        for number in range(rounds):
            # Each client goes first once: the order must not favour any.
            turn = chosen[number % len(chosen) :] + chosen[: number % len(chosen)]
            for client in turn:
                sample = _sample(row, client, work)
                samples[client].append(sample)
                _tell(row, client, sample)
    finally:
        _topic("remove", plain)
    figures = {client: _summary(row, samples[client], samples.get(OURS)) for client in chosen}
    found = {target.name: target.reached(samples) for target in row.targets}
    return Measured(figures, {name: value for name, value in found.items() if value is not None})


def can_run(client: str) -> bool:
    """Tell on stderr why a client cannot."""
    missing = why_not(client)
    if missing:
        print(f"without {client}: {missing}", file=sys.stderr, flush=True)
    return not missing


def _work(row: Row, broker: Broker) -> dict[str, object]:
    return broker.of(row) | {
        "topic": f"bench-{row.name}-{uuid.uuid4().hex[:6]}",
        "partitions": row.partitions,
        "records": row.records,
        "size": row.size,
        "keyed": row.keyed,
        "headers": row.headers,
        "stored_batch": row.stored_batch,
        "idempotent": row.idempotent,
        "compression": row.compression,
        "seconds": row.seconds,
        "per_transaction": row.per_transaction,
        "batch_size": row.batch_size,
        "tasks": row.tasks,
        "per_commit": row.per_commit,
    }


def _topic(action: str, work: dict[str, object]) -> None:
    run_script(python_of(CONFLUENT), "topics.py", action, work)


def _sample(row: Row, client: str, work: dict[str, object]) -> Sample:
    own = work | {"records": row.count_for(client)}
    if row.workload == "end_to_end":
        # A reader from the beginning must find nothing of those before it.
        own["topic"] = f"{work['topic']}-{uuid.uuid4().hex[:6]}"
        _topic("create", own)
    target = {**own, "topic": f"{own['topic']}-{uuid.uuid4().hex[:6]}"}
    if client == OURS_UVLOOP:
        own["loop"] = "uvloop"
    has_target = row.workload in _WITH_TARGET
    if has_target:
        own["target"] = target["topic"]
        _topic("create", target)
    own_workloads = {OURS_ASSIGNED: row.assigned, CONFLUENT: row.confluent_workload}
    workload = own_workloads.get(client) or row.workload
    result, usage = run_client(client, workload, own)
    if own["topic"] != work["topic"]:
        _topic("remove", own)
    if has_target:
        _topic("remove", target)
    sample: Sample = {"cpu_seconds": usage.cpu_seconds, "rss_mib": usage.rss_mib}
    records = result.pop("records")
    if "seconds" in result:
        sample["rate"] = records / result.pop("seconds")
        sample["cpu"] = usage.cpu_seconds * 1e6 / records
    return sample | result


def _summary(row: Row, samples: list[Sample], ours: list[Sample] | None) -> dict[str, float]:
    summary = {name: statistics.median(s[name] for s in samples) for name in samples[0]}
    if ours:
        pairs = zip(samples, ours, strict=True)
        summary["ratio"] = statistics.median(s[row.metric] / o[row.metric] for s, o in pairs)
    return summary


def _tell(row: Row, client: str, sample: Sample) -> None:
    shown = "  ".join(f"{name} {value:.4g}" for name, value in sample.items())
    print(f"{row.name:18} {client:18} {shown}", file=sys.stderr, flush=True)
