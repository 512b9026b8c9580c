"""What the error of a refused record says."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.errors import InvalidRecord, KafkaTimeoutError
from aiokafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka.protocol.messages.transactions import AddPartitionsToTxnRequest
from aiokafka.testing import Edit, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import (
    TOPIC,
    new_producer,
    numbers,
    results,
    send_all,
    transactional,
)


def blame(number: int, of_record: str | None, of_batch: str | None) -> Edit:
    """Answer that the broker does not take a record in this place of the batch."""

    def edit(response: ProduceResponse) -> None:
        (part,) = response.responses[0].partition_responses
        part.error_code = InvalidRecord.errno
        part.error_message = of_batch
        part.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=of_record)
        ]

    return Edit(edit)


@pytest.mark.parametrize(
    ("of_record", "of_batch", "told"),
    [
        ("no key", "some are wrong", "no key"),
        (None, "some are wrong", "some are wrong"),
        ("", "some are wrong", "some are wrong"),
        (None, None, "refused"),
    ],
)
async def test_there_is_always_a_reason(
    cluster: FakeCluster, of_record: str | None, of_batch: str | None, told: str
) -> None:
    cluster.intercept(ProduceRequest, blame(1, of_record, of_batch), times=1)
    async with new_producer(cluster) as producer:
        found: list[Any] = await results(await send_all(producer, numbers(3)))
    assert [type(one) for one in found] == [InvalidRecord] * 3
    assert found[1].args == (f"{TOPIC}-0: {told}",)
    assert "refused other records" in str(found[0])
    assert [one.record_index for one in found] == [None, 1, None]


@pytest.mark.parametrize("told", ["no key", None])
async def test_a_batch_that_the_user_made_names_the_record(
    cluster: FakeCluster, told: str | None
) -> None:
    cluster.intercept(ProduceRequest, blame(2, told, "some are wrong"), times=1)
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        for value in numbers(4):
            batch.append(key=None, value=value, timestamp=None)
        with pytest.raises(InvalidRecord) as caught:
            await (await producer.send_batch(batch, TOPIC, partition=0))
    reason = told or "some are wrong"
    assert caught.value.args == (f"{TOPIC}-0: record 2 of the batch: {reason}",)
    assert caught.value.record_index == 2


def test_a_record_that_waited_for_the_coordinator_says_so() -> None:
    """Not that its leader cannot be reached, which would have taken it."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(brokers=2, as_version="3.9") as cluster:
            await cluster.create_topic(TOPIC)
            cluster.move_leader((TOPIC, 0), 0)
            cluster.move_coordinator("transaction", "worker", 1)
            cluster.intercept(AddPartitionsToTxnRequest, Silence())
            times = {"delivery_timeout_ms": 3000, "request_timeout_ms": 2000}
            async with transactional(cluster, **times) as producer:
                await producer.begin_transaction()
                with pytest.raises(KafkaTimeoutError, match="waits for the coordinator of the tra"):
                    await producer.send_and_wait(TOPIC, b"v", partition=0)
                await producer.stop(0)

    simulate(main)
