"""Import path of aiokafka, kept as a shim: requests of transactional producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import produce, transactions

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "EndTxnRequest",
    "InitProducerIdRequest",
    "TxnOffsetCommitRequest",
]

_CODE = "throttle_time_ms error_code"
_CODES = "throttle_time_ms errors(topic partition_errors(partition error_code))"


class InitProducerIdRequest(
    Request,
    family=Family(
        produce.InitProducerIdRequest,
        "transactional_id transaction_timeout_ms",
        f"{_CODE} producer_id producer_epoch",
        versions=(0,),
    ),
):
    """Get a producer id."""

    def __init__(self, transactional_id: str | None, transaction_timeout_ms: int) -> None:
        super().__init__(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )


class AddPartitionsToTxnRequest(
    Request,
    family=Family(
        transactions.AddPartitionsToTxnRequest,
        "transactional_id producer_id producer_epoch topics(topic partitions)",
        _CODES,
        versions=(0,),
    ),
):
    """Add partitions to the transaction: (topic, [partition])."""

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topics: Iterable[tuple[str, list[int]]],
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=list(topics),
        )


class AddOffsetsToTxnRequest(
    Request,
    family=Family(
        transactions.AddOffsetsToTxnRequest,
        "transactional_id producer_id producer_epoch group_id",
        _CODE,
        versions=(0,),
    ),
):
    """Add the offsets of a group to the transaction."""

    def __init__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group_id,
        )


class EndTxnRequest(
    Request,
    family=Family(
        transactions.EndTxnRequest,
        "transactional_id producer_id producer_epoch transaction_result",
        _CODE,
        versions=(0,),
    ),
):
    """Commit or abort the transaction."""

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        transaction_result: bool,
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=transaction_result,
        )


class TxnOffsetCommitRequest(
    Request,
    family=Family(
        transactions.TxnOffsetCommitRequest,
        "transactional_id group_id producer_id producer_epoch"
        " topics(topic partitions(partition offset metadata))",
        _CODES,
        versions=(0,),
    ),
):
    """Commit offsets of a group in the transaction: (topic, [(partition, offset, metadata)])."""

    def __init__(
        self,
        transactional_id: str,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        topics: Iterable[tuple[str, list[tuple[int, int, str]]]],
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=list(topics),
        )


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
