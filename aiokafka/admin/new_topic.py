"""`NewTopic`, the description of a topic to create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from aiokafka.errors import IllegalArgumentError

__all__ = ["NewTopic"]

K = TypeVar("K")
V = TypeVar("V")


class NewTopic:
    """A topic to create, defined by its numbers of partitions and replicas, or by the broker ids of
    the replicas of each partition.

    Raises IllegalArgumentError unless either both numbers or `replica_assignments` are given.

    Args:
        name: name of the topic.
        num_partitions: number of partitions; None for the broker's default (KIP-464, Kafka 2.4), -1
            with `replica_assignments`.
        replication_factor: number of replicas of each partition; None for the broker's default, -1
            with `replica_assignments`.
        replica_assignments: by partition, the broker ids of its replicas, the preferred leader
            first.
        topic_configs: settings of the topic, such as `{"retention.ms": "3600000"}`.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int | None,
        replication_factor: int | None,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, str | float | None] | None = None,
    ) -> None:
        if (num_partitions == -1 or replication_factor == -1) == (replica_assignments is None):
            raise IllegalArgumentError(
                f"NewTopic({name!r}): give num_partitions and replication_factor, or both as -1 "
                "together with replica_assignments; None takes the broker's default"
            )
        self.name = name
        self.num_partitions = -1 if num_partitions is None else num_partitions
        self.replication_factor = -1 if replication_factor is None else replication_factor
        self.replica_assignments = _as_dict("replica_assignments", replica_assignments)
        self.topic_configs = _as_dict("topic_configs", topic_configs)

    def __repr__(self) -> str:
        return (
            f"NewTopic(name={self.name!r}, num_partitions={self.num_partitions}, "
            f"replication_factor={self.replication_factor}, "
            f"replica_assignments={self.replica_assignments}, topic_configs={self.topic_configs})"
        )


def _as_dict(argument: str, values: Mapping[K, V] | None) -> dict[K, V]:
    try:
        return dict(values or {})
    except (TypeError, ValueError):
        raise TypeError(f"{argument}: must be a dict, not {type(values).__name__}") from None
