"""Requests that are refused, answered late, or answered in vain."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import errors
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import Action, Cut, Delay, Fail, Interception, RequestContext, Silence
from aiokafka.testing.script import Handler
from tests.simulation.commits import note_overtaken
from tests.simulation.faults.base import Fault
from tests.simulation.scenario import Draft

_UNKNOWN_TOPIC_OR_PARTITION = errors.UnknownTopicOrPartitionError.errno
_LEADER_NOT_AVAILABLE = errors.LeaderNotAvailableError.errno
_NOT_LEADER_OR_FOLLOWER = errors.NotLeaderForPartitionError.errno
_REQUEST_TIMED_OUT = errors.RequestTimedOutError.errno
_COORDINATOR_LOAD_IN_PROGRESS = errors.GroupLoadInProgressError.errno
_COORDINATOR_NOT_AVAILABLE = errors.GroupCoordinatorNotAvailableError.errno
_NOT_COORDINATOR = errors.NotCoordinatorForGroupError.errno
_NOT_ENOUGH_REPLICAS = errors.NotEnoughReplicasError.errno
_REBALANCE_IN_PROGRESS = errors.RebalanceInProgressError.errno
_CONCURRENT_TRANSACTIONS = errors.ConcurrentTransactions.errno
_KAFKA_STORAGE_ERROR = errors.KafkaStorageError.errno
_FETCH_SESSION_ID_NOT_FOUND = errors.FetchSessionIdNotFound.errno
_INVALID_FETCH_SESSION_EPOCH = errors.InvalidFetchSessionEpoch.errno
_FENCED_LEADER_EPOCH = errors.FencedLeaderEpoch.errno
_UNKNOWN_LEADER_EPOCH = errors.UnknownLeaderEpoch.errno
_OFFSET_NOT_AVAILABLE = errors.OffsetNotAvailable.errno
_UNSTABLE_OFFSET_COMMIT = errors.UnstableOffsetCommit.errno
_UNKNOWN_TOPIC_ID = errors.UnknownTopicId.errno

#: API key to what a broker may answer for a while, without effect, to a client that does no wrong.
RETRIABLE: dict[int, tuple[int, ...]] = {
    0: (_NOT_LEADER_OR_FOLLOWER, _LEADER_NOT_AVAILABLE, _NOT_ENOUGH_REPLICAS,
        _REQUEST_TIMED_OUT, _UNKNOWN_TOPIC_OR_PARTITION, _KAFKA_STORAGE_ERROR),
    1: (_NOT_LEADER_OR_FOLLOWER, _UNKNOWN_LEADER_EPOCH, _UNKNOWN_TOPIC_OR_PARTITION,
        _FETCH_SESSION_ID_NOT_FOUND, _INVALID_FETCH_SESSION_EPOCH, _FENCED_LEADER_EPOCH,
        _KAFKA_STORAGE_ERROR, _OFFSET_NOT_AVAILABLE, _UNKNOWN_TOPIC_ID),
    2: (_NOT_LEADER_OR_FOLLOWER, _UNKNOWN_LEADER_EPOCH, _LEADER_NOT_AVAILABLE,
        _FENCED_LEADER_EPOCH, _KAFKA_STORAGE_ERROR, _OFFSET_NOT_AVAILABLE),
    3: (_LEADER_NOT_AVAILABLE,),
    8: (_NOT_COORDINATOR, _COORDINATOR_NOT_AVAILABLE, _COORDINATOR_LOAD_IN_PROGRESS,
        _REQUEST_TIMED_OUT, _UNKNOWN_TOPIC_OR_PARTITION),
    9: (_NOT_COORDINATOR, _COORDINATOR_LOAD_IN_PROGRESS, _COORDINATOR_NOT_AVAILABLE,
        _UNSTABLE_OFFSET_COMMIT),
    10: (_COORDINATOR_NOT_AVAILABLE,),
    11: (_NOT_COORDINATOR, _COORDINATOR_NOT_AVAILABLE, _COORDINATOR_LOAD_IN_PROGRESS),
    12: (_NOT_COORDINATOR, _COORDINATOR_NOT_AVAILABLE, _REBALANCE_IN_PROGRESS),
    13: (_NOT_COORDINATOR, _COORDINATOR_NOT_AVAILABLE),
    14: (_NOT_COORDINATOR, _COORDINATOR_NOT_AVAILABLE, _REBALANCE_IN_PROGRESS),
    22: (_NOT_COORDINATOR, _COORDINATOR_LOAD_IN_PROGRESS, _CONCURRENT_TRANSACTIONS,
         _COORDINATOR_NOT_AVAILABLE),
    23: (_NOT_LEADER_OR_FOLLOWER, _FENCED_LEADER_EPOCH, _UNKNOWN_LEADER_EPOCH,
         _KAFKA_STORAGE_ERROR, _UNKNOWN_TOPIC_OR_PARTITION),
    24: (_NOT_COORDINATOR, _COORDINATOR_LOAD_IN_PROGRESS, _CONCURRENT_TRANSACTIONS,
         _UNKNOWN_TOPIC_OR_PARTITION, _COORDINATOR_NOT_AVAILABLE),
    25: (_NOT_COORDINATOR, _COORDINATOR_LOAD_IN_PROGRESS, _CONCURRENT_TRANSACTIONS,
         _COORDINATOR_NOT_AVAILABLE),
    26: (_NOT_COORDINATOR, _COORDINATOR_LOAD_IN_PROGRESS, _CONCURRENT_TRANSACTIONS,
         _COORDINATOR_NOT_AVAILABLE),
    28: (_NOT_COORDINATOR, _COORDINATOR_LOAD_IN_PROGRESS, _COORDINATOR_NOT_AVAILABLE,
         _UNKNOWN_TOPIC_OR_PARTITION),
    68: (_NOT_COORDINATOR, _COORDINATOR_NOT_AVAILABLE, _COORDINATOR_LOAD_IN_PROGRESS),
}  # fmt: skip
_APIS = tuple(RETRIABLE)
# Those whose repetition, after the first one had its effect, is worth most.
_WITH_EFFECT = (0, 0, 8, 11, 14, 22, 24, 25, 26, 26, 28, 68, 13, 1)


class _Scripted(Fault):
    """Answers some requests of an API otherwise."""

    _interception: Interception | None = None

    def _answer(self) -> Action | Handler:
        raise NotImplementedError

    async def begin(self) -> None:
        """Answer so from now on."""
        self._interception = self.world.cluster.intercept(
            self.arguments["api"], self._answer(), times=self.arguments["times"]
        )

    async def end(self) -> None:
        """Answer as always."""
        if self._interception is not None:
            if self._interception.hits:
                self.hit()
            self._interception.remove()


class Refused(_Scripted):
    """An error that a later try will not meet."""

    kind = "retriable error"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Of which API, which one, how often."""
        source = draft.random
        api = source.choice(_APIS)
        times = source.choice((1, 1, 2, 5, 20))
        return {"api": api, "error": source.choice(RETRIABLE[api]), "times": times}

    def _answer(self) -> Action:
        return Fail(self.arguments["error"])


class LostResponse(_Scripted):
    """The work is done, but nothing is heard of it: the connection breaks, or stays silent."""

    kind = "lost response"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Of which API, how."""
        source = draft.random
        how = source.choice(("cut", "silence"))
        handled = source.random() < 0.8
        times = source.choice((1, 1, 1, 3))
        return {"api": source.choice(_WITH_EFFECT), "how": how, "handled": handled, "times": times}

    def _answer(self) -> Action:
        handled = self.arguments["handled"]
        return Cut(handled) if self.arguments["how"] == "cut" else Silence(handled)


class LateResponse(_Scripted):
    """The broker sits on requests."""

    kind = "late response"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Of which API, how long."""
        source = draft.random
        seconds = source.choice((0.05, 0.5, 3.0, 15.0))
        return {"api": source.choice(_APIS), "seconds": seconds, "times": source.choice((1, 3, 10))}

    def _answer(self) -> Action | Handler:
        is_commit = self.arguments["api"] == OffsetCommitRequest.API_KEY
        return self._sit if is_commit else Delay(self.arguments["seconds"])

    async def _sit(self, request: Any, context: RequestContext) -> None:
        # The member may have given up the connection meanwhile, and committed by another one.
        await asyncio.sleep(self.arguments["seconds"])
        note_overtaken(self.world, request, context)


RESPONSE_FAULTS: dict[type[Fault], int] = {Refused: 12, LostResponse: 10, LateResponse: 5}
