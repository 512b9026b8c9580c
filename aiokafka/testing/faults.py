"""What can be wrong with single brokers of a fake cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka._typing import later
from aiokafka.protocol.schema import Request
from aiokafka.structs import TopicPartition
from aiokafka.testing.replication import Place, Seconds
from aiokafka.testing.script import key_of

if TYPE_CHECKING:
    from aiokafka.testing.broker import FakeBroker
    from aiokafka.testing.services import Services
    from aiokafka.testing.state import Node
else:
    FakeBroker = later("aiokafka.testing.broker.FakeBroker")
    Services = later("aiokafka.testing.services.Services")
    Node = later("aiokafka.testing.state.Node")

Apis = Iterable["type[Request[Any]] | int"]


class Faults:
    """Brokers of a :class:`FakeCluster` that half work; see its `faults`.

    Example::

        cluster.faults.isolate(0)       # others lead now, and broker 0 does not know it
        ...
        cluster.faults.heal()           # all is well with all brokers that run
    """

    def __init__(self, services: Services, brokers: Mapping[int, FakeBroker]) -> None:
        self._services = services
        self._state = services.state
        self._brokers = brokers

    # -- slow and half dead --------------------------------------------------------------------

    def hang(self, broker_id: int, apis: Apis | None = None) -> None:
        """Let a broker accept connections and answer nothing until :meth:`revive`. Requests that
        came meanwhile are then carried out, also of clients that have gone away.

        Args:
            apis: Only requests of these, by class or API key: a broker may answer metadata and no
                fetch. None (the default) for all.

        Raises:
            KeyError: no such broker.
        """
        self._brokers[broker_id].faults.hang(_keys(apis))

    def slow(self, broker_id: int, seconds: Seconds, apis: Apis | None = None) -> None:
        """Let a broker take its time for each request until :meth:`revive`.

        Args:
            seconds: How long, or (least, most) to draw each time.
            apis: As of :meth:`hang`.

        Raises:
            KeyError: no such broker.
        """
        self._brokers[broker_id].faults.slow(seconds, _keys(apis))

    def revive(self, broker_id: int) -> None:
        """End what :meth:`hang` and :meth:`slow` began.

        Raises:
            KeyError: no such broker.
        """
        self._brokers[broker_id].faults.heal()

    # -- misinformed ---------------------------------------------------------------------------

    def mislead(self, broker_id: int) -> None:
        """Let a broker learn nothing more of the cluster until :meth:`inform`. It answers metadata
        as of now, and goes on as the leader that it was: what it takes with ``acks=1`` while
        another one leads is lost, and ``acks=all`` runs into its timeout. It knows of no topics
        that are created later. It is not the coordinator of anything that has moved.

        Raises:
            KeyError: no such broker.
        """
        node = self._state.nodes[broker_id]
        if node.view is not None:
            return
        for partition in self._state.partitions():
            if len(partition.replicas) > 1 and broker_id in partition.replicas:
                self._services.replication.use((partition.topic, partition.index))
        node.view = self._state.snapshot()

    def inform(self, broker_id: int) -> None:
        """Let a broker know at once what is so.

        Raises:
            KeyError: no such broker.
        """
        node = self._state.nodes[broker_id]
        if node.view is None:
            return
        view, node.view = node.view, None
        for partition in (*view.partitions(), *self._state.partitions()):
            partition.log_of(broker_id).wake()  # requests that wait look who leads
            partition.log.wake()
        self._services.cluster_changed()

    def isolate(self, broker_id: int) -> None:
        """Cut a broker off from the controller and the other brokers, not from clients, until
        :meth:`rejoin`. Others are elected; it is misled as by :meth:`mislead`.

        Raises:
            KeyError: no such broker.
        """
        self.mislead(broker_id)
        self._state.nodes[broker_id].isolated = True
        self._services.controller.broker_stopped(broker_id)

    def rejoin(self, broker_id: int) -> None:
        """End what :meth:`isolate` began.

        Raises:
            KeyError: no such broker.
        """
        node = self._state.nodes[broker_id]
        if not node.isolated:
            return
        node.isolated = False
        if node.alive:
            self._services.controller.broker_started(broker_id)
        self.inform(broker_id)

    # -- disks ---------------------------------------------------------------------------------

    def fail_disk(
        self, broker_id: int, tps: Iterable[TopicPartition | Place] | None = None
    ) -> None:
        """Let the disk of a broker fail, as when it is full: the replicas on it are offline
        (KAFKA_STORAGE_ERROR), and others are elected.

        Args:
            tps: The partitions on that disk; None (the default) for all that the broker keeps.

        Raises:
            KeyError: no such broker or partition.
        """
        node = self._state.nodes[broker_id]
        places = [(p.topic, p.index) for p in self._state.partitions()]
        if tps is not None:
            wanted = [(topic, index) for topic, index in tps]
            missing = [place for place in wanted if place not in places]
            if missing:
                raise KeyError(f"no partitions {missing}")
            places = wanted
        for place in places:
            partition = self._state.partition(*place)
            if partition is None or broker_id not in partition.replicas:
                continue
            node.failed_logs[place] = None
            if self._state.has_controller:
                self._state.replica_lost(partition, broker_id)
            partition.log_of(broker_id).wake()
        self._services.cluster_changed()

    def repair_disk(self, broker_id: int) -> None:
        """End a failure of a broker's disk, with all that was on it.

        Raises:
            KeyError: no such broker.
        """
        node = self._state.nodes[broker_id]
        self._bring_back(node)
        self._services.cluster_changed()

    def _bring_back(self, node: Node) -> None:
        places = tuple(node.failed_logs)
        node.failed_logs.clear()
        for place in places:
            partition = self._state.partition(*place)
            if partition is not None and self._state.has_controller:
                self._state.replica_back(partition)

    # -- all -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """End all that was done by :attr:`FakeCluster.faults`, :attr:`~FakeCluster.controller`,
        :attr:`~FakeCluster.replication`, :attr:`~FakeCluster.coordinators`,
        :attr:`~FakeCluster.quotas` and :attr:`~FakeCluster.acls`. Brokers that were stopped are not
        started by it."""
        for node_id, broker in self._brokers.items():
            broker.faults.heal()
            self.rejoin(node_id)
            self.inform(node_id)
            self.repair_disk(node_id)
        self._services.controller.session_timeout = 0.0
        self._services.controller.start()
        self._services.replication.heal()
        self._services.coordinators.heal()
        self._services.quotas.heal()
        self._services.acls.heal()


def _keys(apis: Apis | None) -> tuple[int, ...] | None:
    if apis is None:
        return None
    if isinstance(apis, str | type) or not isinstance(apis, Iterable):
        raise TypeError(f"apis must be a list of classes such as ProduceRequest, not {apis!r}")
    return tuple(key for key in map(key_of, apis) if key is not None)
