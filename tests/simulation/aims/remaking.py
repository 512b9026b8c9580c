"""Aims at topics that are made again, and at metadata that goes back."""

from __future__ import annotations

from typing import Any

from tests.simulation.aims.base import Aim
from tests.simulation.aims.reading import ReadingAim
from tests.simulation.faults.brokers import LeaderMove
from tests.simulation.faults.groups import Rebalance
from tests.simulation.faults.metadata import OlderMetadata
from tests.simulation.faults.responses import LateResponse
from tests.simulation.faults.topics import MorePartitions, TopicAgain
from tests.simulation.promises import EVERY, ONCE
from tests.simulation.remade import CLASSIC, KIP_848

_LISTENERS = ("plain", "plain", "slow", "cancel")


class _Remaking(ReadingAim):
    """A producer that writes all the time, before and after, and groups of either protocol."""

    active_s = 12.0
    records = 200
    style = "send"

    def members(self, topics: list[str], count: int, protocol: str) -> list[dict[str, Any]]:
        """Add a group that speaks this protocol; some of its members come later."""
        choice = self.random.choice
        client: dict[str, Any] = {"max_poll_interval_ms": 60_000}
        client["metadata_max_age_ms"] = choice((500, 2000, 300_000))
        client["auto_commit_interval_ms"] = choice((100, 1000, 5000))
        members = self.group(
            topics,
            count,
            client,
            commits=choice(("auto", "auto", "sync")),
            style=choice(("one", "many", "mixed")),
            listener=choice(_LISTENERS),
            work_s=choice((0, 0, 0.05)),
        )
        are_all_there = self.random.random() < 0.5
        assignors = choice((["range"], ["sticky"], ["cooperative"]))
        for member in members:
            for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignors"):
                member["client"].pop(name, None)
            member["client"].pop("group_remote_assignor", None)
            member["client"]["group_protocol"] = protocol
            if protocol == CLASSIC:
                times = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 1000}
                member["client"] |= {"assignors": assignors} | times
            if are_all_there:
                member["comes_after_s"] = 0
        return members

    def again(self, topic: str, *, partitions: int | None = None) -> float:
        """Have the topic made again; returns when that begins."""
        at = round(self.random.uniform(1.5, 6.0), 3)
        place: dict[str, Any] = {"topic": topic}
        if partitions is not None:
            place["partitions"] = partitions
        longest = self.random.choice((0.1, 0.1, 1.0))
        self.fault(TopicAgain, at=at, lasts=(0.02, longest), **place)
        return at

    def lag(self, at: float, delays: tuple[float, ...] = (0.05, 0.3, 1.0, 3.0)) -> None:
        """Have brokers describe the cluster as it was before this time, later."""
        for _ in range(self.random.choice((1, 1, 2))):
            began = max(0.0, at - self.random.uniform(0.1, 1.0))
            after = at - began + self.random.choice(delays)
            self.fault(OlderMetadata, at=began, lasts=(4.0, 8.0), after=round(after, 3))


class MadeAgainShared(_Remaking):
    """Groups of a topic that is made again: each of its records comes to one member, once."""

    name = "made-again-shared"

    def compose(self) -> None:
        """Brokers of which some lag behind, and members that come and go."""
        protocol = self.random.choice((KIP_848, KIP_848, KIP_848, CLASSIC))
        self.cluster(
            brokers=self.random.choice((1, 3)), releases=("4.3", "4.3", "4.3", "4.0", "3.9")
        )
        if self.draft.cluster.release == "3.9":
            protocol = CLASSIC
        settings = self.draft.cluster.settings
        if self.random.random() < 0.5:
            # Members have metadata of the next topic for long before the group assigns that.
            settings = settings | {
                "group.consumer.session.timeout.ms": "20000",
                "group.consumer.heartbeat.interval.ms": "5000",
            }
            self.cluster(settings=settings)
        topics = [self.producer(delivery_timeout_ms=3000)]
        self.topics(partitions=self.random.choice((1, 2, 3)), config={})
        members = self.members(topics, self.random.choice((1, 2, 2, 3)), protocol)
        at = self.again(topics[0], partitions=self.random.choice((None, None, 1, 3, 6)))
        # Before 4.1, a position in the former topic that is stored for the next, by its name, has
        # other members skip records, or read some again.
        if self.draft.cluster.release == "4.3":
            self.draft.promises.extend((EVERY, ONCE))
            # Members of a classic group that come to the topic when it was made again know no
            # former one, and take that of a broker that lags behind for the newest.
            if protocol == KIP_848:
                self.lag(at)
            members[0]["stays_s"] = self.random.choice((None, 3.0, 6.0))
            self.fault(Rebalance, self.random.choice((0, 1, 2)), how="rebalance")
        self.fault(LateResponse, 2, api=1, seconds=self.random.choice((0.1, 1.0)), times=3)


class Lagging(_Remaking):
    """One reader, or a group, and brokers that describe the cluster as it was."""

    name = "lagging"

    def compose(self) -> None:
        """Before a topic was made again, or leaders moved and partitions were added."""
        self.cluster(brokers=3, releases=("3.9", "4.0", "4.3", "4.3", "4.3"))
        topics = [self.producer(delivery_timeout_ms=3000)]
        self.topics(partitions=self.random.choice((1, 2)), config={})
        is_made_again = self.random.random() < 0.7
        # Offsets that were stored by name for the next topic are forgotten once a broker shows the
        # former one again, and then taken for the group's: records are skipped.
        if self.random.random() < 0.3 or (is_made_again and self.draft.cluster.release != "4.3"):
            self.lone(topics, {}, style="many", by_hand=self.random.random() < 0.5)
        else:
            count = 1 if is_made_again else 2
            protocol = CLASSIC
            if self.draft.cluster.release != "3.9":
                protocol = self.random.choice((CLASSIC, KIP_848))
            for member in self.members(topics, count, protocol):
                member["client"]["metadata_max_age_ms"] = self.random.choice((500, 2000))
        if is_made_again:
            self.draft.promises.append(EVERY)
            at = self.again(topics[0])
            self.fault(Rebalance, self.random.choice((0, 1)), at=at + 0.8, how="rebalance")
        else:
            self.draft.promises.append(ONCE)
            at = round(self.random.uniform(1.5, 6.0), 3)
            self.fault(LeaderMove, at=at)
            self.fault(MorePartitions, at=at + 0.1)
        self.lag(at)


class TakenOver(_Remaking):
    """Members without partitions, who have heard of nothing when they take over another's."""

    name = "taken-over"

    def compose(self) -> None:
        """The owner reads the next topic, and leaves."""
        self.cluster(releases=("4.3", "4.3", "3.9"))
        topics = [self.producer(delivery_timeout_ms=3000)]
        self.topics(partitions=1, config={})
        is_new, protocol = self.draft.cluster.release == "4.3", CLASSIC
        if is_new:
            protocol = self.random.choice((CLASSIC, CLASSIC, CLASSIC, KIP_848))
            self.draft.promises.append(EVERY)
        members = self.members(topics, self.random.choice((2, 3)), protocol)
        for member in members:
            member["comes_after_s"] = 0
            member["client"]["metadata_max_age_ms"] = 300_000
            member["stays_s"] = self.random.choice((4.0, 6.0))
        at = self.again(topics[0])
        if is_new and self.random.random() < 0.5:
            # One stays, and loses the partition for a while. The others know no former topic after
            # their return, so that a broker that lags behind has them read again.
            for member in members:
                member["client"]["metadata_max_age_ms"] = 500
                member["stays_s"] = 1.0
                if protocol == CLASSIC:
                    member["client"]["assignors"] = ["range"]
            # Not the first one, which has the partition whenever it is there.
            members[-1]["stays_s"] = None
            self.lag(at, (1.5, 2.5, 3.5))
        elif is_new:
            self.draft.promises.append(ONCE)


REMAKING_AIMS: tuple[type[Aim], ...] = (MadeAgainShared, Lagging, TakenOver)
