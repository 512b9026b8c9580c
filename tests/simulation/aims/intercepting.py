"""Aims at interceptors, and at the context variables of what clients do in the background."""

from __future__ import annotations

from typing import Any

from tests.simulation.aims.base import Aim
from tests.simulation.aims.reading import ReadingAim
from tests.simulation.faults.brokers import BrokerStop, LeaderMove
from tests.simulation.faults.groups import Rebalance
from tests.simulation.faults.network import Reset
from tests.simulation.faults.replicas import ReplicaStall, UncleanElection
from tests.simulation.faults.responses import LateResponse
from tests.simulation.promises import DELIVERED, EVERY, ONCE, SILENT
from tests.simulation.workloads.producing import ProducerWorkload

_CALM: dict[str, Any] = {
    "form": "coroutine",
    "slow_s": 0.05,
    "raise_rate": 0,
    "replace_rate": 0,
    "drop_rate": 0,
    "seek_rate": 0,
    "pause_rate": 0,
    "commit_rate": 0,
    "stop_rate": 0,
    "notes": "either",
    "note_s": 0.001,
}


class _Intercepting(ReadingAim):
    """Consumers whose interceptors take their time."""

    def interceptors(self, **changes: Any) -> dict[str, Any]:
        """Options of interceptors which leave everything as it is."""
        return _CALM | {"slow_s": self.random.choice((0.01, 0.05, 0.2))} | changes


class Shown(_Intercepting):
    """What is buffered is dropped while interceptors look at records of it."""

    name = "shown"
    records = 60

    def compose(self) -> None:
        """Two tasks of one program read; the one needs the room that the other's records take."""
        self.cluster(brokers=self.random.choice((1, 2)))
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((2, 3)), config={})
        memory = self.random.choice((1, 200, 1000))
        changes: dict[str, Any] = {"fetch_buffer_memory": memory, "metadata_max_age_ms": 500}
        changes["max_partition_fetch_bytes"] = self.random.choice((200, 1000))
        rates = {"raise_rate": self.random.choice((0, 0.2)), "pause_rate": 0.1}
        rates |= {"replace_rate": self.random.choice((0, 0.2))}
        options: dict[str, Any] = {"interceptors": self.interceptors(**rates)}
        options |= {"readers": 2, "style": self.random.choice(("single", "mixed", "many", "one"))}
        options["cancel_rate"] = self.random.choice((0, 0.3, 0.7))
        if self.random.random() < 0.5:
            options["interceptors"]["seek_rate"] = self.random.choice((0, 0.1))
            self.lone(topics, changes, **options)
        else:
            options["interceptors"]["commit_rate"] = self.random.choice((0, 0.1))
            changes |= {"max_poll_interval_ms": 60_000, "auto_commit_interval_ms": 20}
            self.group(topics, 1, changes, **options)
        self.fault(LateResponse, 3, api=1, seconds=0.05, times=10)
        self.fault(LeaderMove, self.random.choice((0, 5)))


class ShownCuts(_Intercepting):
    """Logs lose their end while interceptors look at records of it (KIP-320)."""

    name = "shown-cuts"
    active_s = 8.0
    records = 200
    promises = (EVERY,)

    def compose(self) -> None:
        """Leaders change to replicas that have copied nothing for a while."""
        self.cluster(brokers=2, releases=("2.1", "2.8", "3.9", "4.3"))
        topics = [self.producer(acks=1, enable_idempotence=False)]
        self.topics(partitions=1, replicas=2, config={})
        changes: dict[str, Any] = {"metadata_max_age_ms": 100}
        looks = self.interceptors(slow_s=self.random.choice((0.2, 0.5)))
        rate = self.random.choice((0.3, 0.9))
        self.lone(topics, changes, style="many", interceptors=looks, cancel_rate=rate)
        for at in (1.0, 3.0, 5.0):
            place: dict[str, Any] = {"topic": topics[0], "partition": 0}
            for broker in (0, 1):
                lasts = (1.2, 1.2)
                self.fault(ReplicaStall, at=at, lasts=lasts, shrinks=True, broker=broker, **place)
            which = self.random.randrange(2)
            # Those that are shown then are partly from before the copies stopped.
            self.fault(UncleanElection, at=at + 0.3, broker=which, **place)
            self.fault(UncleanElection, at=at + 0.8, broker=1 - which, **place)


class PassedOn(Aim):
    """Sends that are cancelled, or fail, before, in and after their interceptors."""

    name = "passed-on"
    active_s = 6.0

    def compose(self) -> None:
        """Hardly any memory, so that calls wait; what waits is late now and then."""
        self.cluster(brokers=self.random.choice((1, 2)))
        looks = _CALM | {"slow_s": self.random.choice((0, 0.01, 0.2)), "form": "either"}
        looks |= {"raise_rate": 0.2, "replace_rate": 0.3, "note_s": self.random.choice((0, 0.02))}
        client = {"buffer_memory": 2000, "max_block_ms": 500, "compression_type": None}
        self.add(
            ProducerWorkload,
            client=client,
            interceptors=looks,
            style=self.random.choice(("send", "together", "mixed")),
            records=60,
            cancel_rate=self.random.choice((0, 0.3)),
            stop_s=self.random.choice((None, 0, 1.0)),
            restart_rate=self.random.choice((0, 0.1)),
        )
        self.fault(LateResponse, 3, api=0, seconds=1.0, times=3)
        self.fault(LeaderMove, 2)


class Contexts(_Intercepting):
    """Programs whose calls have context variables, and connections that are made all the time."""

    name = "contexts"
    promises = (DELIVERED,)

    def compose(self) -> None:
        """Brokers and connections come and go."""
        self.cluster(brokers=3, sasl="PLAIN", lifetime_ms=self.random.choice((0, 1500)))
        topics = [self.producer(linger_ms=self.random.choice((0, 20, 100)))]
        notes = self.interceptors(slow_s=0, raise_rate=0.1, replace_rate=0.3)
        self.draft.workloads[-1].options["interceptors"] = notes
        self.topics(partitions=3, replicas=3, config={})
        options: dict[str, Any] = {"interceptors": self.interceptors(slow_s=0.001)}
        if self.random.random() < 0.5:
            self.lone(topics, {}, **options)
        else:
            self.group(topics, 1, {"max_poll_interval_ms": 60_000}, **options)
        self.fault(Reset, 3)
        self.fault(LeaderMove, 3)
        self.fault(BrokerStop, self.random.choice((0, 1)))


class TakenAway(_Intercepting):
    """Partitions are taken away from members whose interceptors look at their records."""

    name = "taken-away"

    def compose(self) -> None:
        """Members come and go, and rebalance; listeners take their time."""
        topics = [self.producer()]
        self.topics(partitions=self.random.choice((2, 3, 4)), config={})
        client = {"max_poll_interval_ms": 60_000, "auto_commit_interval_ms": 5000}
        options = {"interceptors": self.interceptors(), "style": "many"}
        options["listener"] = self.random.choice(("plain", "slow", "slow"))
        members = self.group(topics, 2, client, **options)
        for member in members:
            if "session_timeout_ms" in member["client"]:
                member["client"] |= {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 500}
        self.fault(Rebalance, 4, how="rebalance")


class Seized(TakenAway):
    """The same, with all that the manual says: nothing is returned while a listener is at work, so
    nothing that its commit does not have, and another member reads again."""

    name = "seized"
    promises = (ONCE, SILENT)


INTERCEPTING_AIMS: tuple[type[Aim], ...] = (
    Shown,
    ShownCuts,
    TakenAway,
    Seized,
    PassedOn,
    Contexts,
)
