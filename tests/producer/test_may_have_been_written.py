"""`may_have_been_written` of delivery errors, compared with what is in the log."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.errors import (
    InvalidRecord,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Cut, Fail, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, results, send_all, values

LOST = Cut(handled=True)
REFUSED = Fail(TopicAuthorizationFailedError)
SHORT = {"delivery_timeout_ms": 700, "request_timeout_ms": 500}


@pytest.mark.parametrize(
    ("attempts", "may_be_written", "is_written"),
    [
        pytest.param([REFUSED], False, False, id="refused"),
        pytest.param([Fail(NotEnoughReplicasError)], False, False, id="refused until the timeout"),
        pytest.param([LOST], True, True, id="written, never a response"),
        pytest.param([Cut()], True, False, id="not written, never a response"),
        pytest.param([Silence()], True, False, id="in flight at the timeout"),
        pytest.param([LOST, REFUSED], True, True, id="written, then refused"),
        pytest.param([Cut(), REFUSED], True, False, id="lost, then refused"),
        pytest.param([LOST, Fail(MessageSizeTooLargeError)], True, True, id="then too large"),
        pytest.param([Cut(), Fail(InvalidRecord)], False, False, id="refused at any attempt"),
    ],
)
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_failed_delivery(
    attempts: list[Any], may_be_written: bool, is_written: bool, idempotent: bool
) -> None:
    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            options = {**SHORT, "enable_idempotence": idempotent, "acks": "all"}
            async with new_producer(cluster, **options) as producer:
                left = list(attempts)

                def answer(request: ProduceRequest, context: object) -> Any:
                    return left.pop(0) if len(left) > 1 else left[0]

                with cluster.intercept(ProduceRequest, answer):
                    (failure,) = await results(await send_all(producer, [b"value"]))
            assert isinstance(failure, KafkaError)
            assert failure.may_have_been_written is may_be_written
            assert (b"value" in values(cluster)) is is_written

    simulate(main)


def test_records_that_were_never_sent() -> None:
    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, **SHORT) as producer:
                await results(await send_all(producer, [b"first"]))
                await cluster.stop()
                # The producer notices that its connection is closed.
                assert not await producer.client.force_metadata_update()
                (failure,) = await results(await send_all(producer, [b"value"]))
                assert isinstance(failure, KafkaError)
                assert failure.may_have_been_written is False
            assert values(cluster) == [b"first"]

    simulate(main)


def test_a_batch_of_the_user() -> None:
    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, acks=1, **SHORT) as producer:
                batch = producer.create_batch()
                batch.append(key=None, value=b"value", timestamp=None)
                with cluster.intercept(ProduceRequest, LOST):
                    future = await producer.send_batch(batch, TOPIC, partition=0)
                    (failure,) = await results([future])
            assert isinstance(failure, KafkaError) and failure.may_have_been_written

    simulate(main)


def test_other_errors_do_not_say() -> None:
    assert KafkaConnectionError("no broker").may_have_been_written is None
