"""The public value classes, such as OffsetAndMetadata. Most of them are tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._consumer_record import KT, VT, ConsumerRecord
from aiokafka._partitions import TopicPartition
from aiokafka._typing import Self, later

if TYPE_CHECKING:
    from socket import socket

    from aiokafka.errors import KafkaError
else:
    socket = later("socket.socket")
    KafkaError = later("aiokafka.errors.KafkaError")

__all__ = [
    "KT",
    "VT",
    "BrokerAddress",
    "BrokerMetadata",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "Dialed",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "SubscriptionPattern",
    "TopicPartition",
]


class BrokerAddress:
    """An address to connect to, the argument of a `dialer`.

    `host` and `port` are those that a broker advertises, or those of a bootstrap server. `node_id`
    is the id of the broker, None for a bootstrap server.
    """

    __slots__ = ("host", "node_id", "port")

    # No NamedTuple: the creation of the class would slow down the start of every program.

    def __init__(self, host: str, port: int, node_id: int | None = None) -> None:
        self.host = host
        self.port = port
        self.node_id = node_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BrokerAddress):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"BrokerAddress({self.host!r}, {self.port}, node_id={self.node_id})"

    def _parts(self) -> tuple[str, int, int | None]:
        return self.host, self.port, self.node_id


class Dialed:
    """A result of a `dialer`: where to connect, and the host name in the broker's TLS certificate.

    Args:
        to: The address to connect to in place of the advertised address, as (host, port) or
            "host:port"; or a connected socket; or None for the advertised address.
        server_hostname: The name to check in the certificate; None for the advertised host.
    """

    __slots__ = ("server_hostname", "to")

    def __init__(
        self,
        to: tuple[str, int] | str | socket | None = None,
        server_hostname: str | None = None,
    ) -> None:
        checked: Any = server_hostname
        if checked is not None and not (isinstance(checked, str) and checked):
            raise TypeError(f"server_hostname={checked!r}: must be a non-empty str, or None")
        self.to = to
        self.server_hostname = server_hostname

    def __repr__(self) -> str:
        return f"Dialed({self.to!r}, server_hostname={self.server_hostname!r})"


class BrokerMetadata(NamedTuple):
    """A broker: its id, address and rack."""

    nodeId: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    """A partition, with the node ids of its leader (-1 without one), its replicas and its in-sync
    replicas. `error` is the error that the broker reported for the partition, None without one."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: type[KafkaError] | KafkaError | None = None


class _OffsetAndMetadata(NamedTuple):
    offset: int
    metadata: str = ""


class OffsetAndMetadata(_OffsetAndMetadata):
    """A pair of an offset to commit and a string of the application.

    The attribute `leader_epoch`, which is not part of the pair, is the leader epoch of the record
    before the offset, -1 if unknown. A consumer that starts at the offset detects a truncated log
    by the epoch (KIP-320).
    """

    leader_epoch: int = -1

    def __new__(cls, offset: int, metadata: str = "", leader_epoch: int = -1) -> Self:
        made = tuple.__new__(cls, (offset, metadata))
        if leader_epoch != -1:
            made.leader_epoch = leader_epoch
        return made

    def __repr__(self) -> str:
        epoch = "" if self.leader_epoch < 0 else f", leader_epoch={self.leader_epoch}"
        return f"OffsetAndMetadata(offset={self.offset}, metadata={self.metadata!r}{epoch})"

    def _replace(self, **changes: Any) -> Self:
        given = {**self._asdict(), "leader_epoch": self.leader_epoch, **changes}
        return type(self)(**given)


class OffsetAndTimestamp(NamedTuple):
    """The result of `offsets_for_times`: the offset of a record and its timestamp.

    The timestamp is in milliseconds since 1970 (UTC); None for a log without timestamps.
    """

    offset: int
    timestamp: int | None


class ConsumerGroupMetadata(NamedTuple):
    """The identity of a consumer in its group, for offsets committed in a transaction (KIP-447).

    If only `group_id` is set, the broker cannot fence a member that has lost its partitions.
    `generation_id` is the member epoch in groups of the consumer protocol (KIP-848).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class SubscriptionPattern(NamedTuple):
    """A regular expression for `subscribe(pattern=...)`, evaluated by the broker.

    The pattern has RE2 syntax, must match whole topic names, and also matches internal topics. It
    needs group_protocol="consumer" (KIP-848) and Kafka 4.0.
    """

    pattern: str


class RecordMetadata(NamedTuple):
    """The partition, offset and timestamp of a record that was sent.

    `timestamp` is in milliseconds since 1970 (UTC). `timestamp_type` is 0 for the time of the
    producer, 1 for the time of the append. `offset` is -1 if the broker reports a duplicate
    without its offset. `log_start_offset` is None with old brokers.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    log_start_offset: int | None
