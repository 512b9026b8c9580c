"""Which partitions a coordinator has added to a transaction. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Set

from aiokafka.errors import (
    BrokerResponseError,
    KafkaProtocolError,
    OperationNotAttempted,
    ProducerFenced,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.producer.sending.producer_id import check
from aiokafka.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from aiokafka.structs import TopicPartition

__all__ = ["MOST_UNKNOWN", "Remaining", "check_added", "check_named", "topics_to_add"]

MOST_UNKNOWN = 5
"""The metadata of a coordinator may lack a new partition for a while. One that it does not know so
many times in a row does not exist, or does not exist any more."""


class Remaining:
    """Partitions to add again, of which some may be gone, or not ours to write any more.

    Owns: those that were neither added nor refused so far, in however many requests and calls.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = set(partitions)
        self._unknown = 0
        """How many times in a row the coordinator did not know some of them."""

    def check_response(self, response: AddPartitionsToTxnResponse) -> None:
        """Take out what was added, or else what was refused.

        Raises an error that a retry may mend, and ProducerFenced.
        """
        try:
            check_added(response, self.partitions)
        except UnknownTopicOrPartitionError:
            self._unknown += 1
            if self._unknown < MOST_UNKNOWN:
                raise
            self._drop_refused(response)
        except BrokerResponseError as error:
            if error.retriable or isinstance(error, ProducerFenced):
                raise
            self._drop_refused(response)
        else:
            self.partitions.clear()

    def _drop_refused(self, response: AddPartitionsToTxnResponse) -> None:
        self._unknown = 0
        telling, _ = _telling_code(response)
        self.partitions -= {partition for partition, code in _codes(response) if code == telling}


def check_added(response: AddPartitionsToTxnResponse, wanted: Set[TopicPartition]) -> None:
    """Raise the error that decides, unless `wanted` were added."""
    check(*_telling_code(response))
    check_named(wanted, {partition for partition, _ in _codes(response)}, "AddPartitionsToTxn")


def check_named(wanted: Set[TopicPartition], named: Set[TopicPartition], what: str) -> None:
    """Raise KafkaProtocolError, which is retried, for a response without a word about a partition.

    If it were taken for added, its records could stay out of the transaction; and its offsets, if
    they were taken for stored, would be lost.
    """
    missing = wanted - named
    if missing:
        topic, number = min(missing)
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise KafkaProtocolError(f"{what}: no word about {topic}-{number}{more} in the response")


def topics_to_add(partitions: Set[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    """Return partitions in the form of a request."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return [AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()]


def _codes(response: AddPartitionsToTxnResponse) -> list[tuple[TopicPartition, int]]:
    return [
        (TopicPartition(topic.name, result.partition_index), result.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]


def _telling_code(response: AddPartitionsToTxnResponse) -> tuple[int, str]:
    """Return the code that decides, and the partition that it is about; (0, "") without an error.

    If one partition is refused, none is added, and the others are only "not attempted". An error
    that a retry does not mend goes before those that it may.
    """
    found: list[tuple[int, int, str]] = []
    for (topic, number), code in _codes(response):
        if code:
            rank = 2 if code == OperationNotAttempted.errno else int(for_code(code).retriable)
            found.append((rank, code, f"{topic}-{number}: not in the transaction"))
    if not found:
        return 0, ""
    _, code, where = min(found, key=lambda entry: entry[0])
    return code, where
