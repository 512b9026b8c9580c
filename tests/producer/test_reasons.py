"""What the error of a refused record says."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.errors import InvalidRecord
from aiokafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka.testing import Edit, FakeCluster
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all


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
    def blame(response: ProduceResponse) -> None:
        (part,) = response.responses[0].partition_responses
        part.error_code = InvalidRecord.errno
        part.error_message = of_batch
        part.record_errors = [
            BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message=of_record)
        ]

    cluster.intercept(ProduceRequest, Edit(blame), times=1)
    async with new_producer(cluster) as producer:
        found: list[Any] = await results(await send_all(producer, numbers(3)))
    assert [type(one) for one in found] == [InvalidRecord] * 3
    assert found[1].args == (f"{TOPIC}-0: {told}",)
    assert "refused other records" in str(found[0])
