"""Import path of aiokafka, kept as a shim: appending record batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import produce

__all__ = ["ProduceRequest"]


class ProduceRequest(
    Request,
    family=Family(
        produce.ProduceRequest,
        "transactional_id required_acks timeout topics(topic partitions(partition messages))",
        "topics(topic partitions(partition error_code offset timestamp log_start_offset"
        " record_errors(batch_index batch_index_error_message) error_message))"
        " throttle_time_ms",
        versions=(0, 1, 2, 3, 4, 5, 6, 7),
        others=(8,),
    ),
):
    """Append record batches: (topic, [(partition, bytes)])."""

    NEEDED = ("transactional_id",)

    def __init__(
        self,
        transactional_id: str | None,
        required_acks: int,
        timeout: int,
        topics: Iterable[tuple[str, list[tuple[int, bytes]]]],
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            required_acks=required_acks,
            timeout=timeout,
            topics=list(topics),
        )


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
