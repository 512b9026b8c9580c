"""Faults that only scenarios with an aim have: they last, or need a cluster of a certain kind."""

from __future__ import annotations

from typing import Any

from aiokafka import errors
from aiokafka.protocol.messages.metadata import ApiVersionsRequest
from aiokafka.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from aiokafka.testing import Cut, Edit, Fail, Interception, RequestContext
from tests.simulation.faults.base import Fault, draw_broker, draw_partition
from tests.simulation.faults.responses import RETRIABLE
from tests.simulation.scenario import Draft
from tests.simulation.world import USER

_OPERATION_NOT_ATTEMPTED = 55
# The first version of OffsetFetch that may be answered so.
_FIRST_UNSURE = 7


class SteadyError(Fault):
    """Every request of an API is refused for seconds: what asks again has to take its time."""

    kind = "steady error"
    _interception: Interception | None = None
    _since = 0.0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Of which API, which error."""
        api = draft.random.choice(tuple(RETRIABLE))
        return {"api": api, "error": draft.random.choice(RETRIABLE[api])}

    async def begin(self) -> None:
        """Refuse from now on."""
        api = self.arguments["api"]
        self._interception = self.world.cluster.intercept(api, Fail(self.arguments["error"]))
        self._since = self.world.now

    async def end(self) -> None:
        """Answer as always."""
        if self._interception is not None:
            if self._interception.hits:
                self.hit()
            self._interception.remove()
        self.world.refusing.append((self.arguments["api"], self._since, self.world.now))


class HangingUp(Fault):
    """A broker accepts connections and closes them at their first request, or the first after
    the greeting.
    """

    kind = "hanging up"
    _interception: Interception | None = None
    _since = 0.0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker."""
        place = draw_broker(draft)
        return None if place is None else place | {"greets": draft.random.random() < 0.5}

    async def begin(self) -> None:
        """Hang up."""
        broker = self.arguments["broker"]
        self._interception = self.world.cluster.intercept(None, self._answer, broker=broker)
        self.world.cluster.drop_connections(broker)
        self._since = self.world.now
        self.hit()

    def _answer(self, _: Any, context: RequestContext) -> Cut | None:
        is_greeting = context.api_key == ApiVersionsRequest.API_KEY
        return None if is_greeting and self.arguments.get("greets") else Cut()

    async def end(self) -> None:
        """Serve again."""
        if self._interception is not None:
            self._interception.remove()
        if not self.arguments.get("greets"):
            self.world.unreachable.append((self._since, self.world.now))


class SmallerLimit(Fault):
    """A topic takes smaller batches only, from one moment to the next."""

    kind = "smaller limit"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Of which topic, how small."""
        place = draw_partition(draft)
        return None if place is None else place | {"limit": draft.random.choice((200, 400))}

    def _set(self, limit: str) -> None:
        topic = self.world.cluster.state.topics.get(self.arguments["topic"])
        if topic is not None:
            topic.config["max.message.bytes"] = limit
            self.hit()

    async def begin(self) -> None:
        """Lower it."""
        self._set(str(self.arguments["limit"]))

    async def end(self) -> None:
        """As before."""
        plan = self.world.scenario.topic(self.arguments["topic"])
        self._set(plan.config.get("max.message.bytes", "1048588"))


class RefusedLogins(Fault):
    """No client can log in, as while a password is changed; connections break, or end when a login
    is to be repeated.
    """

    kind = "refused logins"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Only where there are logins."""
        return {"drops": draft.random.random() < 0.5} if draft.cluster.sasl else None

    async def begin(self) -> None:
        """Know no password any more."""
        security = self.world.security
        if security is not None:
            security.users.clear()
            if self.arguments["drops"]:
                self.world.cluster.drop_connections()
            self.hit()

    async def end(self) -> None:
        """Know it again."""
        security = self.world.security
        if security is not None:
            security.users.update(USER)


class OldNews(Fault):
    """A leader sends producers away to one that led before, again and again."""

    kind = "old news"
    _interception: Interception | None = None
    _since = 0.0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Of which partition, to which broker."""
        place = draw_partition(draft)
        return None if place is None else place | draw_broker(draft)

    async def begin(self) -> None:
        """Tell them so."""
        self._interception = self.world.cluster.intercept(0, Edit(self._change))
        self._since = self.world.now

    def _change(self, response: Any) -> None:
        state = self.world.cluster.state
        broker = self.arguments["broker"]
        for topic in response.responses:
            for part in topic.partition_responses:
                if part.error_code:
                    continue
                part.error_code = errors.NotLeaderForPartitionError.errno
                # Not its fields: where the response names no leader it is the default of all.
                part.current_leader = LeaderIdAndEpoch(leader_id=broker, leader_epoch=0)
                self.hit()
        node = state.nodes[broker]
        endpoint = NodeEndpoint(node_id=broker, host=node.host, port=node.port, rack=None)
        response.node_endpoints = [endpoint]

    async def end(self) -> None:
        """As always."""
        if self._interception is not None:
            self._interception.remove()
        self.world.refusing.append((0, self._since, self.world.now))


class WrittenAllTheSame(Fault):
    """Some batches are written, but answered as if too few replicas had them."""

    kind = "written all the same"
    _interception: Interception | None = None

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which code, of how many the first."""
        codes = (
            errors.NotEnoughReplicasAfterAppendError.errno,
            errors.RequestTimedOutError.errno,
            errors.NotLeaderForPartitionError.errno,
        )
        return {"code": draft.random.choice(codes), "every": draft.random.choice((2, 3, 5))}

    async def begin(self) -> None:
        """Answer so from now on."""
        self._interception = self.world.cluster.intercept(0, Edit(self._change))
        self._count = 0

    def _change(self, response: Any) -> None:
        self._count += 1
        if self._count % self.arguments["every"] != 1:
            return
        for topic in response.responses:
            for part in topic.partition_responses:
                if not part.error_code:
                    part.error_code = self.arguments["code"]  # with the offset, as from brokers
                    self.hit()

    async def end(self) -> None:
        """As always."""
        if self._interception is not None:
            self._interception.remove()


class UnknownReplica(Fault):
    """Leaders send readers to a replica on a broker that is not known (KIP-392)."""

    kind = "unknown replica"
    _interception: Interception | None = None
    _since = 0.0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Only where brokers stand somewhere."""
        return {} if draft.cluster.racks else None

    async def begin(self) -> None:
        """Send them there."""
        self._interception = self.world.cluster.intercept(1, Edit(self._change))
        self._since = self.world.now

    def _change(self, response: Any) -> None:
        for topic in response.responses:
            for part in topic.partitions:
                if part.preferred_read_replica >= 0:
                    part.preferred_read_replica = 77
                    self.hit()

    async def end(self) -> None:
        """As always."""
        if self._interception is not None:
            self._interception.remove()
        self.world.sending_away.append((self._since, self.world.now))


class KnownBatch(Fault):
    """Batches are answered as those that a broker has had, without their place."""

    kind = "known batch"
    _interception: Interception | None = None

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """No choice."""
        return {}

    async def begin(self) -> None:
        """Answer so from now on."""
        self._interception = self.world.cluster.intercept(0, Edit(self._change))

    def _change(self, response: Any) -> None:
        for topic in response.responses:
            for part in topic.partition_responses:
                if not part.error_code:
                    part.error_code, part.base_offset = errors.DuplicateSequenceNumber.errno, -1
                    self.hit()

    async def end(self) -> None:
        """As always."""
        if self._interception is not None:
            self._interception.remove()


class MixedCodes(Fault):
    """AddPartitionsToTxn is answered with another code for each partition: one that passes by
    itself, and for the others that nothing was tried.
    """

    kind = "mixed codes"
    _interception: Interception | None = None

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which code, at which place, how often."""
        source = draft.random
        code = source.choice(
            (errors.ConcurrentTransactions.errno, errors.UnknownTopicOrPartitionError.errno)
        )
        return {"code": code, "index": source.randrange(4), "times": source.choice((1, 2))}

    async def begin(self) -> None:
        """Answer so from now on."""
        self._interception = self.world.cluster.intercept(24, Edit(self._change))

    def _change(self, response: Any) -> None:
        results = [r for topic in response.results_by_topic_v3_and_below for r in
                   topic.results_by_partition]  # fmt: skip
        if len(results) < 2 or not self.arguments["times"]:
            return
        self.arguments["times"] -= 1
        guilty = self.arguments["index"] % len(results)
        for index, result in enumerate(results):
            is_guilty = index == guilty
            code = self.arguments["code"] if is_guilty else _OPERATION_NOT_ATTEMPTED
            result.partition_error_code = code
        self.hit()

    async def end(self) -> None:
        """Answer as always."""
        if self._interception is not None:
            self._interception.remove()


class UnsureOffsets(Fault):
    """Partitions are answered with an error where a committed offset was asked for, as while a
    transaction may still change it (KIP-447).
    """

    kind = "unsure offsets"
    _interception: Interception | None = None

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """How often."""
        return {"times": draft.random.choice((1, 2, 4))}

    async def begin(self) -> None:
        """Answer so from now on."""
        self._interception = self.world.cluster.intercept(9, self._answer)

    def _answer(self, request: Any, context: RequestContext) -> Edit | None:
        if context.api_version < _FIRST_UNSURE or not self.arguments["times"]:
            return None
        self.arguments["times"] -= 1
        return Edit(self._change)

    def _change(self, response: Any) -> None:
        for topics in (response.topics, *(group.topics for group in response.groups)):
            for topic in topics:
                for part in topic.partitions:
                    part.error_code, part.committed_offset = errors.UnstableOffsetCommit.errno, -1
                    self.hit()

    async def end(self) -> None:
        """Answer as always."""
        if self._interception is not None:
            self._interception.remove()


AIMED_FAULTS: tuple[type[Fault], ...] = (
    SteadyError,
    HangingUp,
    SmallerLimit,
    RefusedLogins,
    OldNews,
    KnownBatch,
    UnknownReplica,
    WrittenAllTheSame,
    MixedCodes,
    UnsureOffsets,
)
