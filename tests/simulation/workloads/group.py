"""Consumer groups of both protocols, whose members come, go and crash."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from tests.simulation.calls import AllowedError, Caller, InterruptedCall
from tests.simulation.contexts import arguments_of
from tests.simulation.history import Audience, Reading
from tests.simulation.progress import missing_for
from tests.simulation.promises import FRESH, FRESH_S, ONCE, PROMPT, ROOM, ROOM_S
from tests.simulation.remade import CLASSIC
from tests.simulation.scenario import Draft, WorkloadPlan
from tests.simulation.shows import intercepted
from tests.simulation.workloads.base import Workload
from tests.simulation.workloads.committing import commit
from tests.simulation.workloads.holding import Hold, draw_holds, see_empty
from tests.simulation.workloads.listening import Listener
from tests.simulation.workloads.lone import (
    group_wait_s,
    start_consumer,
    stop_consumer,
    together,
)
from tests.simulation.workloads.reading import (
    FIRST_CONSUMER_PROTOCOL,
    draw_consumer_options,
    read_once,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

ASSIGNORS: dict[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


class GroupWorkload(Workload):
    """The members of one group, each a program of its own."""

    kind = "group"
    rank = 2

    def __init__(self, world: World, plan: WorkloadPlan) -> None:
        super().__init__(world, plan)
        self.hold = Hold(plan.options)

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """Topics that others write, and one to three members."""
        source = draft.random
        names = [topic.name for topic in draft.topics] or [draft.new_topic().name]
        group = draw_group(draft)
        isolation = source.choice(("read_committed", "read_uncommitted"))
        members = [cls._draw_member(draft, group) for _ in range(source.choice((1, 1, 1, 2, 2, 3)))]
        for number, member in enumerate(members):
            member["client"]["isolation_level"] = isolation
            if group["static"]:
                member["client"]["group_instance_id"] = f"{group['group_id']} {number}"
        return {
            "topics": sorted(source.sample(names, source.randint(1, len(names)))),
            "pattern": source.random() < 0.15,
            "isolation": isolation,
            "members": members,
            **draw_holds(draft),
            **group,
        }

    @classmethod
    def _draw_member(cls, draft: Draft, group: dict[str, Any]) -> dict[str, Any]:
        source = draft.random
        commits = source.choice(("auto", "auto", "sync", "positions", "mixed", "beside"))
        client = draw_consumer_options(draft) | group["client"]
        client["enable_auto_commit"] = commits == "auto" or (
            commits == "mixed" and source.random() < 0.5
        )
        client["auto_commit_interval_ms"] = source.choice((0, 100, 1000, 5000))
        return {
            "client": client,
            "commits": commits,
            "style": source.choice(("one", "many", "many", "iterate", "mixed")),
            "work_s": source.choice((0, 0, 0.01, 0.2, 2.0)),
            "pause_rate": source.choice((0, 0, 0.05)),
            "cancel_rate": source.choice((0, 0, 0.05, 0.3)),
            "committed_rate": source.choice((0, 0, 0.05)),
            "listener": source.choice(
                ("none", "plain", "slow", "raise", "seek", "commit", "cancel")
            ),
            "comes_after_s": source.choice((0, 0, 2.0, draft.active_s / 2)),
            "stays_s": source.choice((None, None, 5.0, 20.0)),
            "leaves_by": source.choice(("stop", "stop", "crash", "fail", "other")),
        }

    async def run(self) -> None:
        """All members until everything was read."""
        audience = self.world.history.audience(
            self.options["group_id"],
            self.options["topics"],
            committed_only=self.options["isolation"] == "read_committed",
            starts_at_beginning=True,
        )
        # By a mark of a transaction, what a program names is behind what commit() takes.
        audience.goes_back = any(
            member["listener"] == "seek" or member["committed_rate"] or member["commits"] == "mixed"
            for member in self.options["members"]
        )
        audience.renumbers = not self.protocol
        audience.mixes_commits = any(
            member["listener"] == "commit" and member["commits"] in ("auto", "sync")
            for member in self.options["members"]
        )
        plans = self.options["members"]
        # Those without a listener do not know when they are given another topic of the name.
        audience.again.by_hand = any(
            member["commits"] not in ("auto", "sync") or member["listener"] == "commit"
            for member in plans
        )
        if all(member["listener"] != "none" for member in plans) or not audience.again.by_hand:
            audience.again.protocol = self.protocol
        members = [
            self.member_class(self, audience, f"{self.plan.name} member {number}", options)
            for number, options in enumerate(self.options["members"])
        ]
        await asyncio.gather(*[member.run() for member in members])

    @property
    def protocol(self) -> str:
        """The protocol of all members; "" if it is none for sure."""
        found: str = self.options["members"][0]["client"].get("group_protocol", CLASSIC)
        return found

    @property
    def member_class(self) -> type[Member]:
        """What its members are."""
        return Member

    @property
    def recovery_s(self) -> float:
        """A member that is gone is missed after its session; some rebalances may follow."""
        slow = max(float(member["work_s"]) for member in self.options["members"])
        if self.world.promises(FRESH):
            return FRESH_S + 100 * slow + self.looking_s + self.hold.slow_s
        if self.world.promises(ROOM):
            return ROOM_S + 100 * slow + self.looking_s + self.hold.slow_s
        return 300.0 + self.oldest_metadata_s + 200 * slow + self.looking_s

    def is_over(self, audience: Audience) -> bool:
        """Whether the members may go: all was read, or it takes too long."""
        world = self.world
        if not world.turns[self.rank].is_set():
            return False
        missing = missing_for(world, audience, held=self.hold.numbers)
        begun_at = max(world.turn_at[self.rank], self.hold.ended_at)
        if missing and world.now > begun_at + self.recovery_s:
            text = f"group {audience.name} has not got {missing} although all faults are over"
            world.violate("not delivered", text)
            return True
        if not missing and not self.hold.is_over:
            self.hold.end(world.now)
            return False
        return not missing


class Member:
    """One program of a group: a consumer, made again when it is gone."""

    def __init__(
        self, group: GroupWorkload, audience: Audience, name: str, options: dict[str, Any]
    ) -> None:
        self.world = group.world
        self.group = group
        self.audience = audience
        self.options = options
        self.caller = Caller(group.world, name, options["cancel_rate"])

    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return self.group.is_over(self.audience)

    async def run(self) -> None:
        """Be a member until all is over, with pauses."""
        await self.group.until_turn(self.options["comes_after_s"])
        while not self.is_over():
            caller = self.caller
            caller.has_stopped = False
            reading = Reading(self.world, caller.name, self.audience)
            reading.is_told = self.options["listener"] != "none"
            options = self.choose_options()
            consumer = self._make(reading, options)
            if await start_consumer(caller, consumer, options, group_wait_s(options)):
                readers = range(self.options.get("readers", 1))
                await together([self._read(consumer, reading) for _ in readers])
                if "fetch_buffer_memory" in options and self.is_over():
                    await see_empty(caller, consumer, reading)
            await self._leave(consumer, reading)
            await self.group.until_turn(caller.random.random() * 2)

    async def _leave(self, consumer: AIOKafkaConsumer, reading: Reading) -> None:
        caller = self.caller
        if reading.tasks:
            await asyncio.wait(reading.tasks)
        # What it has is another's as soon as it has left, which may be before stop() ends.
        reading.close()
        by = "stop" if self.is_over() else self.options["leaves_by"]
        if by == "other":
            # Not the task that reads: what is in hand is not finished.
            reading.in_hand.clear()
            stop = stop_consumer(caller, consumer, None)
            await asyncio.get_running_loop().create_task(stop)
            return
        if by == "fail":
            reading.in_hand.clear()
            try:
                raise AllowedError("the program fails on purpose")
            except AllowedError:
                await stop_consumer(caller, consumer, None)
            return
        reading.begin_call()
        expected = {
            tp: position for tp, position in reading.positions.items() if tp in (reading.held or ())
        }
        await stop_consumer(caller, consumer, 0 if by == "crash" else None)
        if self.world.calm.is_set() and by == "stop":
            self._check_last_commit(expected)

    def _check_last_commit(self, expected: dict[TopicPartition, int]) -> None:
        """What was finished is committed when a member goes, unless it is none any more."""
        is_sure = self.world.promises(ONCE) or self.world.promises(PROMPT)
        if not is_sure or not self.options["client"]["enable_auto_commit"]:
            return
        for tp, offset in expected.items():
            found = self.world.cluster.groups.committed(self.audience.name, *tp) or 0
            if found < offset and tp.topic not in self.audience.forgiven:
                text = f"{self.caller.name} is gone, but of {tp} {found} is committed, not {offset}"
                self.world.violate("not committed", text)

    def choose_options(self) -> dict[str, Any]:
        """The options of the next consumer."""
        options: dict[str, Any] = self.options["client"]
        return options

    def _make(self, reading: Reading, options: dict[str, Any]) -> AIOKafkaConsumer:
        options = dict(options)
        assignors = options.pop("assignors", None)
        if assignors:
            options["partition_assignment_strategy"] = [ASSIGNORS[name] for name in assignors]
        consumer = intercepted(
            self.caller,
            reading,
            self.options,
            bootstrap_servers=self.world.bootstrap,
            client_id=self.caller.name.replace(" ", "-"),
            group_id=self.group.options["group_id"],
            **arguments_of(self.caller, options),
        )
        listener = None
        if self.options["listener"] != "none":
            listener = Listener(self.caller, consumer, reading, self.options)
        topics = self.group.options["topics"]
        if self.group.options["pattern"]:
            consumer.subscribe(pattern=f"({'|'.join(topics)})$", listener=listener)
        else:
            consumer.subscribe(topics, listener=listener)
        return consumer

    async def _read(self, consumer: AIOKafkaConsumer, reading: Reading) -> None:
        caller, options = self.caller, self.options
        stays = options["stays_s"]
        until = None if stays is None else self.world.now + 2 * stays * caller.random.random()
        while not self.is_over():
            if until is not None and self.world.now > until and not self.world.calm.is_set():
                return
            if caller.has_stopped:
                return
            if not reading.is_told:
                reading.forget_all()
            try:
                is_turn = self.world.turns[self.group.rank].is_set()
                await self.group.hold.apply(caller, consumer, is_turn=is_turn)
                await read_once(caller, consumer, reading, options)
                await commit(caller, consumer, reading, options)
            except (InterruptedCall, AllowedError):
                pass
            except StopAsyncIteration:
                return
            except KafkaError:
                if consumer.health().state in ("failed", "closed"):
                    return
                await self.group.until_turn(0.1)


def draw_group(draft: Draft) -> dict[str, Any]:
    """What the members of a group have in common."""
    source = draft.random
    number = len(draft.workloads)
    session = source.choice((4000, 10_000, 20_000))
    client: dict[str, Any] = {
        "max_poll_interval_ms": source.choice((5000, 20_000, 60_000)),
    }
    if draft.cluster.number >= FIRST_CONSUMER_PROTOCOL and source.random() < 0.5:
        client["group_protocol"] = "consumer"
        client["group_remote_assignor"] = source.choice((None, "uniform", "range"))
    else:
        client["session_timeout_ms"] = session
        client["heartbeat_interval_ms"] = session // 4
        client["assignors"] = source.choice(
            (["range"], ["roundrobin"], ["sticky"], ["cooperative"], ["range", "cooperative"])
        )
    is_static = draft.cluster.number >= (2, 4) and source.random() < 0.2
    return {"group_id": f"g{number}", "client": client, "static": is_static}
