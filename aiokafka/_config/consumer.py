"""The configuration of consumers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka._config.client import ClientConfig
from aiokafka._config.options import (
    MOST_SENT_MS,
    Choice,
    Flag,
    Instance,
    Instances,
    Milliseconds,
    Number,
    Options,
    Serde,
    Text,
    nested,
    option,
)
from aiokafka._subject import Subject
from aiokafka.metrics import ConsumerMetricsCollector

if TYPE_CHECKING:
    from aiokafka.interceptors import ConsumerInterceptor

GROUP_PROTOCOLS = ("classic", "consumer")

_CLASSIC_OPTIONS = {
    "session_timeout": "see group.consumer.session.timeout.ms there",
    "heartbeat_interval": "see group.consumer.heartbeat.interval.ms there",
    "partition_assignment_strategy": "see group_remote_assignor",
}

_MEBIBYTE = 1024 * 1024


class _OffsetReset:
    """An option type: the reset policy for partitions without a valid position (KIP-1106).

    A timedelta is converted to "by_duration:" and an ISO 8601 duration.
    """

    accepts = (
        "'earliest', 'latest', 'none', a timedelta that is not negative, or 'by_duration:' and an "
        "ISO 8601 duration as PT1H"
    )
    annotation = 'Literal["earliest", "latest", "none"] | timedelta'

    def convert(self, value: Any) -> str:
        if not isinstance(value, str):
            return self._by_duration(value)
        name, _, rest = value.partition(":")
        name = name.lower()
        if name == "by_duration":
            parse_duration(rest)
            return f"{name}:{rest}"
        if rest or name not in ("earliest", "latest", "none"):
            raise ValueError
        return name

    def _by_duration(self, value: Any) -> str:
        from datetime import timedelta  # imported here, because most programs do not need it

        if not isinstance(value, timedelta):
            raise TypeError
        if value < timedelta():
            raise ValueError
        return f"by_duration:PT{value // timedelta(seconds=1)}.{value.microseconds:06}S"


def parse_duration(text: str) -> float:
    """Return the number of seconds in an ISO 8601 duration, such as `P1DT2H30M0.5S`.

    Raises ValueError for other texts, and for years, months and weeks.
    """
    found = re.fullmatch(
        r"P(?=\d|T\d)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?",
        text,
        re.IGNORECASE | re.ASCII,
    )
    if found is None:
        raise ValueError(f"{text!r} is not an ISO 8601 duration of days, hours, minutes, seconds")
    units = (86_400, 3_600, 60, 1)
    return sum(float(n) * unit for n, unit in zip(found.groups(), units, strict=True) if n)


class _PollLimit:
    """An option type: a positive integer or None. Other values of any type raise ValueError."""

    accepts = "an integer of at least 1, or None"
    annotation = "int | None"

    def convert(self, value: Any) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError
        return value


class _Assignors:
    """An option type: partition assignors, in the order of preference."""

    accepts = "a list or tuple of at least one partition assignor"
    annotation = "Sequence[type[AbstractPartitionAssignor] | AbstractPartitionAssignor]"

    def convert(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError
        for assignor in value:
            if not hasattr(assignor, "name") or not hasattr(assignor, "assign"):
                raise TypeError(f"{assignor!r} has no name or no assign method")
        return tuple(value)


class ConsumerConfig(Options):
    """The options of a consumer; `client` has the options of all clients."""

    @property
    def introduction(self) -> dict[str, Any]:
        """The argument of an interceptor's `configure`."""
        return self.client.introduction(group_id=self.group_id)

    @property
    def subject(self) -> str:
        """The consumer's name in log lines: its client id, and its group."""
        group = f" of group {self.group_id}" if self.group_id else ""
        client_id = self.client.client_id
        return Subject(
            f"Consumer {client_id}{group}", client_id=client_id, group_id=self.group_id or None
        )

    client: ClientConfig = nested(ClientConfig)
    group_id: str | None = option(
        Text(optional=True),
        "group_id",
        None,
        """Group to join, and to commit offsets for. None: no group; then the consumer reads all
        partitions of its topics.""",
        when="To divide partitions among processes, or to continue after a restart: nearly always.",
    )
    group_instance_id: str | None = option(
        Text(optional=True, empty=False),
        "group_instance_id",
        None,
        "Id of a static member, which keeps its partitions during a restart (KIP-345).",
        when="""If restarts must not cause rebalances: for example the name of the pod in a
        StatefulSet.""",
    )
    group_protocol: str = option(
        Choice(GROUP_PROTOCOLS),
        "group_protocol",
        "classic",
        """Protocol of the group: with classic, one of the members assigns the partitions; with
        consumer, the broker does (KIP-848, Kafka 4.0).""",
        when="""To consumer with brokers of Kafka 4.0 and later: a rebalance then stops only the
        partitions that move.""",
    )
    group_remote_assignor: str | None = option(
        Text(optional=True, empty=False),
        "group_remote_assignor",
        None,
        """Assignor of the broker for group_protocol="consumer": uniform, range, or another assignor
        in the broker's list group.consumer.assignors; None: the first assignor in that list.""",
        when="""With group_protocol="consumer", to use another assignor than the first in the
        broker's list.""",
    )
    key_deserializer: Callable[..., Any] | None = option(
        Serde("deserialize"),
        "key_deserializer",
        None,
        """Converts the bytes of a key to the key of the record; called with None for a record
        without a key. See value_deserializer.""",
        annotation="Callable[..., Any] | None",
        when="If keys are not bytes.",
    )
    value_deserializer: Callable[..., Any] | None = option(
        Serde("deserialize"),
        "value_deserializer",
        None,
        """Converts the bytes of a value to the value of the record; called with None for a record
        without a value (a tombstone). It is called with a SerializationContext, too, if its second
        parameter has the name ctx; it returns the result or an awaitable, which the call that reads
        awaits. If it raises an exception, records before this one are returned first; then each
        read of the partition raises RecordDeserializationError with topic, partition, offset and
        raw record, until the application skips the record:
        consumer.seek(error.topic_partition, error.offset + 1). See on_deserialization_error.""",
        annotation="Callable[..., Any] | None",
        when="If values are not bytes.",
    )
    on_deserialization_error: str = option(
        Choice(("raise", "skip", "raw")),
        "on_deserialization_error",
        "raise",
        """What to do with a record if a deserializer raises an exception. raise: raise
        RecordDeserializationError, with each read until the application seeks past the record.
        skip: leave the record out; the position moves past it. raw: return the record with its key
        and value as bytes, and the error in record.deserialization_error. With skip and raw, the
        consumer logs a warning and counts the record in health().unreadable.""",
        java="",
        when="""To raw to send unreadable records to another topic; to skip if they may be lost.""",
    )
    fetch_max_wait: float = option(
        Milliseconds(0, is_sent=True),
        "fetch_max_wait_ms",
        500,
        "Maximum time that a broker waits for fetch_min_bytes before it responds to a fetch.",
        java="fetch.max.wait.ms",
        when="Smaller for low latency if fetch_min_bytes is large.",
    )
    fetch_min_bytes: int = option(
        Number(0),
        "fetch_min_bytes",
        1,
        """Number of bytes that a broker waits for before it responds to a fetch, up to
        fetch_max_wait_ms.""",
        when="""Larger (10,000 to 1,000,000) to reduce the load of brokers and client, at the cost
        of latency.""",
    )
    fetch_max_bytes: int = option(
        Number(0),
        "fetch_max_bytes",
        50 * _MEBIBYTE,
        "Maximum number of bytes in one response to a fetch.",
        when="Smaller in a container with little memory.",
    )
    max_partition_fetch_bytes: int = option(
        Number(0),
        "max_partition_fetch_bytes",
        _MEBIBYTE,
        """Maximum number of bytes of one partition in one response to a fetch. If the first batch
        is larger, it is returned nevertheless.""",
        when="""Larger for throughput with few partitions; smaller with many partitions and little
        memory.""",
    )
    fetch_buffer_memory: int = option(
        Number(1, 2**63 - 1),
        "fetch_buffer_memory",
        64 * _MEBIBYTE,
        """Maximum number of bytes that are fetched before the application requests the records,
        over all brokers.""",
        java="",
        when="Smaller in a container with little memory; larger for throughput over slow networks.",
    )
    max_decompressed_bytes: int = option(
        Number(1, 2**63 - 1),
        "max_decompressed_bytes",
        256 * _MEBIBYTE,
        "Reject a batch that would have more than this number of bytes after decompression.",
        java="",
        when="Larger if batches from trusted producers have such a compression ratio.",
    )
    default_api_timeout: float = option(
        Milliseconds(1),
        "default_api_timeout_ms",
        60_000,
        "Timeout of calls that have no timeout argument.",
        when="Smaller if a user waits for the call.",
    )
    unreachable_timeout: float | None = option(
        Milliseconds(1, optional=True),
        "unreachable_timeout_ms",
        None,
        """Raise KafkaUnreachableError from calls that read records if the group's coordinator, or
        the brokers of all partitions, have not responded for this time; None: these calls wait
        without limit.""",
        java="",
        when="""If the program has to end, or to report the outage, instead of waiting for the
        cluster.""",
    )
    max_poll_records: int | None = option(
        _PollLimit(),
        "max_poll_records",
        None,
        "Maximum number of records that getmany returns; None: no limit.",
        opening="`max_poll_records` should be positive Integer",
        when="To a number of records that are certainly processed within max_poll_interval_ms.",
    )
    consumer_timeout: float = option(
        Milliseconds(0),
        "consumer_timeout_ms",
        200,
        """Has no effect: the consumer waits for records without polling. Accepted for programs
        written for aiokafka 0.14.""",
        java="",
        when="Never.",
    )
    auto_offset_reset: str = option(
        _OffsetReset(),
        "auto_offset_reset",
        "latest",
        """Where to start in a partition without a valid position: earliest is the first record,
        latest the end; none raises NoOffsetForPartitionError or OffsetOutOfRangeError. With a
        timedelta, or by_duration:, start at the first record that is not older than this duration
        (KIP-1106).""",
        when="""To earliest if a new group must not skip existing records; to none to decide in the
        program.""",
    )
    enable_auto_commit: bool = option(
        Flag(),
        "enable_auto_commit",
        True,
        """Commit offsets in the background, at an interval. Records count as finished if they were
        returned before the latest call of getone or getmany.""",
        when="To False to commit after the records were processed, or to store offsets elsewhere.",
    )
    auto_commit_interval: float = option(
        Milliseconds(0),
        "auto_commit_interval_ms",
        5_000,
        "Time between two automatic commits (enable_auto_commit).",
        when="Smaller to read fewer records again after a crash.",
    )
    check_crcs: bool = option(
        Flag(),
        "check_crcs",
        True,
        "Verify the checksum of every fetched batch.",
        when="Hardly ever.",
    )
    isolation_level: str = option(
        Choice(("read_uncommitted", "read_committed")),
        "isolation_level",
        "read_uncommitted",
        """read_uncommitted: return the records of open and aborted transactions as well.
        read_committed: do not return them.""",
        opening="Incorrect isolation level {}",
        when="To read_committed if producers use transactions.",
    )
    exclude_internal_topics: bool = option(
        Flag(),
        "exclude_internal_topics",
        True,
        """Omit internal topics from the list of topics, and from the topics that match a pattern
        given as a str.""",
        java="exclude.internal.topics",
        when="To False to read __consumer_offsets by a pattern.",
    )
    partition_assignment_strategy: tuple[Any, ...] = option(
        _Assignors(),
        "partition_assignment_strategy",
        (),
        "Assignors for the partitions of a group, in the order of preference (classic protocol).",
        when="""To the cooperative assignor, so that a rebalance stops only the partitions that
        move; in a group with members of other clients, to an assignor that all members support.""",
    )
    session_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "session_timeout_ms",
        10_000,
        "Time without a heartbeat after which the group removes a member (classic protocol).",
        when="""Larger (45,000) if the event loop or the network may stall; smaller to replace
        failed members earlier.""",
    )
    heartbeat_interval: float = option(
        Milliseconds(1),
        "heartbeat_interval_ms",
        3_000,
        "Time between two heartbeats; less than session_timeout_ms (classic protocol).",
        when="Together with session_timeout_ms, to a third of it.",
    )
    max_poll_interval: float = option(
        Milliseconds(1),
        "max_poll_interval_ms",
        300_000,
        "Time without a call of getone or getmany after which a member leaves the group.",
        when="""Larger if processing takes longer; or process fewer records at a time
        (max_poll_records).""",
    )
    rebalance_timeout: float | None = option(
        Milliseconds(1, optional=True, is_sent=True),
        "rebalance_timeout_ms",
        None,
        """Time that members have to revoke partitions in a rebalance. None: session_timeout_ms, or
        max_poll_interval_ms with group_protocol="consumer".""",
        java="max.poll.interval.ms",
        when="""Larger if the listener needs long to release partitions, for example to flush a
        buffer.""",
    )

    interceptors: tuple[ConsumerInterceptor, ...] = option(
        Instances("aiokafka.interceptors", "ConsumerInterceptor"),
        "interceptors",
        (),
        """Interceptors that get the records before they are returned, and may change them; called
        in the order of the list.""",
        java="interceptor.classes",
        when="To read headers or count records in the same way in all programs.",
    )
    metrics_collector: ConsumerMetricsCollector | None = option(
        Instance(ConsumerMetricsCollector),
        "metrics_collector",
        None,
        "Is called after fetches, for returned records, with the lag, and after commits.",
        java="metric.reporters",
        when="To send metrics to a system for which there is no adapter in this package.",
    )

    def __post_init__(self) -> None:
        is_classic = self.group_protocol == "classic"
        if not is_classic:
            self._refuse_classic_options()
        elif self.group_remote_assignor is not None:
            raise ValueError(
                f"group_remote_assignor={self.group_remote_assignor!r}: needs "
                "group_protocol='consumer'; see partition_assignment_strategy"
            )
        elif self.group_id is not None and self.heartbeat_interval >= self.session_timeout:
            raise ValueError(
                f"heartbeat_interval_ms={round(self.heartbeat_interval * 1000)}: must be less than "
                f"session_timeout_ms={round(self.session_timeout * 1000)}, or the group removes "
                "the member again and again; a third of it is usual"
            )
        if self.rebalance_timeout is None:
            timeout = self.session_timeout if is_classic else self.max_poll_interval
            timeout = min(timeout, MOST_SENT_MS / 1000)
            object.__setattr__(self, "rebalance_timeout", timeout)

    def _refuse_classic_options(self) -> None:
        """Raise ValueError if an option that only the classic protocol has is set to another value
        than its default.

        With group_protocol="consumer", settings of the broker replace these options.
        """
        options = {each.name: each for each in self.describe()}
        for name, instead in _CLASSIC_OPTIONS.items():
            described = options[name]
            if getattr(self, name) != described.converted_default:
                raise ValueError(
                    f"{described.keyword}: is a setting of the broker with "
                    f"group_protocol='consumer': {instead}"
                )

    @property
    def read_committed(self) -> bool:
        """Whether the consumer omits records of open and aborted transactions."""
        return self.isolation_level == "read_committed"

    @property
    def reset_duration(self) -> float | None:
        """The duration in `auto_offset_reset`, in seconds; None for other policies than
        "by_duration:"."""
        name, _, rest = self.auto_offset_reset.partition(":")
        return parse_duration(rest) if name == "by_duration" else None
