"""The controller of a fake cluster: it registers brokers and elects leaders, or is absent."""

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
    """Registers brokers and elects leaders; the attribute `controller` of a :class:`FakeCluster`.

    Without a controller (after :meth:`stop`), metadata still has stopped brokers and lacks started
    brokers, there are no elections, and the ISR does not change. Requests that change the cluster
    get NOT_CONTROLLER with ZooKeeper (before 3.0); with KRaft they wait until their timeout.

    The methods raise KeyError for an unknown broker id or partition.
    """

    def __init__(self, services: Services) -> None:
        #: Seconds until the controller notices that a broker has stopped; 0 by default.
        self.session_timeout = 0.0
        self._services = services
        self._state = services.state
        self._timers: dict[int, asyncio.TimerHandle] = {}  # end of a broker's session, by broker id
        self._return: asyncio.TimerHandle | None = None  # ends `fail_over`: calls `start`
        self._successor: int | None = None
        self._waiting: list[asyncio.Event] = []

    # -- for tests -----------------------------------------------------------------------------

    @property
    def is_available(self) -> bool:
        """Whether there is a controller."""
        return self._state.has_controller

    @property
    def broker_id(self) -> int:
        """The broker id of the controller in metadata; -1 if no broker is live. Before Kafka 3.0,
        it is also -1 while there is no controller."""
        return self._state.controller

    def stop(self) -> None:
        """Stop the controller. The cluster has no controller until :meth:`start`."""
        self._cancel_return()
        self._state.has_controller = False
        self._services.cluster_changed()

    def start(self, broker_id: int | None = None) -> None:
        """Start a controller. It registers the running brokers and elects leaders at once, and
        unregisters the stopped brokers whose session is over.

        Args:
            broker_id: The new controller; None (the default) for the previous controller."""
        if broker_id is not None:
            self._state.placed_controller = self._state.nodes[broker_id].node_id
        self._cancel_return()
        self._state.has_controller = True
        for node in self._state.nodes.values():
            if node.node_id not in self._timers:
                self.update_registration(node)
        self._state.elect_again()
        for event in self._waiting:
            event.set()
        self._waiting.clear()
        self._services.cluster_changed()

    def fail_over(self, seconds: float, broker_id: int | None = None) -> None:
        """Stop the controller, and call :meth:`start` with `broker_id` after `seconds`."""
        self.stop()
        loop = asyncio.get_running_loop()
        self._return = loop.call_later(seconds, self.start, broker_id)
        self._successor = broker_id

    def elect(
        self, tp: TopicPartition | tuple[str, int], broker_id: int, *, unclean: bool = False
    ) -> int:
        """Make a replica the leader of a partition. Records that the replica lacks are lost.

        Args:
            unclean: Allow a replica that is not in sync. Acknowledged records may be lost, if the
                replicas have their own logs (:attr:`FakeCluster.replication`).

        Returns:
            The new leader epoch.

        Raises:
            KeyError: no such partition or broker.
            ValueError: the broker has no replica, does not run, or is not in sync.
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
        """Register a broker that has started or is not isolated any more. Without a controller,
        `start()` registers it."""
        node = self._state.nodes[node_id]
        node.restarted = node.registered
        node.alive = True
        self._end_session(node_id)
        if self._state.has_controller:
            self.update_registration(node)

    def broker_stopped(self, node_id: int) -> None:
        """End the session of a broker that has stopped or is isolated: after `session_timeout`, or
        at once if the timeout is 0. A controller then unregisters the broker."""
        node = self._state.nodes[node_id]
        if node.registered and self.session_timeout > 0:
            self._end_session(node_id)
            loop = asyncio.get_running_loop()
            self._timers[node_id] = loop.call_later(
                self.session_timeout, self._session_over, node_id
            )
        elif self._state.has_controller:
            self.update_registration(node)

    def update_registration(self, node: Node) -> None:
        """Register the broker if it runs and is not isolated, else unregister it; elect leaders."""
        there = node.alive and not node.isolated
        if node.restarted:  # restarted within its session: elect other leaders first
            node.restarted = False
            self._state.node_down(node.node_id)
        if there and not node.registered:
            self._state.node_up(node.node_id)
        elif node.registered and not there:
            self._state.node_down(node.node_id)
        self._services.cluster_changed()

    async def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for a controller; return whether the cluster has a controller."""
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
        """Start the controller now, if :meth:`close` has interrupted :meth:`fail_over`."""
        if self._return is not None:
            self.start(self._successor)

    def close(self) -> None:
        """Cancel all timers."""
        if self._return is not None:
            self._return.cancel()
        for node_id in tuple(self._timers):
            self._end_session(node_id)

    def _session_over(self, node_id: int) -> None:
        del self._timers[node_id]
        if self._state.has_controller:
            self.update_registration(self._state.nodes[node_id])

    def _end_session(self, node_id: int) -> None:
        timer = self._timers.pop(node_id, None)
        if timer is not None:
            timer.cancel()

    def _cancel_return(self) -> None:
        if self._return is not None:
            self._return.cancel()
            self._return = None
