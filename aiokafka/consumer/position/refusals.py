"""What the errors of several partitions say of all of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokafka.errors import BrokerResponseError, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition

__all__ = ["common_refusal"]


def common_refusal(
    refused: Mapping[TopicPartition, BrokerResponseError], wanted: Collection[TopicPartition]
) -> BrokerResponseError | None:
    """Return the error that stands for all of these partitions; None if some have another one, or
    none.

    Old brokers say of each partition what is wrong with the group or its coordinator. A topic that
    is denied is no reason to refuse those of another one.
    """
    reasons = {
        error.args if isinstance(error, TopicAuthorizationFailedError) else type(error)
        for error in refused.values()
    }
    is_common = len(reasons) == 1 and len(refused) == len(set(wanted))
    return next(iter(refused.values())) if is_common else None
