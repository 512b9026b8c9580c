"""Aims at producers: sequences, batches that are split, memory, waits, logins."""

from __future__ import annotations

from typing import Any

from aiokafka import errors
from tests.simulation.aims.base import Aim
from tests.simulation.faults.aimed import (
    HangingUp,
    KnownBatch,
    OldNews,
    RefusedLogins,
    SmallerLimit,
    SteadyError,
    WrittenAllTheSame,
)
from tests.simulation.faults.brokers import BrokerStop, LeaderMove
from tests.simulation.faults.network import Refusal, Reset, SilentLine
from tests.simulation.faults.replicas import Hang
from tests.simulation.faults.responses import LateResponse, LostResponse, Refused
from tests.simulation.faults.topics import TopicAgain
from tests.simulation.promises import DELIVERED, NO_ERRORS, PATIENT, PROMPT
from tests.simulation.scenario import WorkloadPlan
from tests.simulation.workloads.lone import LoneWorkload
from tests.simulation.workloads.odd import OddWorkload
from tests.simulation.workloads.producing import ProducerWorkload

_LOST: dict[str, Any] = {"api": 0, "handled": True}
_MOVED: dict[str, Any] = {"api": 0, "error": errors.NotLeaderForPartitionError.errno}


class DeliveringAim(Aim):
    """One idempotent producer that nothing hurries."""

    active_s = 6.0

    def producer(self, client: dict[str, Any], **options: Any) -> WorkloadPlan:
        """One that goes on for as long as the faults last, and is not cancelled."""
        plain = {"cancel_rate": 0, "restart_rate": 0, "stop_s": None, "to_partition": False}
        usual = {"acks": "all", "enable_idempotence": True, "delivery_timeout_ms": 120_000}
        usual |= {"max_block_ms": 60_000, "request_timeout_ms": 1000, "linger_ms": 0}
        plan = self.add(ProducerWorkload, client=usual | client, **plain | options)
        for name in ("buffer_memory", "retry_backoff_ms", "reconnect_backoff_ms"):
            if name not in client:
                plan.options["client"].pop(name, None)
        return plan


class Resent(DeliveringAim):
    """Batches that are larger than a request when they are not compressed, and sent twice."""

    name = "resent"
    promises = (DELIVERED,)

    def compose(self) -> None:
        """Answers to produce requests are lost."""
        self.producer(
            {
                "compression_type": "gzip",
                "max_request_size": 2500,
                "max_batch_size": 16_384,
                "linger_ms": 50,
            },
            style="together",
            sizes=[400, 1200],
            records=60,
        )
        self.topics(partitions=1, config={})
        self.fault(LostResponse, 5, **_LOST, times=1)


class OldDuplicates(DeliveringAim):
    """Brokers that know a batch again only as one that they have had."""

    name = "old-duplicates"
    promises = (DELIVERED,)

    def compose(self) -> None:
        """They cannot say any more where it is."""
        self.cluster(releases=("0.11", "1.1"))
        self.producer({"max_batch_size": 200}, style="together", sizes=[40, 60], records=40)
        self.topics(config={})
        self.fault(LostResponse, 2, **_LOST, how="cut", times=1)
        self.fault(KnownBatch, 3, lasts=(0.3, 1.0))


class Limits(DeliveringAim):
    """A topic that takes smaller batches while some are on their way."""

    name = "limits"

    def compose(self) -> None:
        """The limit goes down while answers are lost."""
        self.producer(
            {"compression_type": None, "max_batch_size": 2000, "linger_ms": 100},
            style=self.random.choice(("send", "together")),
            sizes=[20, 60],
            flush_rate=0.2,
            records=200,
        )
        self.topics(partitions=1, config={})
        self.fault(SmallerLimit, 4, lasts=(0.3, 1.5))
        self.fault(LostResponse, 6, **_LOST, times=1)


class Sequences(DeliveringAim):
    """Many small batches in flight, of which some fail."""

    name = "sequences"
    active_s = 4.0
    promises = (DELIVERED,)

    def compose(self) -> None:
        """Leaders move, answers are lost, requests are refused."""
        self.cluster(brokers=2)
        self.producer(
            {
                "max_batch_size": self.random.choice((100, 200)),
                "max_in_flight_requests_per_connection": 5,
                "compression_type": None,
            },
            style="together",
            sizes=[40, 60],
            keys=0,
            records=100,
        )
        self.topics(partitions=self.random.choice((1, 2)), replicas=2, config={})
        self.fault(LeaderMove, 3)
        self.fault(LostResponse, 3, **_LOST, how="cut")
        self.fault(Refused, 3, **_MOVED, times=self.random.choice((1, 2, 3)))
        self.fault(Refused, at=0.0, **_MOVED, times=1)
        self.fault(WrittenAllTheSame, 2, lasts=(0.3, 1.0))
        self.fault(Reset, 2)


class Expiring(DeliveringAim):
    """Records whose time is over, in the buffer or on their way."""

    name = "expiring"

    def compose(self) -> None:
        """Nothing is answered for longer than records may take."""
        self.cluster(brokers=self.random.choice((1, 2)))
        self.producer(
            {
                "max_batch_size": 200,
                "delivery_timeout_ms": self.random.choice((1000, 1500)),
                "linger_ms": 0,
            },
            style=self.random.choice(("send", "together")),
            sizes=[40, 60],
            flush_rate=0.2,
            records=60,
        )
        self.topics(partitions=self.random.choice((1, 2)), config={})
        self.fault(Hang, 2, apis=[0], lasts=(1.0, 2.5))
        self.fault(LateResponse, 2, api=0, seconds=1.2, times=3)
        self.fault(LostResponse, 2, **_LOST)
        self.fault(Refused, 2, **_MOVED, times=20)


class FullMemory(DeliveringAim):
    """Several calls that wait for memory, while all is well."""

    name = "full-memory"
    promises = (NO_ERRORS, PROMPT)

    def compose(self) -> None:
        """No fault at all."""
        self.producer(
            {
                "buffer_memory": 2000,
                "max_batch_size": 16_384,
                "linger_ms": self.random.choice((0, 20_000)),
                "compression_type": None,
            },
            style="together",
            sizes=[300, 800],
            records=40,
            headers=True,
            cancel_rate=self.random.choice((0, 0.3)),
        )
        self.topics(config={})


class Crowds(DeliveringAim):
    """Many calls that wait for the memory of one large record, which takes its time."""

    name = "crowds"
    active_s = 20.0
    promises = (NO_ERRORS, PROMPT)

    def compose(self) -> None:
        """Brokers take half a second for each request."""
        self.producer(
            {
                "buffer_memory": 10_000,
                "max_batch_size": 16_384,
                "max_request_size": 100_000,
                "request_timeout_ms": 20_000,
                "compression_type": None,
            },
            style="crowd",
            crowd=40,
            largest=9600,
            sizes=[300, 400],
            keys=0,
            flush_rate=0,
            records=41,
            headers=False,
        )
        self.topics(partitions=1, config={})
        active = self.draft.active_s
        self.fault(LateResponse, at=0.0, lasts=(active, active), api=0, seconds=0.5, times=1000)


class OddCalls(DeliveringAim):
    """Topics and partitions that are not there, calls that wait while others stop the client."""

    name = "odd-calls"

    def compose(self) -> None:
        """Few faults."""
        self.cluster(settings={"auto.create.topics.enable": "false"})
        self.add(OddWorkload)
        self.fault(SilentLine, self.random.choice((0, 0, 1)), lasts=(0.5, 2.0))


class Outage(DeliveringAim):
    """An outage that is longer than topics are remembered without use."""

    name = "outage"
    active_s = 30.0
    promises = (DELIVERED,)

    def compose(self) -> None:
        """All brokers, or the only leader, are away."""
        self.cluster(brokers=self.random.choice((1, 2)))
        self.producer(
            {"metadata_max_idle_ms": 3000, "metadata_max_age_ms": 2000},
            style="together",
            sizes=[8, 100],
            records=30,
        )
        self.topics(replicas=1, config={})
        for broker in range(self.draft.cluster.brokers):
            self.fault(BrokerStop, at=8.0, lasts=(8.0, 15.0), broker=broker)


class TopicsAgain(DeliveringAim):
    """A topic that is made again, by brokers that give topics no ids."""

    name = "topics-again"
    active_s = 10.0

    def compose(self) -> None:
        """Its leaders have moved before."""
        self.cluster(brokers=3, releases=("2.1", "2.1", "4.3"))
        client = {"metadata_max_age_ms": 2000, "delivery_timeout_ms": 11_000}
        self.producer(client, style="wait", records=30)
        self.topics(partitions=1, replicas=2, config={})
        for at in (1.0, 2.0, 3.0):
            self.fault(LeaderMove, 2, at=at)
        self.fault(TopicAgain, at=4.0, lasts=(0.5, 1.0), topic="t0")


class Credentials(DeliveringAim):
    """Logins are refused for a moment while records are on their way."""

    name = "credentials"
    promises = (DELIVERED,)

    def compose(self) -> None:
        """Connections break meanwhile."""
        lifetime = self.random.choice((0, 1500, 1500))
        sasl = self.random.choice(("PLAIN", "PLAIN", "SCRAM-SHA-256"))
        self.cluster(brokers=2, sasl=sasl, lifetime_ms=lifetime)
        self.producer({}, style=self.random.choice(("send", "together")), records=60)
        self.topics(config={})
        self.fault(RefusedLogins, 2, lasts=(0.3, 2.5))
        self.fault(LateResponse, 2, api=0, seconds=0.3, times=50, lasts=(2.0, 4.0))


class Insisting(DeliveringAim):
    """Errors that last for seconds: who asks again has to take its time."""

    name = "insisting"
    apis = (0, 0, 1, 3, 10, 22)

    def compose(self) -> None:
        """One API is refused again and again."""
        client = {"max_block_ms": 3000}
        plan = self.producer(client, style="together", sizes=[8, 40], records=60)
        self.topics(partitions=self.random.choice((1, 2)), config={})
        self.add(LoneWorkload, topics=[plan.options["topic"]], cancel_rate=0, seek_rate=0)
        self.draft.workloads[-1].options["client"].pop("retry_backoff_ms", None)
        self.fault(SteadyError, at=1.0, lasts=(3.0, 4.5), **self._refused())

    def _refused(self) -> dict[str, Any]:
        api = self.random.choice(self.apis)
        by_api = {
            0: errors.NotEnoughReplicasError.errno,
            1: errors.NotLeaderForPartitionError.errno,
            3: errors.LeaderNotAvailableError.errno,
        }
        return {
            "api": api,
            "error": by_api.get(api, errors.GroupCoordinatorNotAvailableError.errno),
        }


class Unreachable(DeliveringAim):
    """Brokers that refuse connections, or close them at once."""

    name = "unreachable"
    promises = (PATIENT,)

    def compose(self) -> None:
        """One broker of two."""
        self.cluster(brokers=self.random.choice((1, 2)))
        self.producer({}, style="together", sizes=[8, 40], records=60)
        self.topics(config={})
        if self.random.random() < 0.5:
            self.fault(HangingUp, at=1.0, lasts=(3.0, 4.5), broker=0)
        else:
            self.fault(Refusal, at=1.0, lasts=(3.0, 4.5), broker=0)
            self.fault(Reset, at=1.01, which="all")


class OldLeaders(DeliveringAim):
    """Leaders that send producers to each other."""

    name = "old-leaders"

    def compose(self) -> None:
        """Releases that name the new leader in their responses."""
        self.cluster(brokers=2, releases=("3.9", "4.0", "4.3"))
        self.producer({}, style="together", sizes=[8, 40], records=40)
        self.topics(partitions=1, replicas=2, config={})
        self.fault(LeaderMove, 3, at=0.2)
        self.fault(OldNews, at=1.0, lasts=(3.0, 4.0), broker=self.random.randrange(2))


class Bulk(DeliveringAim):
    """More than a connection takes at once, and connections that break."""

    name = "bulk"
    promises = (DELIVERED,)

    def compose(self) -> None:
        """Packets get lost, so that requests wait before the connection."""
        self.cluster(brokers=1)
        self.producer(
            {"max_batch_size": 100_000, "compression_type": None, "request_timeout_ms": 2000},
            style="together",
            sizes=[40_000, 90_000],
            records=40,
        )
        self.topics(partitions=4, config={})
        self.fault(SilentLine, 2, way="to server", lasts=(0.5, 2.5))
        self.fault(Reset, 2)


class NewLeaders(DeliveringAim):
    """Leaders that move, and nothing else: no client waits until metadata is too old."""

    name = "new-leaders"
    active_s = 4.0
    promises = (NO_ERRORS, PROMPT)

    def compose(self) -> None:
        """Between brokers that all work."""
        self.cluster(brokers=3)
        client = {"metadata_max_age_ms": 300_000, "delivery_timeout_ms": 9000}
        style = self.random.choice(("wait", "together"))
        self.producer(client, style=style, flush_rate=0.3, records=40)
        self.topics(replicas=3, config={})
        self.fault(LeaderMove, 4)
        error = errors.NotEnoughReplicasError.errno
        self.fault(Refused, 3, api=0, error=error, times=1)


DELIVERING_AIMS: tuple[type[Aim], ...] = (
    Resent,
    OldDuplicates,
    Limits,
    Sequences,
    Expiring,
    FullMemory,
    Crowds,
    OddCalls,
    Outage,
    TopicsAgain,
    Credentials,
    Insisting,
    Unreachable,
    OldLeaders,
    Bulk,
    NewLeaders,
)
