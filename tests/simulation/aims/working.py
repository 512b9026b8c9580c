"""Aims at what works on records for the application: sessions, handlers side by side."""

from __future__ import annotations

from typing import Any

from aiokafka import errors
from tests.simulation.aims.base import Aim
from tests.simulation.aims.reading import ReadingAim
from tests.simulation.faults.aimed import SteadyError
from tests.simulation.faults.groups import HeldMarkers, Rebalance
from tests.simulation.faults.responses import LateResponse, LostResponse, Refused
from tests.simulation.faults.topics import Retention
from tests.simulation.promises import FRESH
from tests.simulation.workloads.parallel import ParallelWorkload
from tests.simulation.workloads.ranging import RangeWorkload
from tests.simulation.workloads.sessions import SessionWorkload


class Sessions(ReadingAim):
    """Sessions whose blocks are left in every way, while members come and go."""

    name = "sessions"
    records = 60
    style = "send"

    def compose(self) -> None:
        """Nothing but rebalances."""
        self.cluster(releases=("2.8", "3.9", "4.0", "4.3"))
        self.producer()
        plan = self.add(SessionWorkload)
        self.topics(partitions=self.random.choice((1, 2)), config={})
        for member in plan.options["members"]:
            member["consumer"] |= self.consumer({"max_poll_interval_ms": 60_000})
            member["consumer"].pop("unreachable_timeout_ms", None)
            member["client"] |= {"max_block_ms": 20_000, "request_timeout_ms": 2000}
            member["client"].pop("buffer_memory", None)
            member |= {"break_rate": 0.2, "raise_rate": 0.1, "cancel_rate": 0, "work_s": 0.02}
            member["session"] |= {"max_records": 5, "retries": 10}
        self.fault(Rebalance, 6, how="rebalance")
        self.fault(HeldMarkers, 2)
        self.fault(LateResponse, 4, api=self.random.choice((25, 26, 28)), seconds=0.1, times=3)


class Handlers(ReadingAim):
    """Handlers side by side, with little room, while members come and go."""

    name = "handlers"
    records = 60

    def compose(self) -> None:
        """Nothing but rebalances, and commits that are refused once."""
        self.producer()
        refuses = self.random.random() < 0.5
        limit = 1000 if refuses else 60_000
        self.draft.workloads[-1].options["keys"] = self.random.choice((0, 3) if refuses else (1, 3))
        plan = self.add(ParallelWorkload)
        self.topics(partitions=self.random.choice((2, 4) if refuses else (1, 2)), config={})
        for member in plan.options["members"]:
            limits = {"max_poll_interval_ms": 60_000, "default_api_timeout_ms": limit}
            member["client"] |= self.consumer(limits)
            member["client"].pop("unreachable_timeout_ms", None)
            member["parallel"] |= {"concurrency": self.random.choice((2, 5))}
            member["parallel"]["max_records"] = self.random.choice((2, 5, 20))
            member |= {"order": "key", "work_s": 0.05, "hang_rate": 0, "form": "run"}
            member["cancel_rate"] = self.random.choice((0, 0.3))
            if refuses:
                # Who gets a partition reads it from where it is committed, which mends much.
                member |= {"comes_after_s": 0, "stays_s": None}
        self.fault(Rebalance, 3, at=1.0 if refuses else None, how="rebalance")
        self.fault(Refused, 3, api=8, error=errors.RequestTimedOutError.errno, times=2)
        self.fault(LostResponse, self.random.choice((0, 2)), api=0, how="cut", handled=False)
        if refuses:
            # For longer than a commit may take, so that it fails; the next may be the last.
            error = errors.GroupLoadInProgressError.errno
            self.fault(SteadyError, at=2.0, lasts=(3.0, 4.0), api=8, error=error)


class _OneMember(ReadingAim):
    """One ParallelConsumer that keeps its partitions."""

    def member(self, client: dict[str, Any], parallel: dict[str, Any], **options: Any) -> None:
        """Add it; nothing of it takes long."""
        plan = self.add(ParallelWorkload, delays_ms=[], retries=[], dead=None)
        first: dict[str, Any] = plan.options["members"][0]
        first["client"] |= self.consumer({"max_poll_interval_ms": 60_000} | client)
        for name in ("unreachable_timeout_ms", "retry_backoff_ms", "reconnect_backoff_ms"):
            first["client"].pop(name, None)
        first["parallel"] = {"drain_timeout_ms": 1000, "commit_interval_ms": 100} | parallel
        plain = {"order": "key", "hang_rate": 0, "raise_rate": 0, "linger_rate": 0}
        plain |= {"cancel_rate": 0, "listener": "plain", "comes_after_s": 0, "stays_s": None}
        plan.options["members"] = [first | plain | options]
        self.topics(partitions=self.random.choice((1, 2)), config={})


class Interrupted(_OneMember):
    """A program that cancels run() again and again, and calls it again."""

    name = "interrupted"
    active_s = 10.0
    records = 60

    def compose(self) -> None:
        """No faults: no rebalance gives the records again."""
        self.producer()
        self.draft.workloads[-1].options["keys"] = self.random.choice((0, 3))
        options = {"form": "run", "work_s": 0.05, "cancel_rate": 0.9}
        self.member({}, {"concurrency": self.random.choice((2, 5))}, **options)


class CutOff(_OneMember):
    """A program with tasks of its own, which ends them when records arrive for them."""

    name = "cut-off"
    active_s = 30.0
    records = 8
    style = "send"
    promises = (FRESH,)

    def compose(self) -> None:
        """No faults; records come one by one."""
        self.producer()
        options = {"form": "iterate", "work_s": 0.01, "cuts_off": True}
        self.member({}, {"concurrency": 5}, **options)


class GoneRanges(ReadingAim):
    """Ranges of which the beginning is deleted while they are read."""

    name = "gone-ranges"
    records = 100
    active_s = 8.0

    def compose(self) -> None:
        """Readers that take their time, with hardly any memory."""
        topic = self.producer(max_batch_size=200)
        plan = self.add(RangeWorkload, topics=[topic], work_s=0.5, parts=1, pause_s=0.1)
        plan.options.update({"max_rows": 1, "cancel_rate": 0, "with_ids": False})
        plan.options["reader"] |= {"max_partition_bytes": 1, "buffer_memory": 1}
        plan.options["reader"] |= {"fail_on_data_loss": False, "timeout_ms": 10_000}
        self.topics(partitions=1, config={})
        self.fault(Retention, 8, topic=topic, partition=0)


WORKING_AIMS: tuple[type[Aim], ...] = (Sessions, Handlers, Interrupted, CutOff, GoneRanges)
