"""OpenTelemetry and ddtrace: what is read belongs to the trace of what was sent."""

from __future__ import annotations

from pathlib import Path

from tests.dependents.running import Event, Program, committed, running
from tests.kafka.fixtures import Kafka


async def spans_of(environment: str, kafka: Kafka, topic: str, log: Path) -> list[Event]:
    program = f"{environment}_trace.py"
    variables = {
        "DD_TRACE_STARTUP_LOGS": "false",
        "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
        "DD_KAFKA_PROPAGATION_ENABLED": "true",
    }
    arguments = (kafka.bootstrap_servers, topic)
    async with running(environment, program, *arguments, log=log, **variables) as traced:
        code = await traced.end()
    assert code == 0, log
    check_records(traced)
    return traced.of("span")


def check_records(traced: Program) -> None:
    """The records arrive, with the tracer's headers beside the program's own."""
    (headers,) = traced.of("headers")
    assert len(set(headers["names"]) - {"mine"}) >= 1
    (many,) = traced.of("many")
    assert many["records"] == 1


def named(spans: list[Event], name: str) -> list[Event]:
    return [span for span in spans if span["name"] == name]


async def test_opentelemetry(kafka: Kafka, topic: str, log: Path) -> None:
    spans = await spans_of("opentelemetry", kafka, topic, log)
    (work,) = named(spans, "work")
    sent = named(spans, f"{topic} send")
    assert len(sent) == 2
    for span in sent:
        assert span["parent"] == work["id"]
        assert span["attributes"]["messaging.client.id"] == "me"
        assert kafka.bootstrap_servers in str(span["attributes"])
        assert span["attributes"]["messaging.destination.partition.id"] == "0"
    received = named(spans, f"{topic} receive")
    # One of `getone`, and of `getmany` one per record, per topic and for the call.
    assert {span["id"] for span in sent} <= {span["parent"] for span in received}
    assert len(received) == 4
    assert {s["attributes"].get("messaging.consumer.group.name") for s in received} == {
        f"{topic}-group"
    }


async def test_ddtrace(kafka: Kafka, topic: str, log: Path) -> None:
    spans = await spans_of("ddtrace", kafka, topic, log)
    (work,) = named(spans, "work")
    sent = named(spans, "kafka.produce")
    assert len(sent) == 2
    for span in sent:
        assert (span["parent"], span["trace"]) == (work["id"], work["trace"])
        assert span["tags"]["messaging.kafka.bootstrap.servers"] == kafka.bootstrap_servers
        assert span["tags"]["kafka.cluster_id"]
    read = named(spans, "kafka.consume")
    assert len(read) == 2
    assert {span["tags"]["kafka.group_id"] for span in read} == {f"{topic}-group"}
    # The first is of `getone`; `getmany` has a span for all records, and so no parent.
    assert sorted((span["parent"] or 0, span["trace"] == work["trace"]) for span in read) == [
        (0, False),
        (sent[0]["id"], True),
    ]
    assert await committed(kafka.bootstrap_servers, f"{topic}-group", topic) == 2
