"""Faults of single brokers: slow or hanging requests, stale metadata, isolation, failed disks."""

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
else:
    FakeBroker = later("aiokafka.testing.broker.FakeBroker")
    Services = later("aiokafka.testing.services.Services")

Apis = Iterable["type[Request[Any]] | int"]


class Faults:
    """Faults of single brokers; the attribute `faults` of a :class:`FakeCluster`.

    The methods raise KeyError for an unknown broker id.

    Example::

        cluster.faults.isolate(0)       # other brokers become leaders; broker 0 does not know
        ...
        cluster.faults.heal()           # all running brokers work again
    """

    def __init__(self, services: Services, brokers: Mapping[int, FakeBroker]) -> None:
        self._services = services
        self._state = services.state
        self._brokers = brokers

    # -- hanging and slow ----------------------------------------------------------------------

    def hang(self, broker_id: int, apis: Apis | None = None) -> None:
        """Make a broker accept connections but send no response until :meth:`revive`. The broker
        then handles the received requests, even requests of clients that have disconnected.

        Args:
            apis: Only requests of these APIs, by class or API key; None (the default) for all APIs.
        """
        self._brokers[broker_id].faults.hang(_keys(apis))

    def slow(self, broker_id: int, seconds: Seconds, apis: Apis | None = None) -> None:
        """Delay each request to a broker until :meth:`revive`.

        Args:
            seconds: The delay, or the (least, most) bounds of random delays.
            apis: Only requests of these APIs, by class or API key; None (the default) for all APIs.

        Raises:
            ValueError: a time is negative.
        """
        self._brokers[broker_id].faults.slow(seconds, _keys(apis))

    def revive(self, broker_id: int) -> None:
        """End :meth:`hang` and :meth:`slow` of a broker."""
        self._brokers[broker_id].faults.heal()

    # -- stale metadata ---------------------------------------------------------------------------

    def mislead(self, broker_id: int) -> None:
        """Freeze the metadata of a broker until :meth:`inform`. The broker keeps returning its
        present metadata, and does not know topics that are created later. It remains the leader of
        its partitions: records that it writes with ``acks=1`` while another broker is the leader
        are lost, and ``acks=all`` times out. It does not remain the coordinator of groups and
        transactional ids that move.
        """
        node = self._state.nodes[broker_id]
        if node.view is not None:
            return
        for partition in self._state.partitions():
            if len(partition.replicas) > 1 and broker_id in partition.replicas:
                self._services.replication.use((partition.topic, partition.index))
        node.view = self._state.snapshot()

    def inform(self, broker_id: int) -> None:
        """End :meth:`mislead` of a broker, which then has the actual metadata."""
        node = self._state.nodes[broker_id]
        if node.view is None:
            return
        view, node.view = node.view, None
        for partition in (*view.partitions(), *self._state.partitions()):
            partition.log_of(broker_id).wake()  # waiting requests then find the actual leader
            partition.log.wake()
        self._services.cluster_changed()

    def isolate(self, broker_id: int) -> None:
        """Isolate a broker from the controller and the other brokers, but not from clients, until
        :meth:`rejoin`. Other leaders are elected, and the broker's metadata is stale as after
        :meth:`mislead`.
        """
        self.mislead(broker_id)
        self._state.nodes[broker_id].isolated = True
        self._services.controller.broker_stopped(broker_id)

    def rejoin(self, broker_id: int) -> None:
        """End :meth:`isolate` of a broker."""
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
        """Make the disk of a broker fail. The replicas on the disk go offline
        (KAFKA_STORAGE_ERROR), and other leaders are elected.

        Args:
            tps: The partitions on the disk; None (the default) for all partitions of the broker.

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
        """Repair the disk of a broker. The replicas on the disk are online again, and have kept
        their records."""
        node = self._state.nodes[broker_id]
        places = tuple(node.failed_logs)
        node.failed_logs.clear()
        for place in places:
            partition = self._state.partition(*place)
            if partition is not None and self._state.has_controller:
                self._state.replica_back(partition)
        self._services.cluster_changed()

    # -- all -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """End all faults, and the faults set through :attr:`FakeCluster.controller`,
        :attr:`~FakeCluster.replication`, :attr:`~FakeCluster.coordinators`,
        :attr:`~FakeCluster.quotas` and :attr:`~FakeCluster.acls`. Stopped brokers stay stopped.
        """
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
