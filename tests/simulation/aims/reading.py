"""Aims at consumers: positions, seeks, memory, replicas, logs that change, groups."""

from __future__ import annotations

from typing import Any

from aiokafka import errors
from tests.simulation.aims.base import Aim
from tests.simulation.faults.aimed import SteadyError, UnknownReplica, UnsureOffsets
from tests.simulation.faults.brokers import CoordinatorMove, LeaderMove
from tests.simulation.faults.groups import Rebalance
from tests.simulation.faults.replicas import ReplicaLag, ReplicaStall, UncleanElection
from tests.simulation.faults.responses import LateResponse, LostResponse, Refused
from tests.simulation.faults.topics import TopicAgain
from tests.simulation.promises import EVERY, FRESH, MEMBERS, NO_ERRORS, ONCE, PROMPT, STEADY
from tests.simulation.workloads.group import GroupWorkload
from tests.simulation.workloads.lone import LoneWorkload
from tests.simulation.workloads.producing import ProducerWorkload
from tests.simulation.workloads.transacting import TransactionalWorkload


class ReadingAim(Aim):
    """A producer, and consumers that nothing hurries."""

    active_s = 6.0
    records = 40
    style = "together"
    """How the producer writes: `together` is in bursts, and over sooner."""

    def producer(self, **client: Any) -> str:
        """One that writes all the time; returns its topic."""
        usual: dict[str, Any] = {"acks": "all", "enable_idempotence": True}
        usual |= {"delivery_timeout_ms": 120_000}
        usual |= {"max_block_ms": 60_000, "request_timeout_ms": 2000, "linger_ms": 0}
        plan = self.add(
            ProducerWorkload,
            client=usual | client,
            cancel_rate=0,
            restart_rate=0,
            stop_s=None,
            style=self.style,
            sizes=[8, 60],
            records=self.records,
            to_partition=False,
        )
        plan.options["client"].pop("buffer_memory", None)
        return str(plan.options["topic"])

    def consumer(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Options of consumers."""
        usual = {"fetch_max_wait_ms": 500, "request_timeout_ms": 2000, "fetch_min_bytes": 1}
        usual |= {"auto_offset_reset": "earliest", "default_api_timeout_ms": 60_000}
        return usual | {"metadata_max_age_ms": 2000} | changes

    def lone(self, topics: list[str], changes: dict[str, Any], **options: Any) -> None:
        """A consumer without a group."""
        plain = {"cancel_rate": 0, "seek_rate": 0, "restart_rate": 0, "pause_rate": 0, "work_s": 0}
        plain |= {"change_rate": 0, "holds": [], "hold_rate": 0, "hold_busy_s": 0}
        self.add(LoneWorkload, client=self.consumer(changes), topics=topics, **plain | options)
        for name in ("retry_backoff_ms", "unreachable_timeout_ms"):
            self.draft.workloads[-1].options["client"].pop(name, None)

    def removed(self, count: int, pauses: tuple[float, ...]) -> list[dict[str, Any]]:
        """A group whose members will be removed, or fenced; returns the options of its members."""
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((2, 3)), config={})
        client = {"max_poll_interval_ms": self.random.choice((2000, 60_000))}
        options = {
            "style": self.random.choice(("one", "many")),
            "work_s": self.random.choice(pauses),
            "commits": self.random.choice(("auto", "sync", "positions")),
        }
        return self.group(topics, count, client, **options)

    def group(
        self, topics: list[str], count: int, client: dict[str, Any], **options: Any
    ) -> list[dict[str, Any]]:
        """A group; returns the options of its members."""
        plan = self.add(
            GroupWorkload, topics=topics, pattern=False, holds=[], hold_rate=0, hold_busy_s=0
        )
        members = []
        for index in range(count):
            member = dict(plan.options["members"][0])
            member["client"] = {**member["client"], **self.consumer(client)}
            plain = {"commits": "auto", "listener": "plain", "cancel_rate": 0, "pause_rate": 0}
            plain |= {"committed_rate": 0, "leaves_by": "stop", "stays_s": None, "work_s": 0}
            plain |= {"comes_after_s": 0 if not index else self.draft.active_s * index / count}
            member["client"].pop("unreachable_timeout_ms", None)
            member |= plain | options
            member["client"]["enable_auto_commit"] = member["commits"] == "auto"
            if plan.options["static"]:
                member["client"]["group_instance_id"] = f"member {index}"
            members.append(member)
        plan.options["members"] = members
        return members


class Seeks(ReadingAim):
    """A consumer that goes back and forth, with hardly any memory."""

    name = "seeks"
    promises = (FRESH,)

    def compose(self) -> None:
        """No faults but slow answers."""
        topics = [self.producer()]
        memory = self.random.choice((1, 300, 2000))
        changes = {"fetch_buffer_memory": memory, "max_partition_fetch_bytes": 200}
        changes["metadata_max_age_ms"] = 300_000
        style = self.random.choice(("one", "named", "many"))
        rate = self.random.choice((0, 0.3))
        self.lone(topics, changes, seek_rate=rate, style=style, by_hand=True)
        self.topics(config={})
        self.fault(LateResponse, 3, api=1, seconds=0.05, times=10)


class Awaited(ReadingAim):
    """Deserializers that wait for some records, in every way of reading."""

    name = "awaited"
    promises = (EVERY,)

    def compose(self) -> None:
        """Calls are cancelled, and what is buffered is dropped, while a deserializer waits."""
        self.cluster(brokers=2)
        topics = [self.producer(linger_ms=self.random.choice((0, 20)))]
        self.topics(partitions=self.random.choice((1, 3)), config={})
        changes: dict[str, Any] = {"fetch_buffer_memory": self.random.choice((1000, 1_000_000))}
        options: dict[str, Any] = {
            "deserializer_rate": self.random.choice((0.1, 0.5, 1)),
            "style": self.random.choice(("one", "many", "iterate", "iterate", "mixed")),
            "cancel_rate": self.random.choice((0, 0, 0.3)),
            "pause_rate": self.random.choice((0, 0.1)),
        }
        if self.random.random() < 0.5:
            self.lone(topics, changes, readers=self.random.choice((1, 2)), **options)
        else:
            self.group(topics, self.random.choice((1, 2)), changes, **options)
            self.fault(Rebalance, self.random.choice((0, 2)))
        self.fault(LeaderMove, self.random.choice((0, 3)))


class Transactions(ReadingAim):
    """Committed and aborted transactions in one log."""

    name = "committed-only"
    promises = (FRESH,)

    def compose(self) -> None:
        """No faults."""
        self.cluster(releases=("0.11", "2.1", "2.8", "4.0", "4.3"))
        client = {"delivery_timeout_ms": 120_000, "request_timeout_ms": 2000}
        client |= {"max_block_ms": 60_000, "transaction_timeout_ms": 60_000, "linger_ms": 0}
        plan = self.add(
            TransactionalWorkload,
            client=client,
            transactions=12,
            most_records=3,
            abort_rate=0.4,
            cancel_rate=0,
            restart_rate=0,
            flush_rate=0,
        )
        plan.options["client"].pop("buffer_memory", None)
        self.topics(partitions=self.random.choice((1, 2)), config={})
        changes: dict[str, Any] = {"isolation_level": "read_committed"}
        if self.random.random() < 0.7:
            # Much in one response.
            changes |= {"fetch_min_bytes": 50_000, "fetch_max_wait_ms": 3000}
            changes |= {"request_timeout_ms": 5000, "fetch_max_bytes": 50_000_000}
            changes |= {"max_partition_fetch_bytes": 1_000_000}
            changes |= {"fetch_buffer_memory": 50_000_000}
        self.lone([plan.options["topic"]], changes, style="many")


class Sharing(ReadingAim):
    """Members that come and go, and rebalance; nothing else happens, so nothing comes twice."""

    name = "sharing"
    promises = (FRESH, ONCE)

    def compose(self) -> None:
        """All brokers work."""
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((2, 3, 4)), config={})
        client = {"max_poll_interval_ms": 60_000, "auto_commit_interval_ms": 5000}
        count = self.random.choice((2, 2, 3))
        work = self.random.choice((0, 0.05, 0.3))
        options = {"style": self.random.choice(("one", "many", "mixed")), "work_s": work}
        options["listener"] = self.random.choice(("plain", "slow", "cancel"))
        members = self.group(topics, count, client, **options)
        for member in members:
            if "session_timeout_ms" in member["client"]:
                member["client"] |= {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 1000}
        members[0]["stays_s"] = self.random.choice((None, 2.0, 4.0))
        self.fault(Rebalance, self.random.choice((0, 1, 3)), how="rebalance")
        self.fault(Rebalance, at=self.draft.active_s - 0.2, how="rebalance")
        self.fault(UnsureOffsets, self.random.choice((0, 2)), lasts=(1.0, 3.0))


class Static(ReadingAim):
    """Static members of which one is restarted again and again, which no other member notices."""

    name = "static"
    active_s = 10.0
    promises = (STEADY,)

    def compose(self) -> None:
        """Rebalances show that all keep what they had."""
        self.cluster(releases=("2.8", "3.9", "4.0", "4.3"))
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((3, 4)), config={})
        client = {"group_protocol": "classic", "max_poll_interval_ms": 60_000}
        client |= {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 500}
        members = self.group(topics, 3, client, style="many")
        assignors = self.random.choice((["range"], ["roundrobin"]))
        for index, member in enumerate(members):
            member["client"].pop("group_remote_assignor", None)
            member["client"] |= {"assignors": assignors, "group_instance_id": f"member {index}"}
            member["comes_after_s"] = 0
        members[self.random.randrange(3)]["stays_s"] = 1.5
        for at in (5.0, 6.0, 7.0, 8.0, 9.0):
            self.fault(Rebalance, at=at, how="rebalance")


class SeekingListeners(ReadingAim):
    """Listeners that go back to the beginning whenever partitions come."""

    name = "seeking-listeners"

    def compose(self) -> None:
        """Positions are asked for at the same time."""
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((1, 2)), config={})
        client = {"max_poll_interval_ms": 60_000, "auto_commit_interval_ms": 100}
        options = {"listener": "seek", "stays_s": 1.5, "style": "many"}
        self.group(topics, self.random.choice((1, 2)), client, **options)
        self.fault(Rebalance, 3, how="rebalance")
        self.fault(LateResponse, 3, api=9, seconds=0.05, times=5)


class SeekingStarts(ReadingAim):
    """Seeks while start() asks for committed offsets."""

    name = "seeking-starts"

    def compose(self) -> None:
        """The coordinator takes its time."""
        topics = [self.producer()]
        self.topics(partitions=1, config={})
        group = {"group_id": "of one", "enable_auto_commit": False}
        options = {"commit_rate": 0.5, "restart_rate": 0.2, "seek_at_start": True}
        self.lone(topics, group, group_id="of one", style="many", by_hand=True, **options)
        self.fault(LateResponse, at=0.5, api=9, seconds=0.02, times=100, lasts=(5.0, 5.0))


class Expelled(ReadingAim):
    """Members that are thrown out, or fenced, and come back."""

    name = "expelled"
    active_s = 10.0
    promises = (MEMBERS,)

    def compose(self) -> None:
        """The coordinator forgets them."""
        self.removed(self.random.choice((1, 2)), (0.05, 0.5, 1.5))
        self.fault(Rebalance, 3, how="expire")
        self.fault(Rebalance, 3, how="fence")
        self.fault(LostResponse, 2, api=self.random.choice((68, 12, 14)), times=1)
        self.fault(LateResponse, 2, api=self.random.choice((68, 11, 14)), seconds=3.0, times=1)
        # A member that has to join again does not get there at once.
        slow = self.random.choice((0, 1))
        self.fault(LateResponse, slow, at=1.0, api=11, seconds=1.5, times=3, lasts=(8.0, 8.0))


class SlowJoins(ReadingAim):
    """Joins that take longer than a member may be idle."""

    name = "slow-joins"
    active_s = 30.0
    promises = (NO_ERRORS,)

    def compose(self) -> None:
        """The coordinator takes its time."""
        topics = [self.producer()]
        self.topics(config={})
        self.group(topics, 2, {"max_poll_interval_ms": 2000, "request_timeout_ms": 20_000})
        for api in (11, 14, 68):
            self.fault(LateResponse, at=0.0, api=api, seconds=6.0, times=2, lasts=(4.0, 14.0))


class Committing(ReadingAim):
    """Commits that overtake each other, of members that stop in every way."""

    name = "committing"

    def compose(self) -> None:
        """Answers of the coordinator are late, or say to ask again."""
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((1, 2)), config={})
        commits = self.random.choice(("beside", "beside", "auto", "sync"))
        options = {
            "commits": commits,
            "style": self.random.choice(("one", "many")),
            "work_s": self.random.choice((0, 0.05, 0.3)),
            "leaves_by": self.random.choice(("fail", "other", "stop")),
            "stays_s": self.random.choice((1.0, 2.0, 4.0)),
        }
        interval = self.random.choice((0, 50, 5000))
        client = {"auto_commit_interval_ms": interval, "max_poll_interval_ms": 60_000}
        self.group(topics, self.random.choice((1, 2)), client, **options)
        for seconds in (0.02, 0.3, 1.0):
            self.fault(LateResponse, 2, api=8, seconds=seconds, times=3)
        error = self.random.choice(
            (errors.GroupLoadInProgressError.errno, errors.RequestTimedOutError.errno)
        )
        self.fault(Refused, 3, api=8, error=error, times=2)
        self.fault(Refused, 2, api=9, error=errors.GroupLoadInProgressError.errno, times=2)


class Coordinators(ReadingAim):
    """Coordinators that move, and nothing else."""

    name = "coordinators"
    promises = (PROMPT, FRESH)

    def compose(self) -> None:
        """Between brokers that all work."""
        self.cluster(brokers=3)
        topics = [self.producer()]
        self.topics(config={})
        if self.random.random() < 0.5:
            client = {"max_poll_interval_ms": 60_000}
            self.group(topics, 1, client, commits=self.random.choice(("sync", "positions")))
        else:
            group = {"group_id": "of one", "enable_auto_commit": False}
            options = {"style": "many", "by_hand": True, "commit_rate": 0.5}
            self.lone(topics, group, group_id="of one", **options)
        self.fault(CoordinatorMove, 6)


class GoneTopics(ReadingAim):
    """A group of two topics, of which one is away for long."""

    name = "gone-topics"
    active_s = 20.0
    promises = (PROMPT,)

    def compose(self) -> None:
        """It is deleted, and made again later."""
        topics = [self.producer(), self.producer(delivery_timeout_ms=3000)]
        self.draft.workloads[1].options["topic"] = topics[1] = self.draft.new_topic().name
        self.draft.workloads[1].options["client"] |= {"max_block_ms": 1000}
        self.topics(config={})
        options = {"commits": "sync", "style": "many"}
        self.group(topics, 1, {"max_poll_interval_ms": 60_000}, **options)
        self.fault(TopicAgain, at=4.0, lasts=(13.0, 15.0), topic=topics[1])


class MadeAgain(ReadingAim):
    """A topic that is made again, and soon longer than it was."""

    name = "made-again"
    active_s = 6.0
    records = 160
    promises = (EVERY,)

    def compose(self) -> None:
        """Releases that give topics ids; the readers' fetches take long meanwhile."""
        self.cluster(releases=("3.9", "4.0", "4.3"))
        topics = [self.producer(delivery_timeout_ms=3000)]
        self.topics(partitions=1, config={})
        if self.random.random() < 0.5:
            self.lone(topics, {}, style="many")
        else:
            self.group(topics, 1, {"max_poll_interval_ms": 60_000})
        self.fault(LateResponse, at=0.2, api=1, seconds=2.0, times=10, lasts=(0.5, 0.6))
        self.fault(TopicAgain, at=0.6, lasts=(0.05, 0.1), topic=topics[0])


class Cuts(ReadingAim):
    """Logs that lose their end by an election, while they are read or between (KIP-320)."""

    name = "cuts"
    active_s = 8.0
    records = 100
    style = "send"
    promises = (EVERY,)

    def compose(self) -> None:
        """A replica that has copied nothing for a while is elected, and soon has more than the
        other had; fetches take long meanwhile.
        """
        self.cluster(brokers=2, releases=("2.1", "2.1", "2.8", "3.9", "4.3"))
        topics = [self.producer(acks=1, enable_idempotence=False)]
        self.topics(partitions=1, replicas=2, config={})
        if self.random.random() < 0.5:
            self.lone(topics, {}, style="many")
        else:
            client = {"max_poll_interval_ms": 60_000, "auto_commit_interval_ms": 100}
            self.group(topics, 1, client, stays_s=1.0)
        for at in (1.0, 4.0):
            place: dict[str, Any] = {"topic": topics[0], "partition": 0}
            for broker in (0, 1):
                lasts = (2.0, 2.0)
                self.fault(ReplicaStall, at=at, lasts=lasts, shrinks=True, broker=broker, **place)
            which = self.random.randrange(2)
            self.fault(UncleanElection, at=at + 0.5, broker=which, **place)
            self.fault(UncleanElection, at=at + 0.6, broker=1 - which, **place)
            late = self.random.choice((0.02, 2.0, 2.0))
            self.fault(LateResponse, at=at + 0.3, api=1, seconds=late, times=20, lasts=(0.4, 0.5))


class Replicas(ReadingAim):
    """Consumers that read from followers (KIP-392)."""

    name = "replicas"
    promises = (FRESH,)

    def compose(self) -> None:
        """Followers lag, leaders move, and name replicas that are not there."""
        self.cluster(brokers=3, racks=("a", "b", "c"), releases=("2.8", "3.9", "4.0", "4.3"))
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((1, 2)), replicas=3, config={})
        rack = self.random.choice(("a", "b", "c"))
        self.lone(topics, {"client_rack": rack}, style="many")
        self.fault(UnknownReplica, at=self.random.choice((0.5, 2.0)), lasts=(2.5, 3.5))
        self.fault(ReplicaLag, 2, longest=0.3)
        self.fault(LeaderMove, 2)
        self.fault(LateResponse, 2, api=1, seconds=0.5, times=5)


class InsistingReaders(ReadingAim):
    """Fetches that are refused for seconds: who asks again has to take its time."""

    name = "insisting-readers"

    def compose(self) -> None:
        """A consumer with and one without a group."""
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((1, 2)), config={})
        if self.random.random() < 0.5:
            self.lone(topics, {}, style="many")
        else:
            self.group(topics, 1, {"max_poll_interval_ms": 60_000})
        by_api = {
            1: (
                errors.NotLeaderForPartitionError.errno,
                errors.KafkaStorageError.errno,
                errors.UnknownLeaderEpoch.errno,
                errors.UnknownError.errno,
            ),
            2: (errors.LeaderNotAvailableError.errno,),
            8: (errors.GroupLoadInProgressError.errno,),
            9: (errors.GroupLoadInProgressError.errno,),
            10: (errors.GroupCoordinatorNotAvailableError.errno,),
        }
        kind = self.draft.workloads[-1].kind
        api = self.random.choice((1, 1, 2) if kind == "lone" else (1, 8, 9, 10, 10))
        error = self.random.choice(by_api[api])
        at = 0.0 if api in (9, 10) else 1.0
        if error == errors.UnknownError.errno:
            # It may be over soon, so that the reader is not told.
            self.draft.promises.append(NO_ERRORS)
        self.fault(SteadyError, at=at, lasts=(4.0, 4.8), api=api, error=error)


READING_AIMS: tuple[type[Aim], ...] = (
    Seeks,
    Awaited,
    Transactions,
    Sharing,
    Static,
    SeekingListeners,
    SeekingStarts,
    Expelled,
    SlowJoins,
    Committing,
    Coordinators,
    GoneTopics,
    MadeAgain,
    Cuts,
    Replicas,
    InsistingReaders,
)
