"""Durations in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.otel import ConsumerTelemetry, observe_clients
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.spans import Seen


def test_what_takes_simulated_time_is_measured_so(watch: Callable[..., Seen]) -> None:
    seen = watch()
    telemetry = ConsumerTelemetry(**seen.providers)
    record: ConsumerRecord[bytes, bytes] = ConsumerRecord(
        "orders", 0, 0, 0, 0, None, b"x", None, 0, 1, ()
    )

    async def main(_: Simulation) -> None:
        with telemetry.process(record):
            await asyncio.sleep(7200)

    simulate(main, limit_s=10_000)
    (point,) = seen.points("messaging.process.duration")
    assert 7200 <= point.sum < 7201


def test_each_look_at_clients_is_of_its_moment(watch: Callable[..., Seen]) -> None:
    seen = watch()

    async def main(simulation: Simulation) -> list[int]:
        found = []
        async with (
            simulation.cluster(brokers=1) as cluster,
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        ):
            observe_clients(producer, meter_provider=seen.metering)
            for _ in range(3):
                await producer.send_and_wait("orders", b"x")
                await asyncio.sleep(60)
                (point,) = seen.points("kafka.producer.record_send_total")
                found.append(point.value)
        return found

    assert simulate(main) == [1, 2, 3]
