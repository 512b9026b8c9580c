"""What interrupts the program, as Ctrl-C does, while a callback of the event loop runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka.errors import KafkaError
from aiokafka.metrics import ProducerMetricsCollector
from aiokafka.testing import FakeCluster
from tests.support.producers import TOPIC, new_producer


class WhileSending(ProducerMetricsCollector):
    def on_batch_dispatched(self, **facts: Any) -> None:
        raise KeyboardInterrupt


class WhileSettling(ProducerMetricsCollector):
    def on_batch_completed(self, **facts: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("collector", [WhileSending, WhileSettling])
def test_the_program_hears_of_it_and_no_call_waits_for_ever(
    collector: type[ProducerMetricsCollector],
) -> None:
    outcomes: list[BaseException] = []

    async def main() -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            producer = new_producer(cluster, metrics_collector=collector())
            await producer.start()
            try:
                await producer.send_and_wait(TOPIC, b"value", partition=0)
            except BaseException as error:
                outcomes.append(error)
                raise
            finally:
                await producer.stop(timeout=0)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    (outcome,) = outcomes
    assert isinstance(outcome, (KafkaError, asyncio.CancelledError))
