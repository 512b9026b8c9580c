"""A Kafka cluster inside the test process."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiokafka._typing import Self, later
from aiokafka.protocol.schema import Request
from aiokafka.structs import TopicPartition
from aiokafka.testing.acls import Acls
from aiokafka.testing.actions import Answer, check_whole
from aiokafka.testing.broker import FakeBroker
from aiokafka.testing.connection import address_of
from aiokafka.testing.controller import Controller
from aiokafka.testing.coordinators import Coordinators
from aiokafka.testing.faults import Faults
from aiokafka.testing.groups import Groups
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.proxy import FaultProxy
from aiokafka.testing.quotas import Quotas
from aiokafka.testing.replication import Replication
from aiokafka.testing.script import Handler, Interception, Script, SeenRequest, key_of
from aiokafka.testing.servers import APACHE, SERVERS, server_profile
from aiokafka.testing.services import Services
from aiokafka.testing.settings import broker_settings, texts
from aiokafka.testing.state import ByBroker, ClusterState, Node, Partition
from aiokafka.testing.telemetry import TelemetryReceiver
from aiokafka.testing.transactions import Transactions
from aiokafka.testing.versions import RELEASES

if TYPE_CHECKING:
    from aiokafka.testing.security import Security
else:
    Security = later("aiokafka.testing.security.Security")


class FakeCluster:
    """A small Kafka cluster on real sockets, in the caller's event loop, with faults on demand.

    Any client can talk to it, of any language: it speaks Kafka's protocol byte for byte. Records
    live in memory. It starts in milliseconds, and a test can look inside (:meth:`log`,
    :meth:`requests`), break things (:meth:`stop_broker`, :meth:`move_leader`) and decide what
    single requests are answered (:meth:`intercept`).

    At first replicas share one log, so replication takes no time, and a leader is never behind.
    :attr:`replication` gives each its own; :attr:`controller` and :attr:`faults` do the rest of
    what goes wrong in a cluster.

    Args:
        brokers: How many; their ids are 0, 1, 2 ...
        as_version: The Kafka release to behave like: one of ``"0.9"``, ``"0.10.2"``, ``"0.11"``,
            ``"1.1"``, ``"2.1"``, ``"2.8"``, ``"3.9"``, ``"4.0"``, ``"4.3"`` (the default). It
            selects API versions, features and rules that changed.
        config: Broker settings by Kafka's names, such as ``{"message.max.bytes": "1000"}``; those
            that the fake knows are in :data:`aiokafka.testing.settings.BROKER_DEFAULTS`.
        racks: Rack name of each broker (KIP-392); None (the default) for no racks.
        host: Address to listen on and to advertise.
        ssl_context: A server-side context makes every listener a TLS one.
        security: Who may log in by SASL, and how; None (the default) for no SASL.
        proxied: Put a :class:`FaultProxy` before each broker, see :attr:`proxies`; clients then
            know only the proxies' addresses.
        seed: Decides whatever is drawn, such as lags; None (the default) draws it from the
            ``random`` module.
        profile: The server to behave like: ``"apache"`` (the default), or one that speaks Kafka's
            protocol in its own way: ``"event-hubs"``, ``"redpanda"``, ``"msk-serverless"``,
            ``"warpstream"``, ``"automq"``, or ``"bare"``, which responds with as little as the
            protocol allows. Only Apache Kafka has an `as_version`.

    Raises:
        ValueError: unknown `as_version`, `profile` or setting, or a value that a setting cannot
            have; `as_version` with a profile.
        TypeError: an argument of another kind.

    Example::

        async with FakeCluster(brokers=3) as cluster:
            await cluster.create_topic("orders", partitions=6, replication_factor=3)
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"one", partition=0)
            assert [r.value for r in cluster.log("orders", 0).records()] == [b"one"]
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        as_version: str = "4.3",
        config: Mapping[str, object] | None = None,
        racks: Sequence[str | None] | None = None,
        host: str = "127.0.0.1",
        ssl_context: ssl.SSLContext | None = None,
        security: Security | None = None,
        proxied: bool = False,
        seed: int | None = None,
        profile: str = APACHE,
    ) -> None:
        check_whole("brokers", brokers, 1)
        if racks is not None and len(racks) != brokers:
            raise ValueError("racks must name one rack for each broker")
        nodes = [Node(i, host, 0, racks[i] if racks else None) for i in range(brokers)]
        if profile != APACHE and as_version != RELEASES[-1]:
            raise ValueError(f"as_version is for Apache Kafka: profile={profile!r} has no releases")
        self._state = ClusterState(server_profile(profile, as_version), nodes)
        if profile != APACHE:
            self._state.config.update(SERVERS[profile].settings)
        self._state.config.update(broker_settings(config or {}))
        self._script = Script()
        drawn = Random(random.getrandbits(64) if seed is None else seed)
        self._services = Services(self._state, self._script, drawn, security)
        made = (
            FakeBroker(i, self._services, self._script, host=host, ssl_context=ssl_context)
            for i in range(brokers)
        )
        self._brokers = ByBroker({broker.node_id: broker for broker in made})
        self._faults = Faults(self._services, self._brokers)
        #: One proxy per broker id, if the cluster was made with ``proxied=True``; else empty.
        self.proxies: dict[int, FaultProxy] = {}
        if proxied:
            self.proxies = {i: FaultProxy(host=host) for i in range(brokers)}

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all brokers. ``async with`` does it."""
        self._services.resume()
        for node_id in self._brokers:
            await self.start_broker(node_id)

    async def stop(self) -> None:
        """Stop everything; no task, timer or socket is left. Records are kept, and what was under
        way goes on with :meth:`start`. May be repeated.
        """
        self._services.close()
        for proxy in self.proxies.values():
            await proxy.stop()
        for node_id in self._brokers:
            await self.stop_broker(node_id)
        self._services.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- facts ---------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``"host:port"`` of every broker, stopped ones included, with commas between."""
        return ",".join(map(self.address, self._state.nodes))

    @property
    def state(self) -> ClusterState:
        """Nodes, topics and settings, to look at."""
        return self._state

    @property
    def groups(self) -> Groups:
        """The group coordinators: members, committed offsets, and what can be done to them.

        Example::

            assert cluster.groups.committed("g", "orders", 0) == 42
            cluster.groups.rebalance("g")
        """
        return self._services.groups

    @property
    def transactions(self) -> Transactions:
        """The transaction coordinators: states, and markers that can be held back."""
        return self._services.transactions

    @property
    def replication(self) -> Replication:
        """How replicas copy from their leaders: lags, stalls, the ISR."""
        return self._services.replication

    @property
    def controller(self) -> Controller:
        """What decides who leads: elections, also unclean ones, and times without a controller."""
        return self._services.controller

    @property
    def coordinators(self) -> Coordinators:
        """Who coordinates groups and transactions: moves, and the time that loading takes."""
        return self._services.coordinators

    @property
    def telemetry(self) -> TelemetryReceiver:
        """What clients push of their metrics, if ``config`` has a ``metric.reporters``."""
        return self._services.telemetry

    @property
    def quotas(self) -> Quotas:
        """How much clients may send, fetch and ask for, before they are throttled."""
        return self._services.quotas

    @property
    def acls(self) -> Acls:
        """What clients may not do."""
        return self._services.acls

    @property
    def faults(self) -> Faults:
        """What can be wrong with single brokers: slow, hanging, misinformed, a broken disk."""
        return self._faults

    @property
    def connections(self) -> int:
        """Number of client connections that are open, over all brokers."""
        return sum(broker.connections for broker in self._brokers.values())

    @property
    def failures(self) -> list[BaseException]:
        """Requests that could not be decoded and errors inside the fake; empty in a good test."""
        return [exc for broker in self._brokers.values() for exc in broker.failures]

    def address(self, broker_id: int) -> str:
        """Return the ``"host:port"`` that a broker advertises."""
        node = self._state.nodes[broker_id]
        return address_of(node.host, node.port)

    def broker(self, broker_id: int) -> FakeBroker:
        """Return one broker, running or not."""
        return self._brokers[broker_id]

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """Return a partition: its leader, epoch, replicas and log.

        Raises:
            KeyError: there is no such partition.
        """
        found = self._state.partition(topic, partition)
        if found is None:
            raise KeyError(f"no partition {topic}-{partition}")
        return found

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """Return the log of a partition, to read and write its records without a client.

        Raises:
            KeyError: there is no such partition.
        """
        return self.partition(topic, partition).log

    # -- topics and leaders --------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        config: Mapping[str, object] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Create a topic at once on all brokers.

        Args:
            name: Letters, digits, ``.``, ``_`` and ``-``.
            partitions: How many.
            replication_factor: Replicas of each, on different brokers.
            config: Topic settings by Kafka's names.
            assignment: Partition to broker ids, the first of which leads; instead of the numbers.

        Raises:
            TopicRefusedError: Kafka would refuse it; `errno` holds the code.
            RuntimeError: no broker runs.
        """
        if not self._state.live_nodes():
            raise RuntimeError("no broker runs: use `async with`, or await start() first")
        self._state.create_topic(
            name, partitions, replication_factor, config=texts(config or {}), assignment=assignment
        )
        self._script.wake()

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records at once.

        Raises:
            KeyError: there is no such topic.
        """
        self._state.delete_topic(self._state.topics[name])
        self._services.topic_deleted(name)
        self._script.wake()

    def move_leader(self, tp: TopicPartition | tuple[str, int], broker_id: int) -> int:
        """Let another broker lead a partition, under the next leader epoch. It becomes a replica if
        it was none. The old leader answers NOT_LEADER_OR_FOLLOWER from now on.

        Returns:
            The new leader epoch.

        Raises:
            KeyError: no such partition or broker.
            ValueError: it is stopped, cut off or has no disk, or is behind without a leader.
        """
        partition = self.partition(*tp)
        self.broker(broker_id)
        can_serve = self._state.can_serve
        if not (self._state.nodes[broker_id].registered and can_serve(partition, broker_id)):
            raise ValueError(f"broker {broker_id} is stopped or cut off, or without a sound disk")
        behind = None if broker_id in self._state.isr(partition) else partition.copies
        if behind is not None and not can_serve(partition, partition.leader):
            raise ValueError(f"broker {broker_id} is not in sync: no leader to copy from is left")
        if broker_id not in partition.replicas:
            partition.replicas.append(broker_id)
        if behind is not None:
            behind.catch_up(broker_id)
        self._state.set_leader(partition, broker_id)
        self._services.leaders_changed()
        self._script.wake()
        return partition.leader_epoch

    # -- brokers -------------------------------------------------------------------------------

    async def stop_broker(self, broker_id: int) -> None:
        """Break all connections of a broker and listen no more, as ``kill -9`` does.

        Partitions that it led go to another live replica, or have no leader until it is back; the
        :attr:`controller` may take its time.
        """
        async with self._brokers[broker_id].changing:
            self._state.nodes[broker_id].alive = False
            self._services.controller.broker_stopped(broker_id)
            self._services.node_stopped(broker_id)
            await self._brokers[broker_id].stop()
        self._script.wake()

    async def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, on its old port."""
        broker = self._brokers[broker_id]
        node = self._state.nodes[broker_id]
        async with broker.changing:
            if node.alive:
                return
            # The controller may have missed that a broker runs.
            if not broker.is_listening:
                await broker.start()
            proxy = self.proxies.get(broker_id)
            if proxy is None:
                if node.port == 0:
                    node.port = broker.port
            else:
                proxy.target = address_of(broker.host, broker.port)
                await proxy.start()
                node.port = proxy.port
            self._services.controller.broker_started(broker_id)
        self._script.wake()

    def set_release(self, broker_id: int, as_version: str) -> None:
        """Let one broker be another Kafka from now on, as in a rolling upgrade or downgrade: its
        connections break. Stop it before and start it after for all that a restart does.

        Features (``transaction.version``, ``group.version``) are those of the oldest broker: they
        change when the last one is up, or the first one down.

        Raises:
            KeyError: no such broker.
            ValueError: unknown release.
        """
        self.broker(broker_id)
        self._state.set_release(broker_id, server_profile(APACHE, as_version))
        self._brokers[broker_id].drop_connections()
        self._script.wake()

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions at once.

        Raises:
            KeyError: there is no such topic.
            ValueError: it has as many already.
        """
        found = self._state.topics[topic]
        if total <= len(found.partitions):
            raise ValueError(f"{topic} has {len(found.partitions)} partitions already")
        self._state.add_partitions(found, total)
        self._script.wake()

    def drop_connections(self, broker_id: int | None = None) -> None:
        """Break all client connections of one broker, or of all; they may connect again.

        Raises:
            KeyError: no such broker.
        """
        for broker in self._meant(broker_id):
            broker.drop_connections()

    def advertise(self, broker_id: int, host: str, port: int) -> None:
        """Tell clients another address for a broker, for example a proxy's or a wrong one."""
        node = self._state.nodes[broker_id]
        node.host, node.port = host, port

    def move_coordinator(self, kind: str, key: str, broker_id: int) -> None:
        """Let another broker coordinate a group or transactional id, see
        :meth:`Coordinators.move`.

        Args:
            kind: ``"group"`` or ``"transaction"``.
            key: The group id or transactional id.
            broker_id: The new coordinator. While it is stopped another one takes its place.

        Raises:
            KeyError: no such kind or broker.
        """
        self._services.coordinators.move(kind, key, broker_id)

    def _meant(self, broker_id: int | None) -> list[FakeBroker]:
        """Return one broker, or all."""
        if broker_id is None:
            return list(self._brokers.values())
        return [self._brokers[broker_id]]

    def throttle(self, milliseconds: int, broker_id: int | None = None) -> None:
        """Put `milliseconds` into ``throttle_time_ms`` of every answer, and read nothing from the
        connection for as long (KIP-219). 0 ends it.

        Args:
            broker_id: One broker only; None (the default) means all.

        Raises:
            KeyError: no such broker.
        """
        check_whole("milliseconds", milliseconds, 0)
        for broker in self._meant(broker_id):
            broker.throttle_ms = milliseconds

    # -- scripts -------------------------------------------------------------------------------

    def intercept(
        self,
        api: type[Request[Any]] | int | None,
        handler: Handler | Answer,
        *,
        times: int | None = None,
        broker: int | None = None,
    ) -> Interception:
        """Decide what requests of an API are answered.

        Interceptions are asked in the order in which they were made; the first answer that is not
        None counts.

        Args:
            api: A request class of :mod:`aiokafka.protocol.messages`, its API key, or None for all.
            handler: What to answer, or a (plain or ``async``) callable
                ``handler(request, context)`` that returns it: None to let the broker handle the
                request, a response object, or one of :class:`Fail`, :class:`Delay`, :class:`Hold`,
                :class:`Cut`, :class:`Silence`, :class:`RawBytes`, :class:`Edit`.
            times: End after this many requests; None (the default) means until removed.
            broker: Only requests to this broker id.

        Raises:
            KeyError: no such broker.
            TypeError: `api` or `handler` is none of these, such as ``Cut`` instead of ``Cut()``.

        Returns:
            The interception, which is also a context manager that removes it.

        Example::

            # The first produce request is written, but its response is lost.
            cluster.intercept(ProduceRequest, Cut(handled=True), times=1)
        """
        self._meant(broker)
        return self._script.add(api, handler, times, broker)

    def requests(self, api: type[Request[Any]] | int | None = None) -> list[SeenRequest]:
        """Return the requests seen so far, oldest first: at most the last 10,000 or 32 MiB of them.

        Args:
            api: A request class or API key; None (the default) for all.
        """
        return self._script.seen(api)

    def count(self, api: type[Request[Any]] | int) -> int:
        """Return the number of requests of an API since the start or :meth:`forget_requests`."""
        return self._script.counts.get(key_of(api) or 0, 0)

    def forget_requests(self) -> None:
        """Forget the requests seen so far."""
        self._script.forget()

    async def wait_for(self, condition: Callable[[], object], timeout_s: float = 10.0) -> None:
        """Wait until `condition()` is true; it is asked after every request and change.

        Raises:
            TimeoutError: it was not, within `timeout_s` seconds.
            TypeError: `condition` is an ``async`` function.

        Example::

            await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 3)
        """
        await self._script.wait_for(condition, timeout_s)
