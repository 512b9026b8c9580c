"""Leader epochs that the metadata names though the leader has a later one. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka.errors import BrokerResponseError, FencedLeaderEpoch
from aiokafka.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from aiokafka.protocol.versions import BrokerVersions
    from aiokafka.structs import TopicPartition

__all__ = ["OldEpochs"]

_NO_EPOCH = -1
_FIRST_RELIABLE_METADATA = 9  # of Kafka 2.4
_PATIENCE = 2


class OldEpochs:
    """Epochs that leaders refuse as old ones.

    Usually the next metadata has the new epoch. But while a partition is reassigned, Kafka 2.1 to
    2.3 go on naming the epoch of before (KAFKA-9212): a leader asked with it refuses until the
    reassignment is over, which may take hours. So it is asked without any then.
    """

    def __init__(self, versions: Callable[[int], BrokerVersions | None]) -> None:
        self._versions = versions
        self._refused: dict[TopicPartition, tuple[int, int]] = {}

    def to_ask(self, tp: TopicPartition, epoch: int) -> int:
        """Return what to name to the leader of a partition: this epoch, or none if the leader goes
        on refusing it."""
        refused, times = self._refused.get(tp, (_NO_EPOCH, 0))
        return _NO_EPOCH if epoch == refused and times > _PATIENCE else epoch

    def note(
        self, node_id: int, tp: TopicPartition, epoch: int, error: type[BrokerResponseError]
    ) -> None:
        """Take note of what a broker answered when it was asked with an epoch."""
        if error is not FencedLeaderEpoch or not _is_told_late(self._versions(node_id)):
            return
        refused, times = self._refused.get(tp, (epoch, 0))
        self._refused[tp] = (epoch, times + 1 if refused == epoch else 1)


def _is_told_late(versions: BrokerVersions | None) -> bool:
    if versions is None:
        return False
    newest = versions.api_versions.get(MetadataRequest.API_KEY, (0, 0))[1]
    return newest < _FIRST_RELIABLE_METADATA
