"""The admin client: start, close, the methods of aiokafka 0.14, and the sub-clients, such as
`topics`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiokafka._arguments import (
    as_instance,
    as_int,
    as_names,
    as_number,
    as_partitions,
    as_text,
    as_tp,
    by_partition,
)
from aiokafka._config import SecurityConfig, warn_ignored
from aiokafka._config.admin import AdminConfig
from aiokafka._config.options import (
    apply_defaults,
    naming_defaults,
    refuse_unknown,
    show_options,
)
from aiokafka._tasks import made_for, refuse_other_loop
from aiokafka._telemetry import Reporting
from aiokafka._typing import Self, Unpack, later
from aiokafka.admin._items import by_leader, by_node, settle
from aiokafka.admin._routing import R, Router, call_of, fetch_metadata
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    AdminItemsError,
    IllegalStateError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from aiokafka.protocol.schema import Request
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.admin.acls import Acls
    from aiokafka.admin.brokers import Brokers
    from aiokafka.admin.config_resource import ConfigResource
    from aiokafka.admin.configs import Configs
    from aiokafka.admin.groups import Groups
    from aiokafka.admin.offsets import Offsets
    from aiokafka.admin.quotas import Quotas
    from aiokafka.admin.records import Records
    from aiokafka.admin.results import (
        AlterConfigsResult,
        ClusterDict,
        CreatedTopics,
        DescribeConfigsResult,
        DescribeGroupsResult,
        TopicDict,
        TopicResults,
    )
    from aiokafka.admin.tokens import DelegationToken, Tokens
    from aiokafka.admin.topics import Topics
    from aiokafka.admin.transactions import Transactions
    from aiokafka.admin.users import Users
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.options import AdminOptions
else:
    DelegationToken = later("aiokafka.admin.tokens.DelegationToken")
    ConfigResource = later("aiokafka.admin.config_resource.ConfigResource")
    AlterConfigsResult = later("aiokafka.admin.results.AlterConfigsResult")
    ClusterDict = later("aiokafka.admin.results.ClusterDict")
    CreatedTopics = later("aiokafka.admin.results.CreatedTopics")
    DescribeConfigsResult = later("aiokafka.admin.results.DescribeConfigsResult")
    DescribeGroupsResult = later("aiokafka.admin.results.DescribeGroupsResult")
    TopicDict = later("aiokafka.admin.results.TopicDict")
    TopicResults = later("aiokafka.admin.results.TopicResults")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")
    AdminOptions = later("aiokafka.options.AdminOptions")
    Acls = later("aiokafka.admin.acls.Acls")
    Brokers = later("aiokafka.admin.brokers.Brokers")
    Configs = later("aiokafka.admin.configs.Configs")
    Groups = later("aiokafka.admin.groups.Groups")
    Offsets = later("aiokafka.admin.offsets.Offsets")
    Quotas = later("aiokafka.admin.quotas.Quotas")
    Records = later("aiokafka.admin.records.Records")
    Tokens = later("aiokafka.admin.tokens.Tokens")
    Topics = later("aiokafka.admin.topics.Topics")
    Transactions = later("aiokafka.admin.transactions.Transactions")
    Users = later("aiokafka.admin.users.Users")

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]


@dataclass(frozen=True)
class SendTo:
    """The broker that gets a request. Create it by a class method, such as `controller()`."""

    kind: str
    target: Any = None

    @classmethod
    def any(cls) -> SendTo:
        """Choose any broker; if it fails or does not respond, choose another broker."""
        return cls("any")

    @classmethod
    def controller(cls) -> SendTo:
        """Choose the controller; with KRaft, a broker, which forwards requests to the
        controller."""
        return cls("controller")

    @classmethod
    def broker(cls, broker_id: int) -> SendTo:
        """Choose the broker with this id."""
        return cls("broker", as_int("broker_id", broker_id))

    @classmethod
    def leader(cls, partition: TopicPartition) -> SendTo:
        """Choose the leader of a partition."""
        return cls("leader", as_tp("partition", partition))

    @classmethod
    def coordinator(cls, group_id: str) -> SendTo:
        """Choose the coordinator of a group."""
        return cls("group", as_text("group_id", group_id))

    @classmethod
    def transaction_coordinator(cls, transactional_id: str) -> SendTo:
        """Choose the coordinator of a transactional id."""
        return cls("transaction", as_text("transactional_id", transactional_id))


_ANY = SendTo.any()


class AIOKafkaAdminClient(Reporting):
    """Inspects a cluster, and changes it.

    Use it with `async with`, or call `start` and `close`. A call is retried if a broker fails, or
    is no longer the leader, coordinator or controller. A call raises KafkaTimeoutError after its
    argument `timeout_ms`, by default after `request_timeout_ms`. If the response to a change is
    lost, the change is sent again, and may then fail because the first attempt has made the change.
    Cancelling a call does not undo requests that were sent.

    This class has the methods of aiokafka 0.14, and `send`, `send_to_all` and `metrics`. All other
    calls are methods of sub-clients: `acls`, `groups`, `records` and so on. A call of a sub-client
    about a single item, such as a topic, raises the error of this item. A call about several items
    raises AdminItemsError if some of them fail, with the errors and the results by item.

    `api_version` has no effect. `loop` is deprecated. It is the event loop that the client will
    use, and is needed only if the client is created before a loop runs.

    Options, as keyword arguments (times in milliseconds, sizes in bytes):

    - `bootstrap_servers="localhost"`: Brokers to connect to first, or a function that returns them;
      they return the addresses of all other brokers. The port is 9092 if none is given. A function
      or coroutine function is called whenever the client connects to them, also after an outage of
      all known brokers.
    - `client_dns_lookup="use_all_dns_ips"`: use_all_dns_ips: connect to the names in
      bootstrap_servers as they are. resolve_canonical_bootstrap_servers_only: replace each name by
      the canonical host names of its addresses, which Kerberos needs for an alias (KIP-235).
    - `bootstrap_resolve_timeout_ms=0`: Time for which start() repeats the look-up of the names in
      bootstrap_servers until one of them has an address (KIP-909); 0: a single look-up.
    - `client_id`: Name of the client in the broker's logs, quotas and metrics; None for the
      default.
    - `request_timeout_ms=40000`: Time to wait for the response to a request.
    - `retry_backoff_ms=100`: Time to wait before a failed request is sent again; doubles after
      every further failure.
    - `retry_backoff_max_ms=1000`: Maximum time between two attempts of a request.
    - `reconnect_backoff_ms=50`: Time to wait before the client connects to a broker again after a
      failure; doubles after every further failure.
    - `reconnect_backoff_max_ms=1000`: Maximum time between two attempts to connect to a broker.
    - `socket_connection_setup_timeout_ms=10000`: Time in which a connection has to be established,
      authentication included; doubles after every failure, until a connection succeeds.
    - `socket_connection_setup_timeout_max_ms=30000`: Maximum of the time in which a connection has
      to be established.
    - `connections_max_idle_ms=540000`: Close a connection that was not used for this time; None:
      never.
    - `metadata_max_age_ms=300000`: Refresh the metadata of the cluster at least this often.
    - `metadata_max_idle_ms=300000`: Remove a topic from the metadata if it was not used for this
      time (KIP-526).
    - `metadata_recovery_rebootstrap_trigger_ms=300000`: Connect to bootstrap_servers again if no
      known broker returns metadata: as soon as all known brokers have been tried, or at the latest
      after this time; None: never.
    - `metadata_cluster_check_enable=True`: Let each broker check on connect that it is the expected
      node of the expected cluster; if not, connect to bootstrap_servers again (KIP-1242, Kafka
      4.4). No effect if metadata_recovery_rebootstrap_trigger_ms is None.
    - `receive_message_max_bytes=268435456`: Reject a response that is larger than this number of
      bytes.
    - `allow_auto_create_topics=True`: Let a broker create a missing topic when the client requests
      its metadata, if the broker is configured so (auto.create.topics.enable).
    - `enable_metrics_push=True`: Push metrics to brokers that request them (KIP-714). In an admin
      client the default is False.
    - `client_rack=None`: Rack of the client. A consumer fetches from a replica in this rack
      (KIP-392, Kafka 2.4), and the group's assignor may prefer partitions with a replica in it. A
      producer uses it with partitioner_rack_aware. Other clients do not use it.
    - `dialer=None`: Function or coroutine function that gets a BrokerAddress before each connect,
      and returns another address to connect to, a connected socket, a Dialed, or None for the
      address as it is. TLS checks the advertised host name.
    - `proxy_url=None`: Proxy for all connections: socks5://host:port, socks4://host:port or
      http://host:port (HTTP CONNECT), with user:password@ before the host if the proxy needs it.
      The proxy resolves the names of brokers.
    - `broker_address_family="any"`: IP version of the addresses to which host names are resolved.
    - `send_buffer_bytes=None`: Size of the system's send buffer of a connection (SO_SNDBUF); None:
      the system adapts it.
    - `receive_buffer_bytes=None`: Size of the system's receive buffer of a connection (SO_RCVBUF);
      None: the system adapts it.
    - `socket_options=()`: Options of sockets as (level, option, value), as setsockopt takes them.
      Connections have TCP_NODELAY and SO_KEEPALIVE anyway.
    - `bootstrap_controllers=None`: Controllers to connect to instead of brokers (KIP-919, Kafka
      3.7), for example while no broker runs. Excludes bootstrap_servers.
    - `security_protocol="PLAINTEXT"`: Protocol of the brokers' listener: with or without TLS, with
      or without SASL.
    - `ssl_context=None`: TLS settings, or a function that returns them for each new connection;
      required for SSL and SASL_SSL.
    - `sasl_mechanism="PLAIN"`: SASL mechanism, for SASL_PLAINTEXT and SASL_SSL: a name, or an
      aiokafka.abc.AbstractSaslMechanism for a mechanism of the application.
    - `sasl_plain_username=None`: User name for PLAIN and SCRAM, or a function that returns it for
      each authentication.
    - `sasl_plain_password=None`: Password for PLAIN and SCRAM, or a function that returns it for
      each authentication.
    - `sasl_scram_tokenauth=False`: With SCRAM: authenticate by a delegation token. The user name is
      the id of the token, the password its HMAC in base64 (KIP-48).
    - `sasl_kerberos_service_name="kafka"`: Service name of the brokers for GSSAPI: the first part
      of their principals.
    - `sasl_kerberos_domain_name=None`: Host name in the principal of the broker, for GSSAPI; by
      default the host name of the connection.
    - `sasl_kerberos_principal=None`: Principal of the client for GSSAPI; by default the principal
      of the ticket cache, or the first principal of the keytab.
    - `sasl_kerberos_keytab=None`: Path of a keytab with which tickets are obtained, for GSSAPI; by
      default the environment variables KRB5CCNAME and KRB5_CLIENT_KTNAME apply.
    - `sasl_oauth_token_provider=None`: Source of tokens for OAUTHBEARER.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        api_version: str | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        warn_ignored(api_version=api_version)
        refuse_unknown(type(self).__name__, options, AdminConfig, SecurityConfig)
        given, applied = apply_defaults("admin", options)
        given.setdefault("enable_metrics_push", False)
        with naming_defaults(applied):
            self._config = AdminConfig.from_options(**given)
        self._config.note_defaults(applied)
        with made_for(loop, type(self).__name__) as self._loop:
            self._client = AIOKafkaClient(self._config)
        self._router = Router(self._client, self._config)
        self._started = False
        self._closed = False
        self._report(AIOKafkaAdminClient.metrics, self._client.telemetry)

    async def start(self) -> None:
        """Connect to the cluster. If the client is started, do nothing.

        Raises KafkaConnectionError if no broker responds within `request_timeout_ms`,
        AuthenticationFailedError if brokers reject the credentials, and IllegalStateError after
        `close`.
        """
        if self._started:
            return
        if self._closed:
            raise IllegalStateError("the admin client is closed")
        await self._client.bootstrap()
        self._started = True

    async def close(self) -> None:
        """Close the connections. Further calls of `close` do nothing. `close` can also be called
        before `start`."""
        if self._closed:
            return
        await self._client.close()
        self._started = False
        self._closed = True

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics of the connections to brokers. Works before `start` and after
        `close`."""
        return self._client.metrics("admin-client")

    async def stop(self) -> None:
        """Close the connections, as `close` does."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        finally:
            # If close() was cancelled, nobody calls it again, so close the sockets at once.
            self._client.abort()

    def _deadline(self, timeout_ms: float | None = None) -> float:
        """Return the deadline (loop time) for `timeout_ms`, by default `request_timeout_ms`.

        Raises IllegalStateError unless the client is started, and TypeError or ValueError if
        `timeout_ms` is not a number.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            refuse_other_loop(self._loop, type(self).__name__)
        if not self._started:
            state = "closed" if self._closed else "not started"
            raise IllegalStateError(f"the admin client is {state}")
        if timeout_ms is None:
            return loop.time() + self._config.request_timeout
        milliseconds = as_number("timeout_ms", timeout_ms, "a number of milliseconds, or None")
        return loop.time() + max(0.0, milliseconds / 1000)

    # -- sub-clients

    @cached_property
    def acls(self) -> Acls:
        """The sub-client for ACL entries."""
        from aiokafka.admin.acls import Acls

        return Acls(self)

    @cached_property
    def brokers(self) -> Brokers:
        """The sub-client for brokers, controllers and the cluster."""
        from aiokafka.admin.brokers import Brokers

        return Brokers(self)

    @cached_property
    def configs(self) -> Configs:
        """The sub-client for configurations."""
        from aiokafka.admin.configs import Configs

        return Configs(self)

    @cached_property
    def groups(self) -> Groups:
        """The sub-client for groups and their offsets."""
        from aiokafka.admin.groups import Groups

        return Groups(self)

    @cached_property
    def offsets(self) -> Offsets:
        """The sub-client for the offsets of partitions."""
        from aiokafka.admin.offsets import Offsets

        return Offsets(self)

    @cached_property
    def quotas(self) -> Quotas:
        """The sub-client for client quotas."""
        from aiokafka.admin.quotas import Quotas

        return Quotas(self)

    @cached_property
    def records(self) -> Records:
        """The sub-client for records."""
        from aiokafka.admin.records import Records

        return Records(self)

    @cached_property
    def tokens(self) -> Tokens:
        """The sub-client for delegation tokens."""
        from aiokafka.admin.tokens import Tokens

        return Tokens(self)

    @cached_property
    def topics(self) -> Topics:
        """The sub-client for topics."""
        from aiokafka.admin.topics import Topics

        return Topics(self)

    @cached_property
    def transactions(self) -> Transactions:
        """The sub-client for transactions and their producers."""
        from aiokafka.admin.transactions import Transactions

        return Transactions(self)

    @cached_property
    def users(self) -> Users:
        """The sub-client for users and their SCRAM credentials."""
        from aiokafka.admin.users import Users

        return Users(self)

    # -- any request

    async def send(
        self,
        request: Request[R],
        to: SendTo = _ANY,
        *,
        timeout_ms: float | None = None,
    ) -> R:
        """Send any request of Kafka's protocol, and return the response.

        Args:
            request: a request of `aiokafka.protocol.messages`. It is sent in the newest version
                that client and broker support. This version must have all fields that are set.
            to: the broker, such as `SendTo.controller()` or `SendTo.leader(partition)`; by default
                any broker.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The request is sent again if the connection fails, or if an error code in the response says
        that the broker is not the controller or coordinator any more. All other error codes are for
        the caller to check. Raises UnsupportedVersionError if the broker does not support the
        request or a field, TypeError for a field of another type, and ValueError for a value that
        cannot be encoded.
        """
        deadline = self._deadline(timeout_ms)
        call = call_of(as_instance("request", request, Request))
        router, to = self._router, as_instance("to", to, SendTo)
        if to.kind == "any":
            return await router.to_any(call, deadline)
        if to.kind == "controller":
            return await router.to_controller(call, deadline)
        if to.kind == "broker":
            return await router.to_node(to.target, call, deadline)
        if to.kind == "leader":

            async def ask(node_id: int, part: list[TopicPartition]) -> dict[TopicPartition, R]:
                return dict.fromkeys(part, await router.send(node_id, call, deadline))

            found = await by_leader(router, [to.target], ask, deadline)
            return found[to.target]
        kind = CoordinationType.GROUP if to.kind == "group" else CoordinationType.TRANSACTION
        return await router.to_coordinator(to.target, call, deadline, kind=kind)

    async def send_to_all(
        self, request: Request[R], *, timeout_ms: float | None = None
    ) -> dict[int, R]:
        """Send a request to all brokers at once; return the responses by broker id.

        Args:
            request: a request of `aiokafka.protocol.messages`, as for `send`.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        If brokers fail, raises AdminItemsError, with the errors by broker id and the responses of
        the other brokers. If there is only one broker, raises its error.
        """
        deadline = self._deadline(timeout_ms)
        call = call_of(as_instance("request", request, Request))
        metadata = await fetch_metadata(self._router, [], deadline)

        async def one(node_id: int, _: list[int]) -> dict[int, R]:
            return {node_id: await self._router.send_to_named(node_id, call, deadline)}

        return await settle(
            self._router,
            sorted(broker.node_id for broker in metadata.brokers),
            lambda left: by_node({node_id: [node_id] for node_id in left}, one),
            deadline,
        )

    # -- topics

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> CreatedTopics:
        """Create topics, or with `validate_only` check whether they could be created.

        Errors of topics are not raised: they are in `topic_errors` of the result, a list of (topic,
        error code, message). `details` of the result has the numbers of partitions and replicas of
        each topic, and its settings. The controller knows new topics at once, other brokers shortly
        afterwards. If the user's quota of changes is exhausted (`controller_mutation_rate`), the
        remaining topics are sent again later.
        """
        from aiokafka.admin import _upstream_calls

        deadline = self._deadline(timeout_ms)
        return await _upstream_calls.create_topics(
            self._router, new_topics, validate_only, deadline
        )

    async def delete_topics(
        self,
        topics: list[str] | tuple[str, ...] | Set[str],
        timeout_ms: int | None = None,
    ) -> TopicResults:
        """Delete topics with all their records.

        Errors of topics are not raised: they are in `topic_errors` and `topic_error_codes` of the
        result.
        """
        from aiokafka.admin import _upstream_calls

        return await _upstream_calls.delete_topics(self._router, topics, self._deadline(timeout_ms))

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions | int],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicResults:
        """Increase the numbers of partitions of topics to the given totals.

        Raises the first error of a topic, such as InvalidPartitionsError. Other topics of the call
        may have been changed nevertheless.
        """
        from aiokafka.admin import _upstream_calls

        deadline = self._deadline(timeout_ms)
        return await _upstream_calls.create_partitions(
            self._router, topic_partitions, validate_only, deadline
        )

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, internal topics included."""
        response = await fetch_metadata(self._router, None, self._deadline())
        return [str(topic.name) for topic in response.topics]

    async def describe_topics(
        self, topics: list[str] | tuple[str, ...] | Set[str] | None = None
    ) -> list[TopicDict]:
        """Return a dict for each topic (default: for all), with its partitions, their leaders and
        replicas.

        A topic that does not exist is not created: its dict has the `error_code` 3.
        """
        deadline = self._deadline()
        wanted = None if topics is None else as_names("topics", topics, repeats=True)
        if wanted is not None and not wanted:
            return []

        async def ask(
            names: list[str] | None, until: float, asked: set[int]
        ) -> dict[str, MetadataResponseTopic]:
            response = await fetch_metadata(self._router, names, until, asked=asked)
            return {str(topic.name): topic for topic in response.topics}

        unknown = UnknownTopicOrPartitionError.errno
        found = await self._router.ask_two(
            ask, wanted, lambda topic: topic.error_code == unknown, deadline
        )
        return [_topic(topic) for topic in found.values()]

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, RecordsToDelete],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset; return the first remaining offset of each partition.

        Raises the first error of a partition, such as OffsetOutOfRangeError. Records of other
        partitions may have been deleted nevertheless.
        """
        from aiokafka.admin import records

        before = {
            tp: _before(tp, to) for tp, to in by_partition("records_to_delete", records_to_delete)
        }
        try:
            return await records.delete_records(
                self._router, before, self._deadline(timeout_ms), fail_fast=True
            )
        except AdminItemsError as failed:
            raise next(iter(failed.errors.values())) from None

    # -- cluster and configurations

    async def describe_cluster(self) -> ClusterDict:
        """Return a dict with the brokers, the id of the cluster and the id of the controller."""
        response = await fetch_metadata(self._router, [], self._deadline())
        return {
            "throttle_time_ms": response.throttle_time_ms,
            "brokers": [
                {"node_id": b.node_id, "host": b.host, "port": b.port, "rack": b.rack}
                for b in response.brokers
            ],
            "cluster_id": response.cluster_id,
            "controller_id": response.controller_id,
        }

    async def _get_cluster_metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Return metadata of these topics (None: all topics). A private method of aiokafka 0.14."""
        return await fetch_metadata(self._router, topics, self._deadline())

    # Private methods of aiokafka 0.14. Programs call them to send requests that have no public
    # method.

    async def _send_request(self, request: Any, node_id: int | None = None) -> Any:
        """Send a request of `aiokafka.protocol` to a broker, by default to any broker."""
        node_id = self._client.get_random_node() if node_id is None else node_id
        return await self._client.send(node_id, request)

    async def _send_request_to_node(self, node_id: int, request: Any) -> Any:
        return await self._send_request(request, node_id)

    async def _send_to_controller(self, request: Any) -> Any:
        if self._client.controller() is None:
            await self._client.force_metadata_update()
        return await self._client.send(self._client.controller(), request)

    async def describe_configs(
        self, config_resources: Iterable[ConfigResource], include_synonyms: bool = False
    ) -> list[DescribeConfigsResult]:
        """Return the settings of topics, brokers and groups.

        There is one result for each named broker, and one for all other resources. With
        `include_synonyms`, each setting has its values from all sources (Kafka 1.1). Errors of
        resources are not raised: they are in `resources` of the results.
        """
        from aiokafka.admin import _upstream_calls

        return await _upstream_calls.describe_configs(
            self._router, config_resources, include_synonyms, self._deadline()
        )

    async def alter_configs(
        self, config_resources: Iterable[ConfigResource]
    ) -> list[AlterConfigsResult]:
        """Replace all settings of resources. Settings that are not given are reset to their
        defaults.

        Errors of resources are not raised: they are in `resources` of the results.
        """
        from aiokafka.admin import _upstream_calls

        return await _upstream_calls.alter_configs(self._router, config_resources, self._deadline())

    # -- groups

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[DescribeGroupsResult]:
        """Return the state and the members of classic and consumer groups, one result for each
        group.

        Args:
            group_ids: the ids of the groups.
            group_coordinator_id: id of the broker to send the requests to; by default the
                coordinator of each group is looked up.
            include_authorized_operations: also return the operations that the user may do.
        """
        from aiokafka.admin import _upstream_groups

        return await _upstream_groups.describe_groups(
            self._router,
            group_ids,
            group_coordinator_id,
            include_authorized_operations,
            self._deadline(),
        )

    async def list_consumer_groups(
        self, broker_ids: Iterable[int] | None = None
    ) -> list[tuple[str, str]]:
        """Return (group, protocol type) for the groups that these brokers (default: all)
        coordinate."""
        from aiokafka.admin import _upstream_groups

        return await _upstream_groups.list_groups(self._router, broker_ids, self._deadline())

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the id of the broker that coordinates a group (type 0) or transactional id (1)."""
        from aiokafka.admin import _upstream_groups

        deadline = self._deadline()
        return await _upstream_groups.find_coordinator(
            self._router, group_id, coordinator_type, deadline
        )

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, by default of all partitions with an offset.

        A requested partition without an offset has the offset -1. If a transaction that commits
        offsets of the group is open, the offsets before that transaction are returned; with
        `require_stable`, the call raises UnstableOffsetCommit instead, which is retriable (KIP-447,
        Kafka 2.5).
        """
        from aiokafka.admin import _upstream_groups

        tps = None if partitions is None else as_partitions("partitions", partitions)
        return await _upstream_groups.list_offsets(
            self._router, group_id, tps, require_stable, group_coordinator_id, self._deadline()
        )

    async def remove_members_from_consumer_group(
        self, group_id: str, group_instance_ids: Iterable[str], reason: str | None = ""
    ) -> None:
        """Remove static members from a classic group before their sessions expire (KIP-345, Kafka
        2.4).

        The group rebalances at once. A removed member that still runs rejoins; it fails with
        FencedInstanceId if another member has joined with its `group_instance_id` meanwhile.
        `reason` is for the broker's log (KIP-800). If the group has no member with one of the
        `group_instance_ids`, raises UnknownMemberIdError after removing the other members.
        """
        from aiokafka.admin import _upstream_groups

        await _upstream_groups.remove_members(
            self._router, group_id, group_instance_ids, reason, self._deadline()
        )

    # -- delegation tokens

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Create a token with which another client can authenticate as `owner` (KIP-48).

        The owner is by default the user of this client. Principals are strings such as
        "User:alice". `max_lifetime_ms=-1` selects the broker's default. Raises
        DelegationTokenRequestNotAllowed if this client has authenticated by a token, or neither by
        SASL nor by a client certificate. Other brokers than the controller know the token shortly
        afterwards.
        """
        return await self.tokens.create(renewers, owner, max_lifetime_ms)

    async def renew_delegation_token(self, hmac: bytes, renew_period_ms: int = -1) -> int:
        """Renew a token, as its owner or one of its renewers.

        The token expires `renew_period_ms` from now; -1 selects the broker's default period.
        Returns the new expiry time in milliseconds since 1970. Raises DelegationTokenNotFound,
        DelegationTokenExpired, or DelegationTokenOwnerMismatch for a user who may not renew the
        token.
        """
        return await self.tokens.renew(hmac, renew_period_ms)

    async def expire_delegation_token(self, hmac: bytes, expiry_period_ms: int = -1) -> int:
        """Change the expiry time of a token to `expiry_period_ms` from now; -1 expires it at once.

        Returns and raises the same as `renew_delegation_token`.
        """
        return await self.tokens.expire(hmac, expiry_period_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of these owners, by default all tokens that the user may describe."""
        return await self.tokens.describe(owners)


def _topic(topic: MetadataResponseTopic) -> TopicDict:
    return {
        "error_code": topic.error_code,
        "topic": topic.name or "",
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": partition.error_code,
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "replicas": list(partition.replica_nodes),
                "isr": list(partition.isr_nodes),
                "offline_replicas": list(partition.offline_replicas),
            }
            for partition in topic.partitions
        ],
    }


def _before(tp: TopicPartition, to: RecordsToDelete) -> int:
    if not hasattr(to, "before_offset"):
        raise TypeError(f"records_to_delete: {tp}: must be a RecordsToDelete, not {to!r}")
    return as_int(f"records_to_delete: {tp}", to.before_offset)


show_options(
    AIOKafkaAdminClient.__init__, AdminConfig, SecurityConfig, enable_metrics_push=lambda: False
)
