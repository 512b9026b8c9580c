"""Incremental fetch sessions (KIP-227): tell a broker only what changed since the last fetch.
Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from aiokafka import errors
from aiokafka._reading import FetchSpec, fetch_topics, partitions_in
from aiokafka.protocol.messages.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import TopicPartition

__all__ = ["FetchSession"]

_NO_SESSION = 0
_FIRST_EPOCH = 0
_FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1


class FetchSession:
    """One broker's memory of what we fetch from it.

    Owns the session's id, epoch and the partitions the broker was told about, in the broker's
    order. A full request (epoch 0) opens or replaces a session; each later one carries changes
    only. Whatever goes wrong, the next request is a full one. Brokers before 1.1 and brokers out of
    session slots answer with id 0: then every request is full.
    """

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _FIRST_EPOCH
        self._known: dict[TopicPartition, FetchSpec] = {}
        self._topic_names: dict[bytes, str] = {}
        self._with_ids = False

    @property
    def is_full(self) -> bool:
        """Whether the next request has to name every partition."""
        return self.epoch == _FIRST_EPOCH

    @property
    def max_version(self) -> int | None:
        """Highest Fetch version for the request built last; None when any will do."""
        return None if self._with_ids else LAST_VERSION_WITH_NAMES

    def partitions_in(
        self, response: FetchResponse
    ) -> Iterator[tuple[TopicPartition, PartitionData]]:
        """Yield each partition of a response; topics are known by the ids we asked with."""
        return partitions_in(response, self._topic_names)

    def build(
        self, wanted: Mapping[TopicPartition, FetchSpec], changed: Iterable[TopicPartition]
    ) -> FetchRequest:
        """Return the next request, with its session fields, topics and forgotten topics.

        Args:
            wanted: Every partition to fetch.
            changed: Those that may differ from the last request. Others are not looked at unless
                the request is full.
        """
        if self._must_restart(wanted, changed):
            self.restart()
        if self.is_full:
            return self._build_full(wanted)
        return self._build_incremental(wanted, changed)

    def accept(self, error_code: int, session_id: int) -> bool:
        """Take in a response; False if its error makes its partitions meaningless."""
        if error_code:
            self._fail(error_code)
            return False
        if session_id == _NO_SESSION:
            # Either no sessions here, or ours was evicted with this answer.
            self._reset(_NO_SESSION)
        else:
            self.session_id = session_id
            # Not to 0 or below: those mean a full request and the end of the session.
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
        return True

    def check_full(self, answered: Container[TopicPartition]) -> None:
        """Send everything next time if a response to that was not about all of it, but about the
        partitions `answered`: the session of the broker may lack the others, and later requests say
        nothing of them."""
        if not all(tp in answered for tp in self._known):
            self.restart()

    def restart(self) -> None:
        """Send everything next time, in place of the session the broker may still have."""
        # By its id the broker drops the old session. Without, that would keep its slot, which
        # another client may need, until it is the oldest.
        self._reset(self.session_id)

    def closing_request(self) -> FetchRequest | None:
        """Return a request that frees the broker's session slot; None if there is no session."""
        if self.session_id == _NO_SESSION:
            return None
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self.session_id,
            session_epoch=_FINAL_EPOCH,
            topics=[],
        )
        self._reset(_NO_SESSION)
        return request

    def _reset(self, session_id: int) -> None:
        self.session_id = session_id
        self.epoch = _FIRST_EPOCH
        self._known.clear()

    def _fail(self, error_code: int) -> None:
        # The session is there, only our count of it is wrong: its id stays, so that the next
        # request replaces it. After any other error there is nothing to replace.
        kept = errors.InvalidFetchSessionEpoch.errno
        self._reset(self.session_id if error_code == kept else _NO_SESSION)

    def _must_restart(
        self, wanted: Mapping[TopicPartition, FetchSpec], changed: Iterable[TopicPartition]
    ) -> bool:
        """Return whether the session has to be replaced: one names topics either by id or by name,
        and a topic by one id only.
        """
        if self.is_full:
            return False
        for tp in changed:
            spec = wanted.get(tp)
            if spec is None:
                continue
            if (spec.topic_id != ZERO_UUID) is not self._with_ids:
                return True
            known = self._known.get(tp)
            if known is not None and known.topic_id != spec.topic_id:
                return True
        return False

    def _build_full(self, wanted: Mapping[TopicPartition, FetchSpec]) -> FetchRequest:
        self._known = dict(wanted)
        self._topic_names = {spec.topic_id: tp.topic for tp, spec in wanted.items()}
        self._with_ids = ZERO_UUID not in self._topic_names
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self.session_id,
            session_epoch=_FIRST_EPOCH,
            topics=fetch_topics(wanted.items()),
        )

    def _build_incremental(
        self, wanted: Mapping[TopicPartition, FetchSpec], changed: Iterable[TopicPartition]
    ) -> FetchRequest:
        news: list[tuple[TopicPartition, FetchSpec]] = []
        gone: list[tuple[TopicPartition, FetchSpec]] = []
        known = self._known
        for tp in changed:
            spec = wanted.get(tp)
            if spec is None:
                # Only what the broker knows of: a partition may have come and gone since the last
                # request.
                old = known.pop(tp, None)
                if old is not None:
                    gone.append((tp, old))
            # Changed and changed back is no news.
            elif known.get(tp) != spec:
                known[tp] = spec
                self._topic_names[spec.topic_id] = tp.topic
                news.append((tp, spec))
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=fetch_topics(news),
            forgotten_topics_data=self._forgotten(gone),
        )

    def _forgotten(
        self, entries: Iterable[tuple[TopicPartition, FetchSpec]]
    ) -> list[ForgottenTopic]:
        topics: dict[str, ForgottenTopic] = {}
        for tp, spec in entries:
            topic = topics.get(tp.topic)
            if topic is None:
                topic = topics[tp.topic] = ForgottenTopic(
                    topic=tp.topic, topic_id=spec.topic_id, partitions=[]
                )
            topic.partitions.append(tp.partition)
        return list(topics.values())
