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
    Function,
    Instance,
    Instances,
    Milliseconds,
    Number,
    Options,
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
    """An option type: the reset policy, for partitions without a valid position (KIP-1106)."""

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
        from datetime import timedelta  # imported on demand: most programs do not need it

        if not isinstance(value, timedelta):
            raise TypeError
        if value < timedelta():
            raise ValueError
        return f"by_duration:PT{value // timedelta(seconds=1)}.{value.microseconds:06}S"


def parse_duration(text: str) -> float:
    """Return the number of seconds in an ISO 8601 duration, such as `P1DT2H30M0.5S`."""
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
    """An option type: a positive integer or None. Any other value raises ValueError."""

    accepts = "an integer of at least 1, or None"
    annotation = "int | None"

    def convert(self, value: Any) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError
        return value


class _Assignors:
    """An option type: partition assignors, the preferred assignor first."""

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
    """Options of a consumer, in addition to those in `client`."""

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
        "Group to join and to commit offsets for; None for neither: every partition is read.",
        when="""To divide partitions among processes and to go on after a restart: nearly
        always.""",
    )
    group_instance_id: str | None = option(
        Text(optional=True, empty=False),
        "group_instance_id",
        None,
        "Name of a static member, which keeps its partitions over a restart (KIP-345).",
        when="If restarts must not rebalance: the name of the pod in a StatefulSet.",
    )
    group_protocol: str = option(
        Choice(GROUP_PROTOCOLS),
        "group_protocol",
        "classic",
        """How members come to their partitions: with classic one of them assigns, with consumer the
        broker does (KIP-848, Kafka 4.0).""",
        when="""To consumer with brokers of Kafka 4.0 and later: rebalances stop only what
        moves.""",
    )
    group_remote_assignor: str | None = option(
        Text(optional=True, empty=False),
        "group_remote_assignor",
        None,
        """Assignor of the broker for group_protocol="consumer": uniform, range, or one that it is
        configured with (group.consumer.assignors); None for the broker's first.""",
        when='With group_protocol="consumer", if the default of the brokers does not suit.',
    )
    key_deserializer: Callable[[bytes], Any] | None = option(
        Function(),
        "key_deserializer",
        None,
        """Turns the bytes of a key into what a record holds; called with None for a record without
        key. See value_deserializer.""",
        annotation="Callable[[bytes], Any] | None",
        when="When keys are no bytes.",
    )
    value_deserializer: Callable[[bytes], Any] | None = option(
        Function(),
        "value_deserializer",
        None,
        """Turns the bytes of a value into what a record holds; called with None for a record
        without value (a tombstone). If it raises, the call raises RecordDeserializationError, with
        topic, partition, offset and the raw record, again and again until the application goes past
        it: consumer.seek(error.topic_partition, error.offset + 1). Records before it are returned
        first.""",
        annotation="Callable[[bytes], Any] | None",
        when="When values are no bytes.",
    )
    fetch_max_wait: float = option(
        Milliseconds(0, is_sent=True),
        "fetch_max_wait_ms",
        500,
        "How long a broker waits until it has fetch_min_bytes.",
        java="fetch.max.wait.ms",
        when="Smaller for latency when fetch_min_bytes is large.",
    )
    fetch_min_bytes: int = option(
        Number(0),
        "fetch_min_bytes",
        1,
        "Bytes that a broker tries to collect before it answers.",
        when="""Larger (10,000 to 1,000,000) to spare brokers and processor, at the price of
        latency.""",
    )
    fetch_max_bytes: int = option(
        Number(0),
        "fetch_max_bytes",
        50 * _MEBIBYTE,
        "Most bytes in one answer of a broker.",
        when="Smaller in a small container.",
    )
    max_partition_fetch_bytes: int = option(
        Number(0),
        "max_partition_fetch_bytes",
        _MEBIBYTE,
        "Most bytes of one partition in one answer; one larger batch is sent all the same.",
        when="Larger for throughput with few partitions; smaller with many and little memory.",
    )
    fetch_buffer_memory: int = option(
        Number(1, 2**63 - 1),
        "fetch_buffer_memory",
        64 * _MEBIBYTE,
        "Bytes fetched ahead of the application, over all brokers.",
        java="",
        when="Smaller in a small container; larger for throughput over slow links.",
    )
    max_decompressed_bytes: int = option(
        Number(1, 2**63 - 1),
        "max_decompressed_bytes",
        256 * _MEBIBYTE,
        "Refuse a batch that would decompress to more bytes than this.",
        java="",
        when="Larger if batches that are trusted compress that well.",
    )
    default_api_timeout: float = option(
        Milliseconds(1),
        "default_api_timeout_ms",
        60_000,
        "How long a call that has no time limit of its own may take.",
        when="Smaller where a caller waits.",
    )
    unreachable_timeout: float | None = option(
        Milliseconds(1, optional=True),
        "unreachable_timeout_ms",
        None,
        """Reading raises KafkaUnreachableError when the group's coordinator, or the brokers of all
        partitions, have not answered for this long; None: it waits for them without limit.""",
        java="",
        when="""If the program has to end or to tell when the cluster is away, not to wait for
        it.""",
    )
    max_poll_records: int | None = option(
        _PollLimit(),
        "max_poll_records",
        None,
        "Most records that getmany returns; None: no limit.",
        opening="`max_poll_records` should be positive Integer",
        when="To the number of records that are processed well within max_poll_interval_ms.",
    )
    consumer_timeout: float = option(
        Milliseconds(0),
        "consumer_timeout_ms",
        200,
        "Accepted for compatibility; the consumer waits for data without polling.",
        java="",
        when="Never.",
    )
    auto_offset_reset: str = option(
        _OffsetReset(),
        "auto_offset_reset",
        "latest",
        """Where to start without a valid position: earliest is the oldest record, latest is after
        the newest, none raises NoOffsetForPartitionError or OffsetOutOfRangeError. With a
        timedelta, or by_duration:, the first record not older than that (KIP-1106).""",
        when="""To earliest if a new group must not miss what is there; to none to decide in the
        program.""",
    )
    enable_auto_commit: bool = option(
        Flag(),
        "enable_auto_commit",
        True,
        "Commit in the background what the application has finished: all that was returned before "
        "its latest call.",
        when="False to commit after the work is done, or to keep offsets elsewhere.",
    )
    auto_commit_interval: float = option(
        Milliseconds(0),
        "auto_commit_interval_ms",
        5_000,
        "Time between such commits.",
        when="Smaller to see fewer records again after a crash.",
    )
    check_crcs: bool = option(
        Flag(),
        "check_crcs",
        True,
        "Check the checksum of every batch that is read.",
        when="Hardly ever.",
    )
    isolation_level: str = option(
        Choice(("read_uncommitted", "read_committed")),
        "isolation_level",
        "read_uncommitted",
        "Whether records of open and aborted transactions are read.",
        opening="Incorrect isolation level {}",
        when="To read_committed if producers use transactions.",
    )
    exclude_internal_topics: bool = option(
        Flag(),
        "exclude_internal_topics",
        True,
        "Leave internal topics out when topics are listed or matched by a pattern that is a str.",
        java="exclude.internal.topics",
        when="False to look at __consumer_offsets by a pattern.",
    )
    partition_assignment_strategy: tuple[Any, ...] = option(
        _Assignors(),
        "partition_assignment_strategy",
        (),
        "Ways to assign partitions in a group, in the order of preference.",
        when="""To the cooperative assignor, so that a rebalance stops only what moves; in a group
        with members of other clients, to an assignor that all of them have.""",
    )
    session_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "session_timeout_ms",
        10_000,
        "The group removes a member that has sent no heartbeat for this long (classic protocol).",
        when="""Larger (45,000) if the event loop or the network stalls; smaller to replace dead
        members earlier.""",
    )
    heartbeat_interval: float = option(
        Milliseconds(1),
        "heartbeat_interval_ms",
        3_000,
        "Time between heartbeats, less than session_timeout_ms (classic protocol).",
        when="Together with session_timeout_ms: a third of it.",
    )
    max_poll_interval: float = option(
        Milliseconds(1),
        "max_poll_interval_ms",
        300_000,
        "A member that has not asked for records for this long leaves the group.",
        when="Larger if a batch takes longer; better: fewer records a batch.",
    )
    rebalance_timeout: float | None = option(
        Milliseconds(1, optional=True, is_sent=True),
        "rebalance_timeout_ms",
        None,
        """How long a member may take to give up partitions in a rebalance. None:
        session_timeout_ms, or max_poll_interval_ms with group_protocol="consumer".""",
        java="max.poll.interval.ms",
        when="Larger if giving up partitions takes long, as flushing a buffer does.",
    )

    interceptors: tuple[ConsumerInterceptor, ...] = option(
        Instances("aiokafka.interceptors", "ConsumerInterceptor"),
        "interceptors",
        (),
        "See records before they are returned, and may change them, in this order.",
        java="interceptor.classes",
        when="To read headers or to count, in all programs alike.",
    )
    metrics_collector: ConsumerMetricsCollector | None = option(
        Instance(ConsumerMetricsCollector),
        "metrics_collector",
        None,
        "Is called with what is fetched, returned and committed.",
        java="metric.reporters",
        when="To feed a system for metrics that has no adapter here.",
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
        """Raise ValueError if an option of the classic protocol is set: with
        group_protocol="consumer", a setting of the broker replaces the option."""
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
        """The duration in `auto_offset_reset="by_duration:..."` in seconds; None for other
        policies."""
        name, _, rest = self.auto_offset_reset.partition(":")
        return parse_duration(rest) if name == "by_duration" else None
