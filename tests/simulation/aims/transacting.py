"""Aims at transactions: how they end, what they contain, who owns the id."""

from __future__ import annotations

from typing import Any

from aiokafka import errors
from tests.simulation.aims.base import Aim
from tests.simulation.faults.aimed import MixedCodes, SteadyError
from tests.simulation.faults.brokers import BrokerStop
from tests.simulation.faults.groups import HeldMarkers
from tests.simulation.faults.replicas import Hang, Upgrade
from tests.simulation.faults.responses import LateResponse, LostResponse, Refused
from tests.simulation.promises import LATE_ONLY, NO_ERRORS, PROMPT, USABLE
from tests.simulation.scenario import FaultPlan
from tests.simulation.workloads.pipeline import PipelineWorkload
from tests.simulation.workloads.producing import ProducerWorkload
from tests.simulation.workloads.transacting import TransactionalWorkload
from tests.simulation.workloads.turmoil import TurmoilWorkload

_OLD = ("1.1", "2.1", "2.8")
# Before, what a broker gets to after the end of a transaction is part of none, or of the next.
_NO_LATE_WRITES = (4, 0)
_USUAL = ("0.11", "2.1", "2.8", "3.9", "4.0", "4.3", "4.3")


class _Transacting(Aim):
    """One transactional producer that nothing hurries."""

    active_s = 5.0

    def producer(
        self, kind: type[TransactionalWorkload], client: dict[str, Any], **options: Any
    ) -> None:
        """One that goes on for as long as the faults last."""
        plain = {"cancel_rate": 0, "restart_rate": 0, "stop_s": None, "to_partition": False}
        plain |= {"transactions": 12, "most_records": 5}
        usual = {"delivery_timeout_ms": 120_000, "max_block_ms": 60_000}
        usual |= {"request_timeout_ms": 1000, "transaction_timeout_ms": 60_000, "linger_ms": 0}
        plan = self.add(kind, client=usual | client, **plain | options)
        plan.options["client"].pop("buffer_memory", None)
        self.topics(config={})


class _Copying(Aim):
    """Members of a group that copy records in transactions."""

    active_s = 5.0

    def pipeline(self, **member: Any) -> None:
        """Members that come and go, each with these options."""
        self.cluster(releases=("2.8", "3.9", "4.0", "4.3", "4.3"))
        self.add(ProducerWorkload, cancel_rate=0)
        plan = self.add(PipelineWorkload)
        for options in plan.options["members"]:
            options |= {"cancel_rate": 0, "stays_s": 5.0} | member
        self.topics(config={})


class EarlyAborts(_Transacting):
    """Aborts while requests are refused: none takes long."""

    name = "early-aborts"
    promises = (PROMPT, USABLE)

    def compose(self) -> None:
        """Records are refused again and again."""
        self.cluster(releases=_USUAL)
        self.producer(TransactionalWorkload, {"linger_ms": 20}, abort_rate=0.8)
        self.fault(
            Refused,
            6,
            api=0,
            error=errors.NotLeaderForPartitionError.errno,
            times=5,
            lasts=(0.5, 2.0),
        )
        self.fault(LateResponse, 2, api=0, seconds=0.05, times=5)


class Turmoil(_Transacting):
    """Several ends at once, and producers that are stopped or replaced; no faults."""

    name = "turmoil"
    promises = (PROMPT,)

    def compose(self) -> None:
        """One program."""
        self.cluster(releases=_USUAL)
        client = {"linger_ms": self.random.choice((0, 50))}
        self.producer(TurmoilWorkload, client, abort_rate=0.2)


class Rivals(_Transacting):
    """Two producers with one id; no faults."""

    name = "rivals"
    promises = (PROMPT,)

    def compose(self) -> None:
        """One after the other."""
        self.cluster(releases=(*_OLD, *_USUAL))
        self.producer(TurmoilWorkload, {}, abort_rate=0, habits=["rival"])


class LateOffsets(_Transacting):
    """Offsets that are on their way when their transaction ends."""

    name = "late-offsets"

    def compose(self) -> None:
        """Coordinators take their time."""
        self.cluster(brokers=3, releases=(*_OLD, *_USUAL))
        habits = ["beside", "plain", "recalled"]
        self.producer(TurmoilWorkload, {}, abort_rate=0.2, habits=habits)
        for api in (10, 25, 28):
            seconds = self.random.choice((0.02, 0.05, 0.3))
            self.fault(LateResponse, 3, api=api, seconds=seconds, times=10, lasts=(1.0, 3.0))


class MixedAnswers(_Transacting):
    """Partitions of one request are answered with different codes."""

    name = "mixed-answers"
    promises = (NO_ERRORS, USABLE)

    def compose(self) -> None:
        """Records for several partitions begin at the same time."""
        self.cluster(releases=("0.11", "2.1", "2.8", "3.9"))
        options = {"keys": 0, "flush_rate": 0, "most_records": 10, "transactions": 20}
        client = {"linger_ms": 20, "max_batch_size": 200}
        self.producer(TransactionalWorkload, client, abort_rate=0, **options)
        self.topics(partitions=4)
        self.fault(MixedCodes, 6, lasts=(0.5, 2.0))


class LostEnds(_Transacting):
    """Ends of transactions whose responses are lost, and calls that are cancelled."""

    name = "lost-ends"
    promises = (USABLE,)

    def compose(self) -> None:
        """Brokers that give no new epoch with the response, and others."""
        self.cluster(releases=(*_OLD, "4.3"))
        self.producer(TransactionalWorkload, {}, abort_rate=0.5, cancel_rate=0.3)
        self.fault(LostResponse, 4, api=26, handled=True, how="cut", times=1)
        self.fault(LateResponse, 3, api=22, seconds=0.3, times=3)
        self.fault(LateResponse, 3, api=26, seconds=0.3, times=3)


class UnclearEnds(_Transacting):
    """Ends of transactions without a response, whose repetition is refused for a reason of the
    broker's own; programs that go on with the next begin, as at the end of a block."""

    name = "unclear-ends"

    def compose(self) -> None:
        """Coordinators in trouble."""
        self.cluster(releases=(*_OLD, *_USUAL))
        leaves = self.random.choice((0, 0.7))
        rates = {"abort_rate": 0.2, "cancel_rate": 0.1, "leave_rate": leaves}
        self.producer(TransactionalWorkload, {"max_block_ms": 4000}, **rates)
        self.fault(LostResponse, 4, api=26, handled=True, how="cut", times=1)
        self.fault(LostResponse, 1, api=26, handled=True, how="silence", times=4, lasts=(1.0, 4.0))
        self.fault(Refused, 5, api=26, error=errors.UnknownError.errno, times=1, lasts=(1.0, 3.0))


class HurriedOffsets(_Copying):
    """Offsets that are refused while their transaction is committed already."""

    name = "hurried-offsets"

    def compose(self) -> None:
        """A program that does not wait for them, and members that come and go."""
        self.pipeline(hurry_rate=1.0)
        for error in (
            errors.GroupAuthorizationFailedError.errno,
            errors.IllegalGenerationError.errno,
        ):
            self.fault(Refused, 4, api=28, error=error, times=1, lasts=(0.5, 2.0))


class AbandonedOffsets(_Copying):
    """Offsets for which a program waits no longer, and commits."""

    name = "abandoned-offsets"

    def compose(self) -> None:
        """Coordinators that take their time."""
        self.pipeline(give_up_rate=0.7, hurry_rate=0)
        for api in (25, 28):
            self.fault(LateResponse, 4, api=api, seconds=0.3, times=4, lasts=(1.0, 3.0))
            self.fault(LostResponse, 2, api=api, handled=True, how="cut", times=1)


class ExpiringTransactions(_Transacting):
    """Records of transactions whose time is over on their way."""

    name = "expiring-transactions"
    promises = (USABLE,)

    def compose(self) -> None:
        """Nothing is answered for longer than records may take."""
        self.cluster(releases=(*_OLD, *_USUAL))
        client = {"delivery_timeout_ms": 1000, "max_batch_size": 200}
        rate = self.random.choice((0, 0.3))
        self.producer(TransactionalWorkload, client, abort_rate=0.2, cancel_rate=rate)
        self.fault(LateResponse, 4, api=22, seconds=0.3, times=3)
        if self.draft.cluster.number >= _NO_LATE_WRITES:
            self.fault(Hang, 2, apis=[0], lasts=(0.8, 1.8))
            self.fault(LateResponse, 2, api=0, seconds=1.1, times=2)
        else:
            self.fault(LostResponse, 5, api=0, handled=True, how="silence", times=1)


class LostInFlight(_Transacting):
    """Records of transactions that never arrive, and are given up on their way."""

    name = "lost-in-flight"
    promises = (USABLE, LATE_ONLY)

    def compose(self) -> None:
        """Brokers for which the next epoch has to be asked for; requests get lost on their way."""
        self.cluster(releases=("2.8", "3.9"))
        client = {"delivery_timeout_ms": 1500, "request_timeout_ms": 1500, "max_batch_size": 200}
        self.producer(TransactionalWorkload, client, abort_rate=0, flush_rate=0)
        self.topics(partitions=1, config={})
        self.fault(LateResponse, 4, api=0, seconds=0.6, times=2)
        self.fault(LostResponse, 6, api=0, handled=False, how="silence", times=1)


class UpgradedTransactions(_Transacting):
    """Brokers that begin to serve version 2 of transactions while the markers of one before it are
    still to be written."""

    name = "upgraded-transactions"

    def compose(self) -> None:
        """One producer, and records of many transactions for one partition."""
        self.cluster(brokers=1, releases=("3.9",))
        self.producer(TransactionalWorkload, {}, abort_rate=0.5, transactions=30)
        self.topics(partitions=1, config={})
        for at in (0.5, 2.0, 3.5):
            # Its draw is for brokers beside others.
            plan = {"broker": 0, "release": "4.3"}
            self.faults.append(FaultPlan(Upgrade.kind, f"upgrade at {at}", at, 1.2, plan))
            self.fault(HeldMarkers, at=at, lasts=(0.3, 1.0))


class InsistingTransactions(_Transacting):
    """Coordinators that refuse for longer than a call may take."""

    name = "insisting-transactions"
    active_s = 12.0

    def compose(self) -> None:
        """One API is refused again and again."""
        self.cluster(releases=_USUAL)
        self.producer(TransactionalWorkload, {"max_block_ms": 2000}, abort_rate=0.3)
        api = self.random.choice((10, 22, 24, 26))
        error = (
            errors.GroupCoordinatorNotAvailableError.errno
            if api == 10
            else errors.GroupLoadInProgressError.errno
        )
        if self.random.random() < 0.5:
            self.fault(SteadyError, at=2.0, lasts=(8.0, 9.5), api=api, error=error)
        else:
            for broker in range(self.draft.cluster.brokers):
                self.fault(BrokerStop, at=2.0, lasts=(8.0, 9.5), broker=broker)


TRANSACTING_AIMS: tuple[type[Aim], ...] = (
    EarlyAborts,
    Turmoil,
    Rivals,
    LateOffsets,
    MixedAnswers,
    LostEnds,
    UnclearEnds,
    HurriedOffsets,
    AbandonedOffsets,
    ExpiringTransactions,
    LostInFlight,
    UpgradedTransactions,
    InsistingTransactions,
)
