"""A Kafka cluster inside the test process, in the loop of the test or in a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import random
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._arguments import as_function, as_list, as_text, as_tp, items_of
from aiokafka._typing import Self, later
from aiokafka.protocol.schema import Request
from aiokafka.structs import TopicPartition
from aiokafka.testing.acls import Acls
from aiokafka.testing.actions import Answer, check_seconds, check_whole
from aiokafka.testing.broker import FakeBroker
from aiokafka.testing.connection import address_of
from aiokafka.testing.controller import Controller
from aiokafka.testing.faults import Faults
from aiokafka.testing.groups import Coordinators, Groups
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.proxy import FaultProxy
from aiokafka.testing.quotas import Quotas
from aiokafka.testing.replication import Replication
from aiokafka.testing.script import Handler, Interception, Script, SeenRequest, key_of
from aiokafka.testing.servers import APACHE, SERVERS, server_profile
from aiokafka.testing.services import Services
from aiokafka.testing.settings import broker_settings, texts
from aiokafka.testing.state import ByBroker, ClusterState, Node, Partition, Topic
from aiokafka.testing.telemetry import TelemetryReceiver
from aiokafka.testing.transactions import Transactions
from aiokafka.testing.versions import RELEASES

if TYPE_CHECKING:
    from aiokafka.testing.security import Security
else:
    Security = later("aiokafka.testing.security.Security")

T = TypeVar("T")


class FakeCluster:
    """A small Kafka cluster on real sockets, in the caller's event loop, with faults on demand.

    It speaks Kafka's protocol byte for byte, so clients of any language can connect. Records live
    in memory, and the cluster starts in milliseconds. A test can inspect it (:meth:`log`,
    :meth:`requests`), break it (:meth:`stop_broker`, :meth:`move_leader`) and choose the response
    to single requests (:meth:`intercept`).

    By default all replicas of a partition share one log: replication takes no time, and no replica
    lags. :attr:`replication` gives each replica its own log; :attr:`controller` and :attr:`faults`
    simulate other failures.

    The methods raise KeyError for an unknown broker id, topic or partition, TypeError for an
    argument of the wrong type, and ValueError for a number out of range.

    Args:
        brokers: Number of brokers; their ids are 0, 1, 2 ...
        as_version: The Kafka release to behave like: one of ``"0.9"``, ``"0.10.2"``, ``"0.11"``,
            ``"1.1"``, ``"2.1"``, ``"2.8"``, ``"3.9"``, ``"4.0"``, ``"4.3"``, ``"4.4"`` (the
            default). It selects the API versions, the features, and the behaviour that differs
            between releases.
        config: Broker settings by Kafka's names, such as ``{"message.max.bytes": "1000"}``;
            :data:`aiokafka.testing.settings.BROKER_DEFAULTS` lists the supported settings.
        racks: Rack name of each broker (KIP-392); None (the default) for no racks.
        host: Address to listen on and to advertise.
        ssl_context: A server-side context; with it every listener uses TLS.
        security: The users and mechanisms of SASL; None (the default) disables SASL.
        proxied: Put a :class:`FaultProxy` before each broker, see :attr:`proxies`. Metadata then
            has the proxies' addresses.
        seed: Seed of all random choices, such as lags; None (the default) draws a seed from the
            ``random`` module.
        profile: The server to imitate: ``"apache"`` (the default), or another server that speaks
            Kafka's protocol: ``"event-hubs"``, ``"redpanda"``, ``"msk-serverless"``,
            ``"warpstream"``, ``"automq"``, or ``"bare"``, which returns the least that the protocol
            allows. Only ``"apache"`` can have an `as_version`.

    Raises:
        ValueError: unknown `as_version`, `profile` or setting; an invalid value of a setting;
            `as_version` with another profile than ``"apache"``; fewer than one broker; another
            number of racks than brokers; a client-side `ssl_context`.
        TypeError: an argument has the wrong type.

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
        as_version: str = "4.4",
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
        if racks is not None:
            racks = as_list("racks", racks, "racks")
            if len(racks) != brokers:
                raise ValueError("racks must name one rack for each broker")
        nodes = [Node(i, host, 0, racks[i] if racks else None) for i in range(brokers)]
        if profile != APACHE and as_version != RELEASES[-1]:
            raise ValueError(f"as_version is for Apache Kafka: profile={profile!r} has no releases")
        self._state = ClusterState(server_profile(profile, as_version), nodes)
        if profile != APACHE:
            self._state.config.update(SERVERS[profile].settings)
        self._state.config.update(broker_settings(dict(items_of("config", config or {}))))
        self._script = Script()
        drawn = Random(random.getrandbits(64) if seed is None else seed)
        self._services = Services(self._state, self._script, drawn, security)
        made = (
            FakeBroker(i, self._services, self._script, host=host, ssl_context=ssl_context)
            for i in range(brokers)
        )
        self._brokers = ByBroker({broker.node_id: broker for broker in made})
        self._faults = Faults(self._services, self._brokers)
        #: The proxy of each broker, by broker id; empty without ``proxied=True``.
        self.proxies: dict[int, FaultProxy] = {}
        if proxied:
            self.proxies = {i: FaultProxy(host=host) for i in range(brokers)}

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all brokers, as ``async with`` does."""
        self._services.resume()
        for node_id in self._brokers:
            await self.start_broker(node_id)

    async def stop(self) -> None:
        """Stop all brokers and close every task, timer and socket. Records, groups and
        transactions are kept for the next :meth:`start`. A second call does nothing.
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

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    # -- inspection ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``"host:port"`` of every broker, including stopped brokers, separated by commas."""
        return ",".join(map(self.address, self._state.nodes))

    @property
    def state(self) -> ClusterState:
        """The nodes, topics and settings, for inspection."""
        return self._state

    @property
    def groups(self) -> Groups:
        """The group coordinators: members, committed offsets, and methods to rebalance groups and
        to fence or remove members.

        Example::

            assert cluster.groups.committed("g", "orders", 0) == 42
            cluster.groups.rebalance("g")
        """
        return self._services.groups

    @property
    def transactions(self) -> Transactions:
        """The transaction coordinators: states of transactions, and delays of their markers."""
        return self._services.transactions

    @property
    def replication(self) -> Replication:
        """Replication from leaders to followers: lags, stalls, the ISR."""
        return self._services.replication

    @property
    def controller(self) -> Controller:
        """The controller: clean and unclean elections, and periods without a controller."""
        return self._services.controller

    @property
    def coordinators(self) -> Coordinators:
        """The coordinators of groups and transactions: their brokers and their loading times."""
        return self._services.coordinators

    @property
    def telemetry(self) -> TelemetryReceiver:
        """Metrics pushed by clients (KIP-714). Brokers offer the telemetry APIs only if
        ``metric.reporters`` in `config` names a class other than Kafka's ``JmxReporter``."""
        return self._services.telemetry

    @property
    def quotas(self) -> Quotas:
        """Quotas for produced bytes, fetched bytes and requests, which throttle clients."""
        return self._services.quotas

    @property
    def acls(self) -> Acls:
        """Permissions withdrawn from clients, and access control lists."""
        return self._services.acls

    @property
    def faults(self) -> Faults:
        """Faults of single brokers: slow or hanging requests, stale metadata, failed disks."""
        return self._faults

    @property
    def connections(self) -> int:
        """Number of open client connections, over all brokers."""
        return sum(broker.connections for broker in self._brokers.values())

    @property
    def failures(self) -> list[BaseException]:
        """Requests that could not be decoded, and errors inside the fake. Tests should assert
        that the list is empty.
        """
        return [exc for broker in self._brokers.values() for exc in broker.failures]

    def address(self, broker_id: int) -> str:
        """Return the ``"host:port"`` that a broker advertises."""
        node = self._state.nodes[broker_id]
        return address_of(node.host, node.port)

    def broker(self, broker_id: int) -> FakeBroker:
        """Return the broker with this id, which may be stopped."""
        return self._brokers[broker_id]

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """Return a partition: its leader, epoch, replicas and log."""
        check_whole("partition", partition)
        found = self._state.partition(as_text("topic", topic), partition)
        if found is None:
            raise KeyError(f"no partition {topic}-{partition}")
        return found

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """Return the leader's log of a partition, to read and write records without a client."""
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
        """Create a topic, and update the metadata of all brokers at once.

        Args:
            name: At most 249 characters: ASCII letters, digits, ``.``, ``_`` and ``-``.
            partitions: Number of partitions.
            replication_factor: Number of replicas of each partition, on different brokers.
            config: Topic settings by Kafka's names.
            assignment: The broker ids of each partition, the leader first; replaces `partitions`
                and `replication_factor`.

        Raises:
            TopicRefusedError: Kafka would reject the topic; `errno` is the error code.
            RuntimeError: no broker runs.
        """
        if not self._state.live_nodes():
            raise RuntimeError("no broker runs: use `async with`, or await start() first")
        as_text("name", name)
        check_whole("partitions", partitions)
        check_whole("replication_factor", replication_factor)
        wanted = texts(dict(items_of("config", config or {})))
        for number, ids in items_of("assignment", assignment or {}):
            as_list(f"assignment: {number}", ids, "broker ids")
        self._state.create_topic(
            name, partitions, replication_factor, config=wanted, assignment=assignment
        )
        self._script.wake()

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, its records and its committed offsets, on all brokers at once."""
        self._state.delete_topic(self._topic("name", name))
        self._services.groups.forget_topic(name)
        self._script.wake()

    def _topic(self, argument: str, name: str) -> Topic:
        found = self._state.topics.get(as_text(argument, name))
        if found is None:
            raise KeyError(f"{argument}: no topic {name!r}")
        return found

    def move_leader(self, tp: TopicPartition | tuple[str, int], broker_id: int) -> int:
        """Make another broker the leader of a partition, in the next leader epoch. If the broker
        has no replica of the partition, it gets one. The previous leader then returns
        NOT_LEADER_OR_FOLLOWER.

        Returns:
            The new leader epoch.

        Raises:
            KeyError: no such partition or broker.
            ValueError: the broker is stopped or isolated, or its disk has failed; or its replica is
                not in sync, and the partition has no leader to copy from.
        """
        partition = self.partition(*as_tp("tp", tp))
        self.broker(broker_id)
        can_serve = self._state.can_serve
        if not (self._state.nodes[broker_id].registered and can_serve(partition, broker_id)):
            raise ValueError(f"broker {broker_id} is stopped or cut off, or without a sound disk")
        stale = None if broker_id in self._state.isr(partition) else partition.replica_logs
        if stale is not None and not can_serve(partition, partition.leader):
            raise ValueError(f"broker {broker_id} is not in sync: no leader to copy from is left")
        if broker_id not in partition.replicas:
            partition.replicas.append(broker_id)
        if stale is not None:
            stale.catch_up(broker_id)
        self._state.set_leader(partition, broker_id)
        self._services.transactions.complete_waiting()
        self._script.wake()
        return partition.leader_epoch

    # -- brokers -------------------------------------------------------------------------------

    async def stop_broker(self, broker_id: int) -> None:
        """Break all connections of a broker and stop listening, as ``kill -9`` does.

        Another live in-sync replica becomes the leader of each partition that the broker led, at
        once or after :attr:`Controller.session_timeout`. A partition without another live in-sync
        replica has no leader until an in-sync replica is live again, unless its topic allows
        unclean elections.
        """
        async with self._brokers[broker_id].changing:
            self._state.nodes[broker_id].alive = False
            self._services.controller.broker_stopped(broker_id)
            self._services.node_stopped(broker_id)
            await self._brokers[broker_id].stop()
        self._script.wake()

    async def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, on the same port; do nothing if it runs."""
        broker = self._brokers[broker_id]
        node = self._state.nodes[broker_id]
        async with broker.changing:
            if node.alive:
                return
            # The broker already listens if an earlier call of this method started it and failed
            # afterwards, for example because the proxy could not be started.
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
        """Change the Kafka release of one broker, as a rolling upgrade or downgrade does, and break
        its connections. To simulate the restart too, call :meth:`stop_broker` before and
        :meth:`start_broker` afterwards.

        The finalized features (``transaction.version``, ``group.version``) are those of the oldest
        release in the cluster: they change with the last upgrade or the first downgrade.

        Raises:
            KeyError: no such broker.
            ValueError: unknown release.
        """
        self.broker(broker_id)
        self._state.set_release(broker_id, server_profile(APACHE, as_version))
        self._brokers[broker_id].drop_connections()
        self._script.wake()

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the number of partitions of a topic to `total`.

        Raises:
            KeyError: there is no such topic.
            ValueError: the topic has `total` partitions or more.
        """
        found = self._topic("topic", topic)
        check_whole("total", total)
        if total <= len(found.partitions):
            raise ValueError(f"{topic} has {len(found.partitions)} partitions already")
        self._state.add_partitions(found, total)
        self._script.wake()

    def drop_connections(self, broker_id: int | None = None) -> None:
        """Break all client connections of one broker, or of all brokers. Clients may reconnect."""
        for broker in self._selected(broker_id):
            broker.drop_connections()

    def advertise(self, broker_id: int, host: str, port: int) -> None:
        """Advertise another address of a broker in metadata, such as the address of a proxy."""
        node = self._state.nodes[broker_id]
        check_whole("port", port, 0)
        node.host, node.port = as_text("host", host), port

    def move_coordinator(self, kind: str, key: str, broker_id: int) -> None:
        """Make another broker the coordinator of a group or transactional id, as
        :meth:`Coordinators.move` does.
        """
        self._services.coordinators.move(kind, key, broker_id)

    def _selected(self, broker_id: int | None) -> list[FakeBroker]:
        if broker_id is None:
            return list(self._brokers.values())
        return [self._brokers[broker_id]]

    def throttle(self, milliseconds: int, broker_id: int | None = None) -> None:
        """Set ``throttle_time_ms`` of every response. After each response, read nothing from the
        client's connection for that time (KIP-219). 0 ends the throttling.

        Args:
            milliseconds: The throttle time.
            broker_id: One broker only; None (the default) means all brokers."""
        check_whole("milliseconds", milliseconds, 0)
        for broker in self._selected(broker_id):
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
        """Choose what happens to requests of an API before the broker handles them.

        Interceptions are called in the order of their creation, until one returns something other
        than None.

        Args:
            api: A request class of :mod:`aiokafka.protocol.messages`, its API key, or None for all.
            handler: An action (:class:`Fail`, :class:`Delay`, :class:`Hold`, :class:`Cut`,
                :class:`Silence`, :class:`RawBytes`, :class:`Edit`), a response object, or None to
                let the broker handle the request. Or a callable ``handler(request, context)``,
                plain or ``async``, that returns an action, a response or None.
            times: Remove the interception after this many requests; None (the default) keeps it.
            broker: Only requests to this broker id; None (the default) for all brokers.

        Raises:
            KeyError: no such broker.
            TypeError: `api` or `handler` is of another type, such as ``Cut`` instead of ``Cut()``.

        Returns:
            The interception, which is also a context manager that removes it.

        Example::

            # The records of the first produce request are written, but its response is lost.
            cluster.intercept(ProduceRequest, Cut(handled=True), times=1)
        """
        self._selected(broker)
        return self._script.add(api, handler, times, broker)

    def requests(self, api: type[Request[Any]] | int | None = None) -> list[SeenRequest]:
        """Return the received requests, oldest first: at most the last 10,000 or 32 MiB of them.

        Args:
            api: A request class or API key; None (the default) for all APIs.
        """
        return self._script.seen(api)

    def count(self, api: type[Request[Any]] | int) -> int:
        """Return the number of received requests of an API, since the start of the cluster or the
        last :meth:`forget_requests`."""
        return self._script.counts.get(key_of(api) or 0, 0)

    def forget_requests(self) -> None:
        """Discard the received requests, and restart :meth:`count` at 0."""
        self._script.forget()

    async def wait_for(self, condition: Callable[[], object], timeout_s: float = 10.0) -> None:
        """Wait until `condition()` is true. It is called after every request and change of state,
        and at least every 50 ms.

        Raises:
            TimeoutError: `condition()` was not true within `timeout_s` seconds.
            TypeError: `condition` is an ``async`` function.

        Example::

            await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 3)
        """
        as_function("condition", condition)
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s)
        await self._script.wait_for(condition, timeout_s)


class ServedCluster:
    """A :class:`FakeCluster` in a thread with its own event loop.

    Args:
        brokers: Number of brokers.
        options: Further arguments of :class:`FakeCluster`.

    Example::

        with ServedCluster(brokers=3) as server:
            server.call(lambda cluster: cluster.create_topic("orders", partitions=6))
            send_orders(server.bootstrap_servers)       # a blocking client
            assert server.call(lambda cluster: len(cluster.log("orders", 0).records())) == 1
    """

    def __init__(self, brokers: int = 1, **options: Any) -> None:
        self._arguments = (brokers, options)
        self._started: concurrent.futures.Future[FakeCluster] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name="kafka", daemon=True)

    def start(self, timeout_s: float = 60) -> None:
        """Start the thread and the brokers.

        Raises the exception of the brokers if they fail to start; TimeoutError of
        `concurrent.futures` if they have not started within `timeout_s` seconds; RuntimeError if
        called again.
        """
        if self._thread.ident is not None:
            raise RuntimeError("a ServedCluster runs once: make another one")
        self._thread.start()
        self._started.result(timeout_s)

    def stop(self, timeout_s: float = 60) -> None:
        """Stop the brokers and the thread; wait at most `timeout_s` seconds for their end. A second
        call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(timeout_s)

    @property
    def bootstrap_servers(self) -> str:
        """``"host:port"`` of every broker, separated by commas. Raises RuntimeError if the cluster
        does not run."""
        return self._running().bootstrap_servers

    def call(self, function: Callable[[FakeCluster], T | Awaitable[T]], timeout_s: float = 30) -> T:
        """Call a function with the cluster, in the loop of the brokers, and return its result.

        Args:
            function: A plain function, or a coroutine function.
            timeout_s: Seconds to wait for the result.

        Raises the exception of the function. If the function has not ended after `timeout_s`
        seconds, raises TimeoutError of `concurrent.futures`, and cancels a coroutine function; a
        plain function continues. Raises RuntimeError if the cluster does not run.
        """
        cluster = self._running()

        async def run() -> T:
            result = function(cluster)
            return await result if inspect.isawaitable(result) else result

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if future.done():  # TimeoutError is the function's own exception
                raise
            future.cancel()
            text = f"the function has not ended after {timeout_s:g} s"
            raise concurrent.futures.TimeoutError(text) from None

    def _running(self) -> FakeCluster:
        if not (self._thread.is_alive() and self._started.done()):
            raise RuntimeError("the cluster does not run: use it in a `with` block, or start() it")
        return self._started.result(0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        brokers, options = self._arguments
        async with FakeCluster(brokers, **options) as cluster:
            self._started.set_result(cluster)
            await self._stopping.wait()
