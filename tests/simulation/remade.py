"""Topics that are deleted and made again: which of them a record is of, and what that allows.

An age is the number of topics that had the name before: 0 is the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import TopicPartition
from tests.simulation import logs
from tests.simulation.progress import go_on
from tests.simulation.promises import ONCE

if TYPE_CHECKING:
    from aiokafka.testing import PartitionLog, RequestContext
    from aiokafka.testing.batches import Batch
    from tests.simulation.history import Audience, Reading
    from tests.simulation.world import World

# Since 3.1 fetches name topics by id, and since 4.1 commits do. Brokers before serve whatever has
# the name, so records of the next topic are read, or skipped, from a position in the former one.
_FETCHES_BY_ID = (3, 1)
_COMMITS_BY_ID = (4, 1)
# Faults beside which all brokers say the newest that there is, and requests arrive as they were
# sent: in these scenarios it is known what a client has heard.
_QUIET = {"topic again", "rebalance", "more partitions", "retention", "late response"}
_FETCH = 1
# Faults by which brokers show a topic that is gone.
_LAGS = {"older metadata", "misled"}
# Virtual seconds after which a client has certainly taken in what it was answered.
_HEARD = 0.5

LONE, CLASSIC, KIP_848 = "lone", "classic", "consumer"

_Places = dict[tuple[int, TopicPartition], set[int]]


@dataclass
class Rereading:
    """What an audience has read of topics that were made again, and by which rules."""

    protocol: str = ""
    """`LONE`, `CLASSIC` or `KIP_848`; "" where everything is forgiven."""
    by_hand: bool = False
    """Whether programs name the offsets that they commit."""
    readers: int = 0
    """How many consumers there have been."""
    delivered: _Places = field(default_factory=dict)
    """By age and partition: offsets."""
    finished: _Places = field(default_factory=dict)


@dataclass
class Whereabouts:
    """Where one consumer is: of each partition the age of its position, where that is known."""

    ages: dict[TopicPartition, int] = field(default_factory=dict)
    seen: dict[str, set[int]] = field(default_factory=dict)
    """By topic: the ages of which it has read."""
    in_hand: dict[tuple[TopicPartition, int], list[int]] = field(default_factory=dict)
    """The ages that the records which it was given last may have."""


class Remade:
    """Owns: what stood in the logs of topics that are gone, and who has heard of which topic."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._former: dict[str, list[dict[TopicPartition, dict[int, int]]]] = {}
        """By name, oldest first: offset to number of each record."""
        self._spoilt: set[str] = set()
        self._logs: dict[TopicPartition, tuple[PartitionLog, Batch, dict[int, int]]] = {}
        self._heard: dict[tuple[str, str], tuple[int, float]] = {}
        """By client and topic: the newest age in what it was answered, and when."""
        self._is_quiet = not any(
            plan.kind not in _QUIET or plan.arguments.get("api", _FETCH) != _FETCH
            for plan in world.scenario.faults
        )

    def note_end(self, topic: str) -> None:
        """Remember what is in a topic that is about to be deleted."""
        found = {tp: dict(logs.numbers(self._world, tp)) for tp in self._partitions(topic)}
        self._former.setdefault(topic, []).append(found)

    def spoil(self, topic: str) -> None:
        """Forgive everything: acknowledged records of a topic are lost, by an unclean election."""
        self._spoilt.add(topic)

    def age(self, topic: str) -> int:
        """How many topics had this name before the one of now, or the next one."""
        return len(self._former.get(topic, ()))

    # -- reading

    def took(self, reading: Reading, tp: TopicPartition, offset: int, number: int) -> None:
        """Check a record that was returned, before the position of the reading follows it."""
        ages = self._ages_of(tp, offset, number)
        again, at = reading.audience.again, reading.whereabouts
        # A producer that got no answer may have written one to both topics, at the same place. And
        # some records have no number of their own.
        is_sure = len(ages) == 1 and number >= 0
        if is_sure and self.is_followed(reading.audience, tp.topic):
            self._check(reading, tp, offset, ages[0])
        for age in ages:
            again.delivered.setdefault((age, tp), set()).add(offset)
        at.in_hand[tp, offset] = ages
        if not is_sure:
            at.ages.pop(tp, None)
            return
        at.ages[tp] = ages[0]
        at.seen.setdefault(tp.topic, set()).add(ages[0])

    def finished(self, reading: Reading) -> None:
        """The program has done its work on all that it has in hand."""
        in_hand, again = reading.whereabouts.in_hand, reading.audience.again
        for tp, offset in reading.in_hand:
            for age in in_hand.get((tp, offset), ()):
                again.finished.setdefault((age, tp), set()).add(offset)
        in_hand.clear()

    def is_followed(self, audience: Audience, topic: str) -> bool:
        """Whether readers know by ids which topic they read. One of the brokers that plays an older
        release would have them go by names."""
        return (
            bool(audience.again.protocol)
            and bool(self.age(topic))
            and topic not in self._spoilt
            and self._release >= _FETCHES_BY_ID
            and not self._has_faults({"upgrade"})
        )

    def is_complete(self, audience: Audience, topic: str) -> bool:
        """Whether the audience must get all that is in the topic now.

        Not where offsets are stored by name: before Kafka 4.1 members store positions in the former
        topic for the next one, until they hear of it (docs/consumer.rst). The consumer that has
        stored one takes no notice of it, but others do, and so does it when a broker has shown it
        the former topic once more, or when it was not answered. In a classic group a program may
        name such offsets itself, and nothing says that it means the former topic.
        """
        if not audience.starts_at_beginning or not self.is_followed(audience, topic):
            return False
        protocol, by_hand = audience.again.protocol, audience.again.by_hand
        if protocol == LONE:
            return True
        is_alone = audience.again.readers <= 1 and self._is_quiet
        return (self._release >= _COMMITS_BY_ID or is_alone) and not (
            protocol == CLASSIC and by_hand
        )

    def _check(self, reading: Reading, tp: TopicPartition, offset: int, age: int) -> None:
        audience, world = reading.audience, self._world
        where = f"{reading.name}: {tp} {offset} of topic {age}"
        before, expected = reading.whereabouts.ages.get(tp), reading.positions.get(tp)
        if before is not None and age < before:
            world.violate("former topic", f"{where}, after records of topic {before}")
        is_back = before == age and expected is not None and offset < expected
        if is_back and self._knows_former(reading, tp.topic, age):
            world.violate("read again", f"{where}, though it was at {expected}")
        if age != self.age(tp.topic):
            return  # of a log that is not there any more
        world.hit("record of a topic made again")
        delivered = audience.again.delivered.get((age, tp), set())
        if world.promises(ONCE) and offset in delivered:
            world.violate("read again", f"{where}, which was delivered before")
        start = expected if before == age and expected is not None else 0
        if (start or self.is_complete(audience, tp.topic)) and start < offset:
            seen = go_on(world, audience, tp, start, offset, delivered)
            if seen < offset:
                world.violate("skipped", f"{where}, without {seen}")

    def _knows_former(self, reading: Reading, topic: str, age: int) -> bool:
        """Whether a consumer that is shown an older topic can know that it is no newer one.

        Without a coordinator that assigns by ids there is nothing to tell it apart by, until the
        consumer has read of it itself: one broker that lags behind has it read again.
        """
        if reading.audience.again.protocol == KIP_848 or not self._has_faults(_LAGS):
            return True
        return reading.whereabouts.seen.get(topic, set()) >= set(range(age))

    # -- commits

    def watch(self) -> None:
        """Note which clients hear of which topics."""
        if self._is_quiet and self._release < _COMMITS_BY_ID:
            self._world.cluster.intercept(MetadataRequest, self._note_heard)

    def _note_heard(self, request: MetadataRequest, context: RequestContext) -> None:
        topics = self._world.cluster.state.topics
        wanted = topics if request.topics is None else [topic.name for topic in request.topics]
        for name in wanted:
            if name in topics and self.age(name):
                key = context.client_id or "", name
                if self._heard.get(key, (0, 0.0))[0] < self.age(name):
                    self._heard[key] = self.age(name), self._world.now

    def check_commit(
        self,
        audience: Audience,
        context: RequestContext,
        topic_id: bytes,
        tp: TopicPartition,
        offset: int,
    ) -> None:
        """Check that an offset which would be stored for the topic of now is finished in that."""
        again, topics = audience.again, self._world.cluster.state.topics
        if tp.topic not in topics or not self.is_followed(audience, tp.topic):
            return
        # A program that names a position in the former topic means the next one, for all that a
        # classic group can tell.
        if not audience.starts_at_beginning or (again.protocol == CLASSIC and again.by_hand):
            return
        if topic_id == ZERO_UUID and not self._has_heard(context, tp.topic):
            return
        done = again.finished.get((self.age(tp.topic), tp), set())
        start = 0
        if not self.is_complete(audience, tp.topic):
            # It may have begun where another member, which had not heard yet, was in the former
            # topic.
            if offset == self._world.cluster.groups.committed(audience.name, *tp):
                return
            start = min(done, default=0)
        reached = go_on(self._world, audience, tp, start, offset, done)
        if reached < offset:
            text = f"{context.client_id} commits {offset} of {tp}, but {reached} is not finished: "
            self._world.violate(
                "foreign commit", text + f"{self.age(tp.topic)} topics had its name"
            )

    def _has_heard(self, context: RequestContext, topic: str) -> bool:
        age, at = self._heard.get((context.client_id or "", topic), (-1, 0.0))
        return age == self.age(topic) and self._world.now > at + _HEARD

    # -- which topic

    def _ages_of(self, tp: TopicPartition, offset: int, number: int) -> list[int]:
        known = [former.get(tp, {}) for former in self._former.get(tp.topic, ())]
        known.append(self._numbers(tp))
        return [age for age, numbers in enumerate(known) if numbers.get(offset) == number]

    def _numbers(self, tp: TopicPartition) -> dict[int, int]:
        """What is in the log of now; none of the former topics where there was none."""
        log = logs.log_of(self._world, tp)
        if log is None or not log.batches:
            return {}
        kept = self._logs.get(tp)
        if kept is None or kept[0] is not log or kept[1] is not log.batches[-1]:
            # What retention has deleted since was there.
            known = kept[2] if kept is not None and kept[0] is log else {}
            kept = log, log.batches[-1], known | dict(logs.numbers(self._world, tp))
            self._logs[tp] = kept
        return kept[2]

    def _partitions(self, topic: str) -> list[TopicPartition]:
        return logs.partitions(self._world, topic)

    @property
    def _release(self) -> tuple[int, ...]:
        return self._world.scenario.cluster.number

    def _has_faults(self, kinds: set[str]) -> bool:
        faults: Any = self._world.scenario.faults
        return any(plan.kind in kinds for plan in faults)
