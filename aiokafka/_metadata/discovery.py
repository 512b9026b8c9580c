"""Ask brokers for metadata: the known ones, in the end the bootstrap servers."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout, timeout_at
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MetadataEmptyBrokerList,
    MismatchedEndpointType,
    RebootstrapRequired,
    RequestTimedOutError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.net.connector import canonical, format_address, is_address
from aiokafka.net.failures import REFUSALS
from aiokafka.net.pool import ConnectionGroup, ConnectionPool, Endpoint
from aiokafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig
    from aiokafka.net.connection import BrokerConnection

__all__ = ["CONTROLLERS", "FATAL", "MOST_ASKED", "Discovery"]

log = logging.getLogger("aiokafka.cluster")

# One silent broker must not use up the time of those who wait: after this long the next one is
# asked. The request itself goes on, and closes its connection at request_timeout. The last one has
# all of the time: where every broker is slow, there would never be a response.
_LONGEST_ASK = 10.0

# A broker that keeps silent has this part of the time that is left, if that is less; but a slow one
# at least so many seconds.
_PART = 1 / 3
_LEAST = 1.0

# The names of bootstrap servers may take this part of the time.
_PART_FOR_NAMES = 2 / 3

# Bootstrap servers are tried in turn, but the next one starts when the one before has not answered
# for this long.
_STAGGER = 0.5

# One broker that was cut off from the others would say the same for ever: after so many seconds
# another one is asked. Only of brokers that tell the epochs of leaders (version 7): without those
# the word of one that was cut off would outweigh what is known.
_LONGEST_TRUST = 300.0
# Nothing seems to be wrong then, and what waits for metadata waits for each of them, too.
_LONGEST_CHECK = 1.0

MOST_ASKED = 5
"""How many brokers are asked in turn for a missing topic or leader. It may be missing for ever, and
each of these brokers costs a connection that the client may need for nothing else."""

_FIRST_WITH_EPOCHS = 7

CONTROLLERS = 2
"""The type of the endpoints of controllers in DescribeCluster."""

_FIRST_WITH_CONTROLLERS = 1

# The key of an API that controllers have, from the first one on that clients may connect to.
_DESCRIBE_QUORUM = 55

FATAL = (*REFUSALS, UnsupportedVersionError)
"""What no other broker will do differently."""


class Discovery:
    """Finds a broker that gives metadata.

    Owns where the known addresses come from, the names of the bootstrap servers, and which brokers
    are in doubt.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self.servers = config.bootstrap_servers
        """Where to start: as configured, or the canonical names of that (KIP-235)."""
        self.origin = ""
        """Where the known addresses come from, for messages."""
        self._is_sent_back = False
        self.told_by: int | None = None
        """The broker that has given metadata last; None for a bootstrap server whose address the
        metadata does not list."""
        self._told_since = 0.0
        self._tells_epochs = False
        self._doubted: set[int] = set()
        self._is_in_doubt = False
        self._looks_elsewhere = False
        self._is_check = False

    def doubt(self) -> None:
        """Ask other brokers next time than the one that has told last, and those before it that
        were in doubt."""
        self._is_in_doubt = True
        self._avoid_last()

    def look_elsewhere(self) -> None:
        """Ask other brokers next time, as `doubt` does, but each of them briefly, and at most
        `MOST_ASKED`: the last one lacks a topic or a leader, which may be true."""
        if self._looks_elsewhere:
            return  # each of many partitions asks for it
        self._looks_elsewhere = True
        if len(self._doubted) >= MOST_ASKED - 1:
            self._doubted.clear()  # begin again, with another than the last
        self._avoid_last()

    def _avoid_last(self) -> None:
        if self.told_by is not None:
            self._doubted.add(self.told_by)

    def take_sent_back(self) -> bool:
        """Return, once, whether a broker has said that what is known of the cluster is of no use
        (KIP-1102).

        Nor are connections to its brokers, even to the same addresses: names may lead elsewhere.
        """
        is_sent_back, self._is_sent_back = self._is_sent_back, False
        return is_sent_back

    async def ask_anybody(
        self, pool: ConnectionPool, nodes: tuple[int, ...], wanted: Set[str] | None
    ) -> MetadataResponse:
        """Return the first response of a known broker, else of a bootstrap server: that of a
        refresh, which looks into a doubt.

        `wanted` None means all topics. Raises the KafkaError that tells most.
        """
        order = self._by_doubt(self._candidates(pool, nodes))
        node_id, response = await self._ask_in_turn(pool, order, wanted, is_check=self._is_check)
        if node_id is not None:
            self._trust(node_id)
        return response

    async def ask_beside(
        self, pool: ConnectionPool, nodes: tuple[int, ...], deadline: float | None
    ) -> MetadataResponse:
        """Return a response about all topics, as `ask_anybody` does, that is no refresh: what is in
        doubt stays so until the next.

        No broker has more than a part of the time until `deadline` (loop time), if there is one,
        which is no end.
        """
        order = sorted(self._candidates(pool, nodes), key=self._doubted.__contains__)
        _, response = await self._ask_in_turn(pool, order, None, deadline)
        return response

    async def _ask_in_turn(
        self,
        pool: ConnectionPool,
        candidates: list[int],
        wanted: Set[str] | None,
        deadline: float | None = None,
        *,
        is_check: bool = False,
    ) -> tuple[int | None, MetadataResponse]:
        """Return the first response and which broker gave it, None for a bootstrap server."""
        failure: KafkaError | None = None
        loop, trigger = asyncio.get_running_loop(), self._config.rebootstrap_trigger
        until = math.inf if trigger is None else loop.time() + trigger
        for node_id in candidates:
            left = until - loop.time()
            if failure is not None and left <= 0:
                break
            is_brief = is_check and node_id not in self._doubted
            limit = _LONGEST_CHECK if is_brief else _LONGEST_ASK
            if trigger is None and node_id == candidates[-1]:
                limit = max(limit, self._config.request_timeout)
            limit = min(limit, max(left, _LONGEST_CHECK))
            if deadline is not None:
                limit = min(limit, max(_LEAST, (deadline - loop.time()) * _PART))
            try:
                async with timeout(limit):
                    response = await self.ask(await pool.get(node_id), wanted)
                return node_id, response
            except asyncio.TimeoutError:
                failure = RequestTimedOutError(f"node {node_id}: no metadata in {limit:g} s")
            except RebootstrapRequired as error:
                failure = error
                self._is_sent_back = trigger is not None
                break
            except KafkaError as error:
                failure = error
            if is_brief:
                # The next check is for another one: this one would cost each of them a second.
                self._doubted.add(node_id)
            extra = {"client_id": self._config.client_id, "node_id": node_id}
            log.debug("no metadata from node %d: %s", node_id, failure, extra=extra)
        if failure is not None and trigger is None:
            raise failure
        # KIP-899, KIP-1102: no known broker helps, perhaps all have moved. Either each of them was
        # just tried, or trying them takes longer than it may.
        log.debug(
            "no known broker gives metadata: asking the bootstrap servers again",
            extra={"client_id": self._config.client_id},
        )
        deadline = loop.time() + self._config.request_timeout
        return None, await self.ask_bootstrap_servers(pool, wanted, deadline)

    def _candidates(self, pool: ConnectionPool, nodes: tuple[int, ...]) -> list[int]:
        """Return the brokers to ask: connected ones first, the least loaded of them before others;
        last those that would let the request wait, as they throttle this client.

        Those in backoff are left out if there are bootstrap servers to ask instead.
        """
        connected = {node_id: connection for node_id in nodes if (connection := pool.find(node_id))}
        others = [node_id for node_id in nodes if node_id not in connected]
        if self._config.rebootstrap_trigger is not None:
            others = [node_id for node_id in others if not pool.retry_delay(node_id)]
        random.shuffle(others)
        # A connect that is in progress already may be stuck.
        others.sort(key=lambda node_id: (pool.is_connecting(node_id), pool.retry_delay(node_id)))
        ready = sorted(connected, key=lambda node_id: connected[node_id].in_flight)
        return sorted([*ready, *others], key=pool.is_held_up)

    def _by_doubt(self, candidates: list[int]) -> list[int]:
        """Return the brokers to ask, with those in doubt last.

        1. A broker that was cut off from the others names the leaders of before, for as long as it
           likes, and is the one that this client is connected to.
        2. What it says shows to be old: `doubt`. The next refresh asks another broker.
        3. That one may be cut off as well. It is in doubt, too, and the next one is asked; when all
           are in doubt, all but the last are asked again.
        4. A refresh without a new doubt ends all.
        5. Nothing may ever show that what the broker says is old: its partitions have no new
           records, as it sees it. So none is trusted for long.
        6. It lacks a topic or a leader: `look_elsewhere`. As long as the others lack it, too, they
           are asked in turn. No answer of theirs is needed, so each has a moment.
        """
        now = asyncio.get_running_loop().time()
        is_over = self._tells_epochs and now - self._told_since >= _LONGEST_TRUST
        # Not longer than a moment, if there is no other reason for a doubt.
        may_check = (is_over or self._looks_elsewhere) and not self._is_in_doubt
        self._is_check = may_check and self.told_by in candidates
        if is_over:
            # Once in that time, as the others may be out of reach, and trying that takes long.
            self._told_since = now
            self.doubt()
        if not (self._is_in_doubt or self._looks_elsewhere):
            self._doubted.clear()
        self._is_in_doubt = self._looks_elsewhere = False
        if self._doubted.issuperset(candidates) and self.told_by is not None:
            self._doubted = {self.told_by}
        return sorted(candidates, key=self._doubted.__contains__)

    def _trust(self, node_id: int | None) -> None:
        if node_id != self.told_by:
            self.told_by = node_id
            self._told_since = asyncio.get_running_loop().time()

    async def ask(self, connection: BrokerConnection, wanted: Set[str] | None) -> MetadataResponse:
        """Return the metadata of one broker. Raises KafkaError, also when it names no broker."""
        if self._config.is_for_controllers:
            response = await _ask_controller(connection)
        else:
            response = await self._ask_broker(connection, wanted)
        response.brokers = [broker for broker in response.brokers if _is_reachable(broker)]
        if not response.brokers:
            raise MetadataEmptyBrokerList(f"{connection.peer}: knows no brokers")
        return response

    async def _ask_broker(
        self, connection: BrokerConnection, wanted: Set[str] | None
    ) -> MetadataResponse:
        _refuse_controller(connection)
        version = connection.pick(MetadataRequest)
        self._tells_epochs = version >= _FIRST_WITH_EPOCHS
        topics = None
        if wanted is not None:
            topics = [MetadataRequestTopic(name=name) for name in sorted(wanted)]
        elif version == 0:
            # Before version 1 no topics meant all of them.
            topics = []
        request = MetadataRequest(topics=topics)
        if version >= 4:
            request.allow_auto_topic_creation = self._config.allow_auto_create_topics
        response = await connection.request(request, version=version)
        if response.error_code:
            raise for_code(response.error_code)(f"{connection.peer}: refused Metadata")
        return response

    async def ask_bootstrap_servers(
        self, pool: ConnectionPool, wanted: Set[str] | None, deadline: float
    ) -> MetadataResponse:
        """Ask the servers in turn, the next one also when those before it are slow.

        Raises ONE KafkaConnectionError with the reason of every server, at the latest at `deadline`
        (loop time); FATAL errors as themselves.
        """
        loop = asyncio.get_running_loop()
        if self._config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
            # What is left is for the servers.
            by = loop.time() + (deadline - loop.time()) * _PART_FOR_NAMES
            self.servers = await canonical(self._config.bootstrap_servers, by)
        waiting = list(range(-1, -len(self.servers) - 1, -1))
        # One response may be lost, which the other servers make up for.
        may_repeat = len(self.servers) == 1
        connecting: dict[asyncio.Future[BrokerConnection], int] = {}
        failures: dict[int, KafkaError] = {}
        try:
            while (waiting or connecting) and loop.time() < deadline:
                if waiting:
                    node_id = waiting.pop(0)
                    connecting[pool.connect(node_id)] = node_id
                left = deadline - loop.time()
                done, _ = await asyncio.wait(
                    connecting,
                    timeout=min(left, _STAGGER) if waiting else left,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                # All of them, so that no exception is left unseen when one succeeds.
                failed = {future for future in done if future.exception() is not None}
                for future in [*failed, *(done - failed)]:
                    node_id = connecting.pop(future)
                    limit = deadline
                    if waiting or connecting or may_repeat:
                        now = loop.time()
                        part = max(_LEAST, (deadline - now) * _PART)
                        limit = min(deadline, now + min(_LONGEST_ASK, part))
                    try:
                        connection = future.result()
                        return await self._ask_bootstrap_server(
                            connection, node_id, pool, wanted, limit
                        )
                    except FATAL:
                        raise
                    except KafkaError as error:
                        failures[node_id] = error
                        if may_repeat and isinstance(error.__cause__, RequestTimedOutError):
                            may_repeat = False
                            waiting.append(node_id)
        finally:
            for future, node_id in connecting.items():
                _let_go(pool, future, node_id)
        raise self._bootstrap_error(failures)

    async def _ask_bootstrap_server(
        self,
        connection: BrokerConnection,
        node_id: int,
        pool: ConnectionPool,
        wanted: Set[str] | None,
        deadline: float,
    ) -> MetadataResponse:
        try:
            async with timeout_at(deadline):
                response = await self.ask(connection, wanted)
        except asyncio.TimeoutError:
            pool.drop(node_id, ConnectionGroup.DEFAULT, "no answer to Metadata")
            text = f"{connection.peer}: no answer to Metadata in time"
            raise KafkaConnectionError(text) from RequestTimedOutError()
        except BaseException:
            pool.drop(node_id, ConnectionGroup.DEFAULT, "gave no metadata")
            raise
        self.origin = (
            f"{connection.peer} gave this address; "
            "if it cannot be reached from here, check the brokers' advertised.listeners"
        )
        self._trust(self._adopt(pool, connection, node_id, response))
        return response

    def _adopt(
        self,
        pool: ConnectionPool,
        connection: BrokerConnection,
        node_id: int,
        response: MetadataResponse,
    ) -> int | None:
        """Keep the connection if it leads to one of the brokers, and return which; a second one to
        the same place is of no use.

        The last call that asks by it decides: it may be the refresh and one of the application.
        """
        # Not the server of this number: the names may have been looked up again meanwhile.
        same = {connection.address}
        if connection.remote is not None and not self._config.security.uses_tls:
            same.add(connection.remote)
        for broker in response.brokers:
            if (broker.host, broker.port) in same:
                if not connection.in_flight:
                    pool.adopt(
                        node_id,
                        broker.node_id,
                        Endpoint(broker.host, broker.port, f"node {broker.node_id}"),
                    )
                return broker.node_id
        if not connection.in_flight:
            pool.drop(node_id, ConnectionGroup.DEFAULT, "not a broker's advertised address")
        return None

    def _bootstrap_error(self, failures: Mapping[int, KafkaError]) -> KafkaConnectionError:
        reasons = []
        for index, server in enumerate(self.servers):
            failure, address = failures.get(-index - 1), format_address(*server)
            if failure is None:
                reason = "no answer in time"
            elif isinstance(failure, KafkaConnectionError) and failure.args:
                reason = str(failure.args[0])
            else:
                reason = str(failure)
            # What a source of credentials fails with knows of no server.
            reasons.append(reason if reason.startswith(address) else f"{address}: {reason}")
        error = KafkaConnectionError(f"Unable to bootstrap from {'; '.join(reasons)}")
        # One that answers, but knows no brokers, is the one to wait for.
        causes = sorted(failures.values(), key=_knows_brokers)
        error.__cause__ = next(iter(causes), None)
        return error


def _knows_brokers(failure: KafkaError) -> bool:
    return not isinstance(failure, MetadataEmptyBrokerList)


def _let_go(pool: ConnectionPool, future: asyncio.Future[BrokerConnection], node_id: int) -> None:
    """Cancel a connect to a bootstrap server; close a connection that it has just made."""
    if future.cancel() or future.cancelled() or future.exception() is not None:
        return
    if not future.result().in_flight:
        pool.drop(node_id, ConnectionGroup.DEFAULT, "another bootstrap server was faster")


def _refuse_controller(connection: BrokerConnection) -> None:
    """Raise UnsupportedVersionError for a controller, which has no metadata for clients."""
    served = connection.versions.api_versions if connection.versions is not None else {}
    if _DESCRIBE_QUORUM in served and MetadataRequest.API_KEY not in served:
        raise UnsupportedVersionError(
            f"{connection.peer}: is a controller, not a broker: it serves admin clients alone, "
            "by bootstrap_controllers"
        )


def _is_reachable(broker: Any) -> bool:
    return broker.node_id >= 0 and is_address(broker.host, broker.port)


async def _ask_controller(connection: BrokerConnection) -> MetadataResponse:
    """Return the controllers, and which of them is active, as metadata without topics (KIP-919).

    Raises UnsupportedVersionError before Kafka 3.7, MismatchedEndpointType for a broker, and the
    error of the response.
    """
    # Not loaded for clients of brokers.
    from aiokafka.protocol.messages.cluster import DescribeClusterRequest

    peer = connection.peer
    version = connection.pick(DescribeClusterRequest)
    if version < _FIRST_WITH_CONTROLLERS:
        raise UnsupportedVersionError(
            f"{peer}: bootstrap_controllers needs Kafka 3.7 (KIP-919): use bootstrap_servers"
        )
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    request.endpoint_type = CONTROLLERS
    response = await connection.request(request, version=version)
    if response.error_code == MismatchedEndpointType.errno:
        raise MismatchedEndpointType(
            f"{peer}: is a broker, not a controller: name it in bootstrap_servers"
        )
    if response.error_code:
        reason = response.error_message or "refused DescribeCluster"
        raise for_code(response.error_code)(f"{peer}: {reason}")
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in response.brokers
        ],
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=[],
    )
