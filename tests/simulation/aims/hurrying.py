"""Aims at limits of time: calls that have little of it, behind brokers that take theirs."""

from __future__ import annotations

from typing import Any

from tests.simulation.aims.base import Aim
from tests.simulation.aims.reading import ReadingAim
from tests.simulation.faults.brokers import LeaderMove, Throttle
from tests.simulation.faults.groups import Rebalance
from tests.simulation.faults.network import Reset
from tests.simulation.faults.responses import LateResponse
from tests.simulation.promises import MEMBERS
from tests.simulation.workloads.administering import AdminWorkload
from tests.simulation.workloads.producing import ProducerWorkload
from tests.simulation.workloads.ranging import RangeWorkload
from tests.simulation.workloads.sessions import SessionWorkload
from tests.simulation.workloads.transacting import TransactionalWorkload

_OTHERS = (
    AdminWorkload,
    ProducerWorkload,
    RangeWorkload,
    SessionWorkload,
    TransactionalWorkload,
)


class _Hurrying(ReadingAim):
    """Members that come, stay for a moment, and have little time to go; and another program."""

    active_s = 12.0

    def members(self, topics: list[str], **client: Any) -> None:
        """A group in which members come and go all the time."""
        limit = self.random.choice((500, 2000, 60_000))
        usual = {"max_poll_interval_ms": 60_000, "default_api_timeout_ms": limit}
        usual["request_timeout_ms"] = self.random.choice((1000, 5000, 40_000))
        options = {
            "style": self.random.choice(("one", "many")),
            "commits": self.random.choice(("auto", "sync", "beside")),
            "leaves_by": self.random.choice(("fail", "other", "stop")),
        }
        for member in self.group(topics, 3, usual | client, **options):
            member["stays_s"] = self.random.choice((1.0, 3.0, 6.0))

    def other(self) -> None:
        """A program with limits as they are drawn."""
        self.add(self.random.choice(_OTHERS))


class Throttled(_Hurrying):
    """Requests that wait behind others on a connection of which a broker reads one in seconds."""

    name = "throttled"

    def compose(self) -> None:
        """Brokers throttle nearly all the time; connections are new, and full at once."""
        self.cluster(brokers=self.random.choice((1, 1, 2)), releases=("2.8", "3.9", "4.3"))
        self.members([self.producer()])
        self.other()
        self.topics(config={})
        throttle = {"milliseconds": self.random.choice((200, 3000, 3000))}
        self.fault(Throttle, 2, at=1.0, lasts=(5.0, 11.0), **throttle)
        self.fault(Reset, 4)
        self.fault(LeaderMove, 2)
        self.fault(Rebalance, 2, how="rebalance")


class SlowHandshakes(_Hurrying):
    """Connections that take seconds to be made."""

    name = "slow-handshakes"

    def compose(self) -> None:
        """ApiVersions is slow, what follows is not."""
        self.members([self.producer()])
        self.other()
        self.topics(config={})
        for seconds in (1.0, 3.0, 3.0):
            self.fault(LateResponse, api=18, seconds=seconds, times=5, lasts=(1.0, 6.0))
        self.fault(Reset, 5)


class LateReturns(ReadingAim):
    """Members that are removed while they join, and wait before they ask again."""

    name = "late-returns"
    active_s = 12.0
    promises = (MEMBERS,)

    def compose(self) -> None:
        """Those who are members meanwhile get their partitions."""
        backoff = self.random.choice((500, 1000))
        for member in self.removed(3, (0, 0.05, 0.5)):
            member["client"]["retry_backoff_ms"] = backoff
        self.fault(Rebalance, 2, how="rebalance")
        for how in ("expire", "fence"):
            self.fault(Rebalance, 2, how=how)
        for api in (11, 14, 68):
            self.fault(LateResponse, 2, api=api, seconds=1.0, times=2)


HURRYING_AIMS: tuple[type[Aim], ...] = (Throttled, SlowHandshakes, LateReturns)
