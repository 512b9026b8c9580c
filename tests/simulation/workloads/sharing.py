"""Share groups: members that share the records of topics, as from a queue (KIP-932)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from aiokafka import AIOKafkaShareConsumer
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.share_groups import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from aiokafka.share import AcknowledgeType, RejectRecord, ShareRecord
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut
from aiokafka.testing.share_partition import RecordState, ShareEvent
from tests.simulation import logs
from tests.simulation.calls import AllowedError, Caller, InterruptedCall
from tests.simulation.scenario import ClusterPlan, Draft
from tests.simulation.workloads.base import Workload, draw_client_options
from tests.simulation.workloads.lone import options_ms

_FIRST = (4, 3)
_GROUP = 32
# A delivery limit that is never reached by accident.
_NO_LIMIT = 1000
# Seconds in which an acknowledgement of a sound client is at a sound broker.
_SENT_WITHIN = 3.0
ACCEPT, RELEASE, REJECT = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class ShareWorkload(Workload):
    """The members of one share group.

    Promises: every record is acknowledged at last. A record is accepted once. It is delivered again
    only if its member has released it, its lock has timed out, or its session or leader was lost.
    Each delivery has the delivery count of its acquisition. Without faults, no lock times out while
    a handler runs. An acknowledgement succeeds only if a broker has received it.
    """

    kind = "share"
    rank = 1

    @classmethod
    def is_possible(cls, cluster: ClusterPlan) -> bool:
        """Whether these brokers have share groups."""
        return cluster.number >= _FIRST

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """A topic that others write, the settings of the group, and one to four members."""
        source = draft.random
        written = [w.options["topic"] for w in draft.workloads if "topic" in w.options]
        topics = sorted({source.choice(written) for _ in range(2)}) if written else []
        if not topics:
            topics = [draft.new_topic().name]
        session = source.choice((4000, 10_000))
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": source.choice((1000, 5000, 30_000)),
            "share.delivery.count.limit": source.choice((_NO_LIMIT, _NO_LIMIT, _NO_LIMIT, 3)),
            "share.isolation.level": source.choice(("read_committed", "read_uncommitted")),
            "share.partition.max.record.locks": source.choice((5, 100, 2000)),
            "share.session.timeout.ms": session,
            "share.heartbeat.interval.ms": session // 4,
        }
        count = source.choice((1, 2, 2, 3, 5))
        return {
            "topics": topics,
            "group_id": f"queue{len(draft.workloads)}",
            "settings": {name: str(value) for name, value in settings.items()},
            "members": [cls._draw_member(draft) for _ in range(count)],
            "cut_rate": source.choice((0, 0, 0.02, 0.2)),
        }

    @classmethod
    def _draw_member(cls, draft: Draft) -> dict[str, Any]:
        source = draft.random
        client = draw_client_options(draft) | {
            "fetch_max_wait_ms": source.choice((10, 100, 500, 2000)),
            "max_poll_records": source.choice((1, 3, 20, 500)),
            "share_acquire_mode": source.choice(("batch_optimized", "record_limit")),
        }
        form = source.choice(("implicit", "explicit", "processing", "process"))
        client["share_acknowledgement_mode"] = "implicit" if form == "implicit" else "explicit"
        return {
            "client": client,
            "form": form,
            "concurrency": source.choice((1, 3, 20)),
            "work_s": source.choice((0, 0, 0.01, 0.1, 2.0)),
            "hang_rate": source.choice((0, 0, 0, 0.03)),
            "release_rate": source.choice((0, 0, 0.1, 0.3)),
            "reject_rate": source.choice((0, 0, 0.05)),
            "commit_rate": source.choice((0, 0.1, 1.0)),
            "cancel_rate": source.choice((0, 0, 0.05, 0.3)),
            "comes_after_s": source.choice((0, 0, 2.0, draft.active_s / 2)),
            "stays_s": source.choice((None, None, 5.0, 20.0)),
            "stop_s": source.choice((None, None, 0, 1.0)),
        }

    async def run(self) -> None:
        """All members until everything is acknowledged."""
        world, options = self.world, self.options
        configs = world.cluster.state.other_configs
        configs[_GROUP, options["group_id"]] = dict(options["settings"])
        self.ledger = ShareLedger(self)
        for api in (ShareFetchRequest, ShareAcknowledgeRequest):
            world.cluster.intercept(api, self.ledger.received)
        members = [
            ShareMemberProgram(self, f"{self.plan.name} member {number}", member)
            for number, member in enumerate(options["members"])
        ]
        await asyncio.gather(*[member.run() for member in members])
        self.ledger.check()

    @property
    def lock_s(self) -> float:
        """The duration of the acquisition locks."""
        return float(self.options["settings"]["share.record.lock.duration.ms"]) / 1000

    @property
    def disturbed_from(self) -> float:
        """When the first fault begins."""
        if self.options["cut_rate"]:
            return 0.0
        return min((fault.at for fault in self.world.scenario.faults), default=float("inf"))

    @property
    def limits_deliveries(self) -> bool:
        """Whether records are archived after some deliveries."""
        return self.options["settings"]["share.delivery.count.limit"] != str(_NO_LIMIT)

    @property
    def recovery_s(self) -> float:
        """Locks that time out one after the other, handlers that hang."""
        return 500.0 + 10 * self.lock_s + self.oldest_metadata_s

    def is_over(self) -> bool:
        """Whether the members may go: all is acknowledged, or it takes too long."""
        world = self.world
        if not world.turns[self.rank].is_set():
            return False
        missing = self._missing()
        if missing and world.now > world.turn_at[self.rank] + self.recovery_s:
            world.violate("not acknowledged", f"{self.plan.name}: {missing}")
            return True
        return not missing

    def _missing(self) -> str:
        world = self.world
        committed_only = self.options["settings"]["share.isolation.level"] == "read_committed"
        for topic in self.options["topics"]:
            if topic in world.history.forgiven:
                continue
            for tp in logs.partitions(world, topic):
                end = logs.visible_end(world, tp, committed_only)
                start = max(world.cluster.groups.share_start(self.options["group_id"], *tp), 0)
                if logs.first_visible(world, tp, start, end, committed_only) is not None:
                    return f"{tp} {start} (of {end})"
        return ""


class ShareMemberProgram:
    """One program of the group, whose consumer is made again when it is gone."""

    def __init__(self, group: ShareWorkload, name: str, options: dict[str, Any]) -> None:
        self.world = group.world
        self.group = group
        self.options = options
        self.caller = Caller(group.world, name, options["cancel_rate"])
        self.member_id = ""
        self._ends_at = 0.0

    async def run(self) -> None:
        """Be a member until all is over, with pauses."""
        await self.group.until_turn(self.options["comes_after_s"])
        while not self.group.is_over():
            await self._live()
            await self.group.until_turn(self.caller.random.random() * 2)

    async def _live(self) -> None:
        group, options, world = self.group, self.options, self.world
        consumer = AIOKafkaShareConsumer(
            *group.options["topics"],
            bootstrap_servers=world.bootstrap,
            client_id=self.caller.name.replace(" ", "-"),
            group_id=group.options["group_id"],
            **options["client"],
        )
        stays = options["stays_s"]
        self._ends_at = world.now + stays if stays else float("inf")
        limit = options_ms(options["client"], "request_timeout_ms", 40_000) + 5.0
        try:
            await self.caller.call("start", consumer.start(), limit=limit)
        except (KafkaError, InterruptedCall):
            return
        self.member_id = self._find_member_id()
        consumer.set_acknowledgement_commit_callback(self._see_outcomes)
        ending = asyncio.get_running_loop().create_task(self._end_later(consumer))
        try:
            await getattr(self, f"_{options['form']}")(consumer)
        finally:
            ending.cancel()
        await self._stop(consumer)

    def _find_member_id(self) -> str:
        """The id that the consumer has chosen for itself, from its heartbeats."""
        client_id = self.caller.name.replace(" ", "-")
        seen = self.world.cluster.requests(ShareGroupHeartbeatRequest)
        return next(s.request.member_id for s in reversed(seen) if s.context.client_id == client_id)

    async def _end_later(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> None:
        """Stop a consumer that calls handlers, when it is time."""
        while self.options["form"] == "process" and not self._is_leaving:
            await self.group.until_turn(0.5)
        if self.options["form"] == "process":
            await self._stop(consumer)

    async def _stop(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> None:
        seconds = self.options["stop_s"]
        limit = (10.0 if seconds is None else seconds) + 4.0
        self.caller.has_stopped = True
        for _ in range(20):
            try:
                await self.caller.call(f"stop({seconds})", consumer.stop(seconds), limit=limit)
                break
            except (KafkaError, InterruptedCall):
                pass
        else:
            await consumer.stop(0)
        self.caller.has_stopped = False
        if consumer.health().state != "closed":
            self.world.violate("health", f"{self.caller.name}: after stop {consumer.health()!r}")

    @property
    def _is_leaving(self) -> bool:
        return self.world.now > self._ends_at or self.group.is_over()

    def _see_outcomes(
        self, tp: TopicPartition, offsets: list[int], error: KafkaError | None
    ) -> None:
        self.world.note(self.caller.name, f"outcome {tp} {offsets} {type(error).__name__}")
        if error is None:
            self.group.ledger.settled(self.member_id, tp, offsets)

    # -- forms of programs ---------------------------------------------------------------------

    async def _implicit(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> None:
        async for _ in self._read(consumer):
            await self._work()
            await self._maybe_commit(consumer)

    async def _explicit(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> None:
        async for record in self._read(consumer):
            await self._work()
            kind = self._choose()
            self.group.ledger.finished(self.member_id, record, kind)
            try:
                consumer.acknowledge(record, kind)
            except KafkaError as error:
                self.world.violate("exception", f"{self.caller.name}: acknowledge {error!r}")
            await self._maybe_commit(consumer)

    async def _processing(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> None:
        async for record in self._read(consumer):
            try:
                await self.caller.call("block", self._in_block(consumer, record))
            except (InterruptedCall, AllowedError, KafkaError):
                pass
            await self._maybe_commit(consumer)

    async def _in_block(
        self, consumer: AIOKafkaShareConsumer[Any, Any], record: ShareRecord[Any, Any]
    ) -> None:
        async with consumer.processing(record):
            await self._handle(record)

    async def _handle(self, record: ShareRecord[Any, Any]) -> None:
        ledger = self.group.ledger
        kind = self._choose()
        ledger.began(self.member_id, record)
        try:
            await self._work()
        except asyncio.CancelledError:
            kind = RELEASE
            raise
        finally:
            ledger.finished(self.member_id, record, kind)
        if kind == REJECT:
            raise RejectRecord("on purpose")
        if kind == RELEASE:
            raise AllowedError("on purpose")

    async def _process(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> None:
        async def handle(record: ShareRecord[Any, Any]) -> None:
            self.group.ledger.delivered(self.member_id, record)
            await self._handle(record)

        while not self._is_leaving:
            call = consumer.process(handle, concurrency=self.options["concurrency"])
            try:
                await self.caller.call("process", call)
            except InterruptedCall:
                if self.caller.has_stopped:
                    return  # `_end_later` stops the consumer, even if records are missing again
            except (KafkaError, AllowedError):
                await self.group.until_turn(0.1)
                if consumer.health().state in ("closed", "failed"):
                    return

    async def _read(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> Any:
        """Yield records until it is time to leave."""
        while not self._is_leaving:
            one = self.caller.chance(0.2)
            call: Any = consumer.getone() if one else consumer.getmany(timeout_ms=500)
            try:
                found = await self.caller.call(
                    "getone" if one else "getmany",
                    call,
                    limit=None if one else 0.5,
                    patience=1.0 if one else None,
                )
            except InterruptedCall:
                continue
            except KafkaError:
                await self.group.until_turn(0.1)
                if consumer.health().state in ("closed", "failed"):
                    return
                continue
            records = [found] if one else [r for some in found.values() for r in some]
            for record in records:
                self.group.ledger.delivered(self.member_id, record)
                if self.options["form"] == "implicit":
                    self.group.ledger.accepted_later(self.member_id, record)
            for record in records:
                yield record

    async def _maybe_commit(self, consumer: AIOKafkaShareConsumer[Any, Any]) -> None:
        if not self.caller.chance(self.options["commit_rate"]):
            return
        try:
            await self.caller.call("commit", consumer.commit(), limit=60.0)
        except (KafkaError, InterruptedCall):
            pass

    async def _work(self) -> None:
        if self.world.turns[self.group.rank].is_set():
            # One whose work takes longer than its locks would never come to the end.
            return
        if self.caller.chance(self.options["hang_rate"]):
            await asyncio.sleep(2.5 * self.group.lock_s)
        elif self.options["work_s"]:
            await self.caller.pause(self.options["work_s"])

    def _choose(self) -> AcknowledgeType:
        number = self.caller.random.random()
        if number < self.options["release_rate"] and not self.world.turns[self.group.rank].is_set():
            return RELEASE
        return REJECT if number > 1 - self.options["reject_rate"] else ACCEPT


class ShareLedger:
    """What members have got and acknowledged, compared with what the brokers saw."""

    def __init__(self, group: ShareWorkload) -> None:
        self.world = group.world
        self.group = group
        self._delivered: defaultdict[tuple[str, Place, int], list[float]] = defaultdict(list)
        """When a member got a record with a delivery count, which begins anew with a leader."""
        self._finished: defaultdict[tuple[str, Place], list[tuple[float, int]]] = defaultdict(list)
        """When and how a member has acknowledged a record."""
        self._implicit: set[str] = set()
        self._began: dict[tuple[str, Place], float] = {}
        self._handled: defaultdict[tuple[str, Place], list[tuple[float, float]]]
        self._handled = defaultdict(list)
        """When a handler whose lock is renewed began and ended."""
        self._received: defaultdict[tuple[str, Place], list[float]] = defaultdict(list)
        """When a broker received an acknowledgement of a member."""
        self._settled: defaultdict[tuple[str, Place], list[float]] = defaultdict(list)
        """When an acknowledgement of a member has succeeded."""
        self._random = group.world.random_for(f"{group.plan.name} cuts")

    def delivered(self, member_id: str, record: ShareRecord[Any, Any]) -> None:
        """A member gets a record."""
        key = member_id, _place(record), record.delivery_count
        self._delivered[key].append(self.world.now)
        self.world.note(member_id, f"got {key[1]} {key[2]}")

    def began(self, member_id: str, record: ShareRecord[Any, Any]) -> None:
        """A handler whose lock is renewed begins."""
        self._began[member_id, _place(record)] = self.world.now

    def finished(self, member_id: str, record: ShareRecord[Any, Any], kind: int) -> None:
        """A member has finished a record."""
        key = member_id, _place(record)
        began = self._began.pop(key, None)
        if began is not None:
            self._handled[key].append((began, self.world.now))
        self._finished[key].append((self.world.now, kind))

    def accepted_later(self, member_id: str, record: ShareRecord[Any, Any]) -> None:
        """The next call of a program accepts a record."""
        self._implicit.add(member_id)
        self.finished(member_id, record, ACCEPT)

    def settled(self, member_id: str, tp: TopicPartition, offsets: list[int]) -> None:
        """Acknowledgements of a member have succeeded."""
        for offset in offsets:
            self._settled[member_id, (*tp, offset)].append(self.world.now)

    def received(self, request: Any, _: object) -> Cut | None:
        """A broker has received a request of a member. Some acknowledgements are lost here."""
        if request.group_id != self.group.options["group_id"]:
            return None
        topics = self.world.cluster.state.topics_by_id
        acknowledged = [
            (topics[topic.topic_id].name, part.partition_index, offset)
            for topic in request.topics
            if topic.topic_id in topics
            for part in topic.partitions
            for batch in part.acknowledgement_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        ]
        is_over = self.world.turns[self.group.rank].is_set()
        if acknowledged and not is_over and self._random.random() < self.group.options["cut_rate"]:
            return Cut()
        for place in acknowledged:
            self._received[request.member_id, place].append(self.world.now)
        return None

    def check(self) -> None:
        """Compare with the events at the brokers, record by record."""
        by_record: defaultdict[Place, list[ShareEvent]] = defaultdict(list)
        for event in self.world.cluster.groups.share_events(self.group.options["group_id"]):
            for offset in range(event.first, event.last + 1):
                by_record[event.topic, event.partition, offset].append(event)
        is_forgiven = self.world.history.forgiven.__contains__
        for place, events in by_record.items():
            if not is_forgiven(place[0]):
                self._check_record(place, events)
        for (member_id, place, count), times in self._delivered.items():
            if not is_forgiven(place[0]):
                for number, at in enumerate(times):
                    self._check_delivery(member_id, place, (count, number), at, by_record[place])
        for (member_id, place), times in self._settled.items():
            if not is_forgiven(place[0]):
                for number, at in enumerate(times):
                    self._check_outcome(member_id, place, (at, number), by_record[place])

    def _check_outcome(
        self, member_id: str, place: Place, success: tuple[float, int], events: list[ShareEvent]
    ) -> None:
        """An acknowledgement that has succeeded is at the broker. `success`: its time, and how many
        acknowledgements of the record have succeeded before."""
        at, number = success
        text = f"{member_id}: {place} at {at:.3f}"
        received = [each for each in self._received[member_id, place] if each <= at]
        if len(received) <= number:
            self.world.violate("untrue outcome", f"{text}, but brokers received {received}")
        if not self._is_visible(place):
            return  # brokers ignore acknowledgements of what was deleted
        # ... and of what others have finished meanwhile.
        done = ("accepted", "released", "rejected")
        if not any(
            event.time <= at
            and (event.state.is_terminal or (event.kind in done and event.member_id == member_id))
            for event in events
        ):
            self.world.violate("untrue outcome", f"{text}, but not at the broker")

    def _check_record(self, place: Place, events: list[ShareEvent]) -> None:
        accepted = [event for event in events if event.kind == "accepted"]
        if len(accepted) > 1:
            self.world.violate("accepted twice", f"{place}: {accepted}")
        for event in events:
            finished = self._finished[event.member_id, place]
            kinds = {kind for at, kind in finished if at <= event.time}
            key = event.member_id, place, event.count
            if event.kind == "accepted" and ACCEPT not in kinds:
                self.world.violate("lost", f"{place} was accepted by nobody: {event}")
            if event.kind == "rejected" and REJECT not in kinds and self._is_visible(place):
                self.world.violate("lost", f"{place} was rejected by nobody: {event}")
            is_own = event.kind == "released" and RELEASE not in kinds and key in self._delivered
            if is_own and not self._is_unfinished(key, event):
                self.world.violate("needless release", f"{place}: {event}, {finished}")
            if event.kind == "timed out" and event.time < self.group.disturbed_from:
                self._check_timeout(place, event, finished)
            is_refused = event.kind in ("released", "timed out", "session closed")
            is_archived = is_refused and event.state is RecordState.ARCHIVED
            if is_archived and not self.group.limits_deliveries and self._is_visible(place):
                self.world.violate("lost", f"{place} was archived: {event}")

    def _is_unfinished(self, key: tuple[str, Place, int], event: ShareEvent) -> bool:
        """Whether a member has got a record and not finished it: it is released at the stop."""
        finished = self._finished[key[0], key[1]]
        return not any(self._delivered[key][-1] <= at <= event.time for at, _ in finished)

    def _is_visible(self, place: Place) -> bool:
        """Whether there is a record, not only a marker of a transaction, or a deleted record."""
        topic, partition, offset = place
        committed_only = self.group.options["settings"]["share.isolation.level"] == "read_committed"
        tp = TopicPartition(topic, partition)
        return logs.first_visible(self.world, tp, offset, offset + 1, committed_only) == offset

    def _check_timeout(
        self, place: Place, event: ShareEvent, finished: list[tuple[float, int]]
    ) -> None:
        """Without faults, a lock times out only if the program holds the record for so long."""
        acquired = event.time - self.group.lock_s
        late = _SENT_WITHIN + self.world.stalled
        if event.member_id not in self._implicit and any(
            acquired <= at < event.time - late for at, _ in finished
        ):
            text = f"{place} was finished at {finished}, but {event}"
            self.world.violate("needless timeout", text)
        # A handler that begins when its lock is about to end is too late for a renewal.
        soon = event.time - 0.4 * self.group.lock_s - self.world.stalled
        for began, ended in self._handled[event.member_id, place]:
            if began <= soon and event.time < ended:
                text = f"{place}: {event} while a handler ran from {began:.3f} to {ended:.3f}"
                self.world.violate("needless timeout", text)

    def _check_delivery(
        self,
        member_id: str,
        place: Place,
        delivery: tuple[int, int],
        at: float,
        events: list[ShareEvent],
    ) -> None:
        """A member gets what it has acquired, once, with its delivery count; without faults, while
        the lock holds."""
        count, number = delivery
        own = [event for event in events if event.member_id == member_id]
        acquired = [e for e in own if e.kind == "acquired" and e.count == count and e.time <= at]
        if len(acquired) <= number:
            text = f"{member_id}: {place} was delivered with count {count}: {own}"
            self.world.violate("delivery count", text)
            return
        if at >= self.group.disturbed_from:
            return  # the response may have been late
        ended = [
            event.time
            for event in own
            if event.kind == "timed out" and acquired[-1].time <= event.time < at - 0.1
        ]
        if ended and at > ended[0] + self.world.stalled:
            text = f"{member_id}: {place} was delivered at {at:.3f}, its lock has ended: {ended}"
            self.world.violate("late delivery", text)


def _place(record: ShareRecord[Any, Any]) -> Place:
    return record.topic, record.partition, record.offset
