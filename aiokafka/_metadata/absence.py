"""Topics that an application uses and that no broker knows: said once, with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from aiokafka._metadata.discovery import MOST_ASKED
from aiokafka.errors import InvalidTopicError, UnknownTopicOrPartitionError, for_code

if TYPE_CHECKING:
    from aiokafka._log import SubjectLog
    from aiokafka._metadata.snapshot import ClusterMetadata

__all__ = ["AbsenceLog", "is_absent"]

_MISSING = UnknownTopicOrPartitionError.errno
_ADVICE = {
    _MISSING: "no broker knows it%s. The brokers may be creating it; if not, create it or check "
    "its name. The client keeps asking",
    InvalidTopicError.errno: "no topic can have this name",
}


class AbsenceLog:
    """Logs each topic that is missing, or may not be used, once; and once that it is there.

    A topic is missing when each broker has denied it, or `MOST_ASKED` of them: one may lag behind.
    Owns the error code that was logged of each such topic, and which brokers have denied it.
    """

    def __init__(self, log: SubjectLog) -> None:
        self._log = log
        self._logged: dict[str, int] = {}
        # One entry for each response, None for a bootstrap server: brokers that keep silent must
        # not put off the log.
        self._denials: dict[str, list[int | None]] = {}
        self._brokers = 1

    def look(
        self,
        cluster: ClusterMetadata,
        topics: Iterable[str],
        node_id: int | None,
        told_of: Set[str | None] | None,
    ) -> set[str]:
        """Log what a new snapshot of the metadata says of the topics in use. It is from the
        response of `node_id` about the topics `told_of`, None for all.

        Returns the topics that other brokers are to be asked for: too few have denied them so far.
        """
        absent = {name: cluster.topic_error(name) for name in topics if is_absent(cluster, name)}
        self._brokers = max(1, len(cluster.node_ids))
        denials, self._denials = self._denials, {}
        logged, self._logged = self._logged, {}
        open_questions = set()
        for name, code in absent.items():
            by = self._denials[name] = denials.get(name, [])
            is_open = code == _MISSING and len(by) < min(self._brokers, MOST_ASKED)
            if is_open and (told_of is None or name in told_of):
                by.append(node_id)
                is_open = len(by) < min(self._brokers, MOST_ASKED)
            if is_open:
                open_questions.add(name)
                continue
            self._logged[name] = code
            if logged.get(name) != code:
                advice = _ADVICE.get(code) or str(for_code(code)())
                if code == _MISSING:
                    advice %= self.brokers_asked(name)
                self._log.warning("Topic %r cannot be used: %s", name, advice, topic=name)
        for name in logged.keys() - absent.keys():
            # Not in use any more is not the same as being there.
            if cluster.known_partitions(name) is not None:
                self._log.info("Topic %r is there now", name)
        return open_questions

    def brokers_asked(self, topic: str) -> str:
        """Return how many brokers have denied a missing `topic`, in words; "" for others."""
        by = self._denials.get(topic)
        return f" (asked: {min(len({*by}), self._brokers)} of {self._brokers})" if by else ""


def is_absent(cluster: ClusterMetadata, topic: str) -> bool:
    """Tell a topic with an error that lasts from one that is being moved or was known before."""
    code = cluster.topic_error(topic)
    is_lasting = code == _MISSING or not for_code(code).retriable
    return bool(code) and is_lasting and cluster.known_partitions(topic) is None
