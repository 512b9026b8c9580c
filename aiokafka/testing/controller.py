"""The controller of a fake cluster: who runs and who leads, and what goes on without it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka._typing import later
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.testing.services import Services
    from aiokafka.testing.state import Node
else:
    Services = later("aiokafka.testing.services.Services")
    Node = later("aiokafka.testing.state.Node")


class Controller:
    """What decides on leaders in a :class:`FakeCluster`; see its `controller`.

    While there is none (:meth:`stop`), brokers that start or stop go unnoticed: metadata goes on
    naming them, nothing is elected, the ISR does not change, and requests that change the cluster
    get NOT_CONTROLLER with ZooKeeper (before 3.0), or with KRaft wait until their time is over.
    """

    def __init__(self, services: Services) -> None:
        #: Seconds after which it notices that a broker has stopped; 0 (the default) for at once.
        self.session_timeout = 0.0
        self._services = services
        self._state = services.state
        self._timers: dict[int, asyncio.TimerHandle] = {}  # broker to the end of its session
        self._return: asyncio.TimerHandle | None = None
        self._successor: int | None = None
        self._waiting: list[asyncio.Event] = []

    # -- for tests -----------------------------------------------------------------------------

    @property
    def is_available(self) -> bool:
        """Whether there is one."""
        return self._state.has_controller

    @property
    def broker_id(self) -> int:
        """The broker that metadata names as the controller; -1 if there is none."""
        return self._state.controller

    def stop(self) -> None:
        """Stop the controller; there is none until :meth:`start`."""
        self._cancel_return()
        self._state.has_controller = False
        self._services.cluster_changed()

    def start(self, broker_id: int | None = None) -> None:
        """Start a controller, which at once acts on what has happened since the last one stopped.

        Args:
            broker_id: Which broker it is; None (the default) for the same as before.

        Raises:
            KeyError: no such broker.
        """
        if broker_id is not None:
            self._state.placed_controller = self._state.nodes[broker_id].node_id
        self._cancel_return()
        self._state.has_controller = True
        for node in self._state.nodes.values():
            if node.node_id not in self._timers:
                self.look_at(node)
        self._state.elect_again()
        for event in self._waiting:
            event.set()
        self._waiting.clear()
        self._services.cluster_changed()

    def fail_over(self, seconds: float, broker_id: int | None = None) -> None:
        """Stop the controller for so many seconds; then start another, as :meth:`start` does."""
        self.stop()
        loop = asyncio.get_running_loop()
        self._return = loop.call_later(seconds, self.start, broker_id)
        self._successor = broker_id

    def elect(
        self, tp: TopicPartition | tuple[str, int], broker_id: int, *, unclean: bool = False
    ) -> int:
        """Let a replica lead a partition, with the log that it has: what it has not copied is lost.

        Args:
            unclean: Also one that is not in sync. It loses records that were acknowledged, if
                replication is at work (:attr:`FakeCluster.replication`).

        Returns:
            The new leader epoch.

        Raises:
            KeyError: no such partition or broker.
            ValueError: the broker keeps no replica, does not run, or is not in sync.
        """
        partition = self._state.partition(*tp)
        if partition is None:
            raise KeyError(f"no partition {tp[0]}-{tp[1]}")
        if broker_id not in self._state.nodes:
            raise KeyError(f"no broker {broker_id}")
        if broker_id not in self._state.live_replicas(partition):
            raise ValueError(f"broker {broker_id} has no replica of {tp[0]}-{tp[1]} that runs")
        if not unclean and broker_id not in self._state.isr(partition):
            raise ValueError(
                f"broker {broker_id} is not in sync: give unclean=True to lose records"
            )
        self._state.set_leader(partition, broker_id)
        self._services.cluster_changed()
        return partition.leader_epoch

    # -- for the cluster -----------------------------------------------------------------------

    def broker_started(self, node_id: int) -> None:
        """Note that a broker runs."""
        node = self._state.nodes[node_id]
        node.restarted = node.registered
        node.alive = True
        self._end_session(node_id)
        if self._state.has_controller:
            self.look_at(node)

    def broker_stopped(self, node_id: int) -> None:
        """Note that a broker has stopped or cannot be reached: its session ends, after its
        timeout.
        """
        node = self._state.nodes[node_id]
        if node.registered and self.session_timeout > 0:
            self._end_session(node_id)
            loop = asyncio.get_running_loop()
            self._timers[node_id] = loop.call_later(
                self.session_timeout, self._session_over, node_id
            )
        elif self._state.has_controller:
            self.look_at(node)

    def look_at(self, node: Node) -> None:
        """Take note of a broker that is there or not, and elect leaders."""
        there = node.alive and not node.isolated
        if node.restarted:  # it was away for less than its session
            node.restarted = False
            self._state.node_down(node.node_id)
        if there and not node.registered:
            self._state.node_up(node.node_id)
        elif node.registered and not there:
            self._state.node_down(node.node_id)
        self._services.cluster_changed()

    async def wait(self, seconds: float) -> bool:
        """Wait up to so many seconds for a controller; return whether there is one."""
        if self._state.has_controller:
            return True
        event = asyncio.Event()
        self._waiting.append(event)
        timer = asyncio.get_running_loop().call_later(seconds, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()
            if event in self._waiting:
                self._waiting.remove(event)
        return self._state.has_controller

    def resume(self) -> None:
        """Let the controller come that was to, when :meth:`close` kept it away."""
        if self._return is not None:
            self.start(self._successor)

    def close(self) -> None:
        """Stop all timers."""
        if self._return is not None:
            self._return.cancel()
        for node_id in tuple(self._timers):
            self._end_session(node_id)

    def _session_over(self, node_id: int) -> None:
        del self._timers[node_id]
        if self._state.has_controller:
            self.look_at(self._state.nodes[node_id])

    def _end_session(self, node_id: int) -> None:
        timer = self._timers.pop(node_id, None)
        if timer is not None:
            timer.cancel()

    def _cancel_return(self) -> None:
        if self._return is not None:
            self._return.cancel()
            self._return = None
