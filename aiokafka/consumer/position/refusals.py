"""What the errors of several partitions say of all of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import TopicPartition

__all__ = ["common_refusal", "most_urgent"]


def common_refusal(
    refused: Mapping[TopicPartition, BrokerResponseError], wanted: Collection[TopicPartition]
) -> BrokerResponseError | None:
    """Return the error that stands for all of these partitions; None if some have another one, or
    none.

    Old brokers say of each partition what is wrong with the group or its coordinator. A topic that
    is denied is no reason to refuse those of another one, and a partition that is unknown says
    nothing of others.
    """
    for error in refused.values():
        if isinstance(error, NotCoordinatorForGroupError):
            return error
    reasons = {
        error.args if isinstance(error, TopicAuthorizationFailedError) else type(error)
        for error in refused.values()
    }
    reasons_of_all = reasons - {UnknownTopicOrPartitionError}
    is_common = len(reasons) == len(reasons_of_all) == 1 and len(refused) == len(set(wanted))
    return next(iter(refused.values())) if is_common else None


def most_urgent(errors: Iterable[KafkaError]) -> KafkaError:
    """Return the error that decides what follows from those of several partitions.

    1. What is refused for another reason than its topic or its metadata is refused to this member,
       or by this broker. Unheard for as long as a topic is denied, it would be so for ever.
    2. What no other attempt can change: it would be in vain for as long as the last kind lasts.
    3. What passes.
    """
    return min(errors, key=_rank)


def _rank(error: KafkaError) -> int:
    is_of_all = isinstance(error, (CommitFailedError, NotCoordinatorForGroupError))
    return 0 if is_of_all else 1 + error.retriable
