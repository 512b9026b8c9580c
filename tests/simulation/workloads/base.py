"""What all workloads have in common."""

from __future__ import annotations

import abc
import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from tests.simulation.intercepting import longest_slowness
from tests.simulation.scenario import ClusterPlan, Draft, WorkloadPlan

if TYPE_CHECKING:
    from tests.simulation.world import World

FIRST_WITH_PRODUCER_IDS = (0, 11)
# Names of the options of a program that are those of a client.
_CLIENTS = ("client", "consumer", "producer")


class Workload(abc.ABC):
    """One or several programs. It works while faults happen; once `world.calm` is set it has to
    come to rest by itself, within a bound, and to end with all clients stopped.
    """

    kind: ClassVar[str]
    """Its name in scenarios and on the command line."""
    rank: ClassVar[int]
    """Workloads come to rest by rank: those that write first, those that read them later. The
    turn of a workload begins with `world.turns[rank]`."""

    def __init__(self, world: World, plan: WorkloadPlan) -> None:
        self.world = world
        self.plan = plan
        self.options = plan.options

    @classmethod
    def is_possible(cls, cluster: ClusterPlan) -> bool:
        """Whether these brokers are new enough."""
        return True

    @classmethod
    @abc.abstractmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """Options for one such workload, as JSON can hold them."""

    @abc.abstractmethod
    async def run(self) -> None:
        """Do the work, come to rest, stop all clients."""

    @property
    def recovery_s(self) -> float:
        """Seconds after its turn has come in which it must have come to rest."""
        return 240.0 + self.oldest_metadata_s + self.looking_s

    @property
    def looking_s(self) -> float:
        """Seconds that interceptors look at so many records as there may be, one by one."""
        return 200 * longest_slowness(self.options)

    @property
    def oldest_metadata_s(self) -> float:
        """Seconds after which all its clients have asked for metadata: so they hear of partitions
        that were added."""
        programs = [self.options, *self.options.get("members", ())]
        clients = [program[name] for program in programs for name in _CLIENTS if name in program]
        default = 300_000
        return max((c.get("metadata_max_age_ms", default) for c in clients), default=default) / 1000

    async def until_turn(self, seconds: float) -> bool:
        """Sleep, but wake when the turn of this workload has come; whether it has."""
        turn = self.world.turns[self.rank]
        if turn.is_set() or seconds < 0.05:
            await asyncio.sleep(seconds)
        else:
            loop = self.world.loop
            wake: asyncio.Future[None] = loop.create_future()
            handle = loop.call_later(seconds, _wake, wake)
            waiter = loop.create_task(turn.wait())
            waiter.add_done_callback(lambda _: _wake(wake))
            try:
                await wake
            finally:
                handle.cancel()
                waiter.cancel()
        return turn.is_set()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def draw_client_options(draft: Draft) -> dict[str, Any]:
    """Options that every client has. Times are short, so that timeouts are met often."""
    source = draft.random
    options: dict[str, Any] = {
        "request_timeout_ms": source.choice((1000, 2000, 5000, 10_000, 40_000)),
        "metadata_max_age_ms": source.choice((2000, 20_000, 60_000, 300_000)),
    }
    if source.random() < 0.3:
        options["retry_backoff_ms"] = source.choice((10, 50, 500))
    if source.random() < 0.2:
        options["connections_max_idle_ms"] = source.choice((1000, 5000))
    if source.random() < 0.2:
        options["reconnect_backoff_ms"] = source.choice((1, 500))
    if source.random() < 0.2:
        options["socket_connection_setup_timeout_ms"] = source.choice((500, 2000))
    if source.random() < 0.2:
        options["metadata_recovery_rebootstrap_trigger_ms"] = source.choice((2000, 10_000))
    if draft.cluster.sasl:
        options |= {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": draft.cluster.sasl,
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
        }
    return options
