"""Topics that an application uses and that no broker knows: said once, with what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka.errors import InvalidTopicError, UnknownTopicOrPartitionError, for_code

if TYPE_CHECKING:
    from aiokafka._log import SubjectLog
    from aiokafka._metadata.snapshot import ClusterMetadata

__all__ = ["AbsenceLog", "is_absent"]

_MISSING = UnknownTopicOrPartitionError.errno
_ADVICE = {
    _MISSING: "no broker knows it. The brokers may be creating it; if not, create it or check its "
    "name. The client keeps asking",
    InvalidTopicError.errno: "no topic can have this name",
}


class AbsenceLog:
    """Logs each topic that is missing, or may not be used, once; and once that it is there.

    Owns the error code that was logged of each such topic.
    """

    def __init__(self, log: SubjectLog) -> None:
        self._log = log
        self._logged: dict[str, int] = {}

    def look(self, cluster: ClusterMetadata, topics: Iterable[str]) -> None:
        """Log what a new snapshot of the metadata says of the topics in use."""
        absent = {name: cluster.topic_error(name) for name in topics if is_absent(cluster, name)}
        for name, code in absent.items():
            if self._logged.get(name) != code:
                advice = _ADVICE.get(code) or str(for_code(code)())
                self._log.warning("Topic %r cannot be used: %s", name, advice, topic=name)
        for name in self._logged.keys() - absent.keys():
            # Not in use any more is not the same as being there.
            if cluster.known_partitions(name) is not None:
                self._log.info("Topic %r is there now", name)
        self._logged = absent


def is_absent(cluster: ClusterMetadata, topic: str) -> bool:
    """Tell a topic with an error that lasts from one that is being moved or was known before."""
    code = cluster.topic_error(topic)
    is_lasting = code == _MISSING or not for_code(code).retriable
    return bool(code) and is_lasting and cluster.known_partitions(topic) is None
