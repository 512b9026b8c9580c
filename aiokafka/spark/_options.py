"""The options of a query. The driver parses and checks them before any task starts."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, NamedTuple

from aiokafka.spark._kafka_options import ClientSettings, known_settings, parse_settings

__all__ = [
    "EARLIEST",
    "LATEST",
    "READ_OPTIONS",
    "WRITE_OPTIONS",
    "Bound",
    "OptionReader",
    "ReadOptions",
    "Subscription",
    "WriteOptions",
    "parse_duration",
    "parse_read",
    "parse_write",
]

log = logging.getLogger("aiokafka.spark")

# -- Values. Every error text has the name of the option and the accepted values

# Seconds by unit, with Spark's names of units. A number without a unit is in milliseconds.
_UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `500` (milliseconds), `500ms`, `30s`, `15m`, `1h` or
    `7d`. Raises ValueError, without a message, if `text` is not a duration."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or (found[2] and found[2] not in _UNITS):
        raise ValueError
    return int(found[1]) * _UNITS[found[2] or "ms"]


class OptionReader:
    """Reads the options of one query. Stores which options were read, to find unknown options.

    Spark passes the names in lower case; error texts have the names as in the documentation. All
    methods raise ValueError for a value that is not accepted.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._read: set[str] = set()

    def text(self, name: str) -> str | None:
        """Return the value as text; None if the option is not set."""
        self._read.add(name.lower())
        return self._options.get(name.lower())

    def given(self, *names: str) -> list[str]:
        """Return those of `names` that are set."""
        return [name for name in names if name.lower() in self._options]

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int | None:
        """Return an integer of at least `minimum`; `default` if the option is not set."""
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"[+-]?\d+", text.strip(), re.ASCII) or int(text) < minimum:
            raise ValueError(f"{name}={text!r}: must be an integer of at least {minimum}")
        return int(text)

    def whole(self, name: str, default: int, minimum: int = 1) -> int:
        """Return the integer of an option that has a default, so that the result is never None."""
        number = self.integer(name, default, minimum)
        return default if number is None else number

    def seconds(self, name: str, default: int, minimum: int = 1) -> float:
        """Return the seconds of an option whose value is in milliseconds."""
        return self.whole(name, default, minimum) / 1000

    def flag(self, name: str, default: bool) -> bool:
        """Return the value of an option that is `true` or `false`, in upper or lower case."""
        text = self.text(name)
        if text is None:
            return default
        value = text.strip().lower()
        if value not in ("true", "false"):
            raise ValueError(f"{name}={text!r}: must be true or false")
        return value == "true"

    def choice(self, name: str, values: tuple[str, ...], default: str) -> str:
        """Return the value of an option that is one of `values`, in upper or lower case."""
        text = self.text(name)
        if text is None:
            return default
        value = text.strip().lower()
        if value not in values:
            raise ValueError(f"{name}={text!r}: must be one of {', '.join(values)}")
        return value

    def duration(self, name: str, default: str) -> float:
        """Return the seconds of a duration such as `15m`. A number without a unit is in
        milliseconds."""
        text = self.text(name)
        try:
            return parse_duration(default if text is None else text)
        except ValueError:
            raise ValueError(
                f"{name}={text!r}: must be milliseconds, or a number with one of the units "
                f"{', '.join(_UNITS)}"
            ) from None

    def by_partition(self, name: str) -> dict[str, dict[int, int]] | None:
        """Return numbers by topic and partition, from JSON such as `{"topic": {"0": 23, "1": -2}}`;
        None if the option is not set."""
        text = self.text(name)
        return None if text is None else _numbers(name, text)

    def partitions(self, name: str) -> dict[str, list[int]] | None:
        """Return the partitions of topics, from JSON such as `{"topic": [0, 1]}`; None if the
        option is not set."""
        text = self.text(name)
        if text is None:
            return None
        example = '{"topic": [0, 1]}'
        parsed = _json_object(name, text, example)
        for numbers in parsed.values():
            if not isinstance(numbers, list) or not all(_is_partition(n) for n in numbers):
                raise ValueError(f"{name}={text!r}: must be JSON as {example}")
        return {topic: sorted(set(numbers)) for topic, numbers in parsed.items()}

    def starting_with(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin with `prefix`, by their names without the prefix.
        They all count as read.
        """
        found = {name: text for name, text in self._options.items() if name.startswith(prefix)}
        self._read.update(found)
        return {name[len(prefix) :]: text for name, text in found.items()}

    def refuse_rest(self, known: tuple[str, ...], what: str, others: Iterable[str] = ()) -> None:
        """Raise ValueError if there are unknown options. The error text suggests similar names from
        `known` and `others`, and names the kind of query (`what`).

        Options in `known` that were not read are for another kind of query. They only cause a
        warning, because a job may use the same options for all its queries.
        """
        rest = sorted(self._options.keys() - self._read)
        proper = {name.lower(): name for name in known}
        unknown = [name for name in rest if name not in proper]
        if unknown:
            names = {**proper, **{name: name for name in others}}
            similar = [names[n] for name in unknown for n in get_close_matches(name, names, 1)]
            raise ValueError(
                f"unknown option for {what}: {', '.join(unknown)}"
                + (f"; is it {', '.join(similar)}?" if similar else "")
            )
        if rest:
            _warn_once(tuple(proper[name] for name in rest), what)


@functools.lru_cache(maxsize=100)
def _warn_once(names: tuple[str, ...], what: str) -> None:
    """Log a warning once per process: a process parses the options of a query often."""
    log.warning("these options have no effect: %s (this is %s)", ", ".join(names), what)


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    twice: list[str] = []

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # For a repeated key, `json` would silently use the last value.
        twice.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return dict(pairs)

    try:
        parsed = json.loads(text, object_pairs_hook=take)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not parsed or "" in parsed:
        raise ValueError(f"{name}={text!r}: must be JSON as {example}")
    if twice:
        raise ValueError(f"{name}={text!r}: {', '.join(twice)} is given more than once")
    return parsed


def _numbers(name: str, text: str) -> dict[str, dict[int, int]]:
    example = '{"topic": {"0": 23, "1": -2}}'
    found: dict[str, dict[int, int]] = {}
    for topic, by_partition in _json_object(name, text, example).items():
        is_right = isinstance(by_partition, dict) and all(
            re.fullmatch(r"\d+", number, re.ASCII)
            and isinstance(value, int)
            and not isinstance(value, bool)
            for number, value in by_partition.items()
        )
        if not is_right:
            raise ValueError(f"{name}={text!r}: must be JSON as {example}")
        found[topic] = {int(number): value for number, value in by_partition.items()}
    return found


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


# -- Options

EARLIEST = -2
"""Stands for the first offset of a partition, as in Kafka's ListOffsets request."""
LATEST = -1
"""Stands for the end offset of a partition, as in Kafka's ListOffsets request."""


def _option(name: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Declare a field of a dataclass whose value is read from an option of the query.

    Args:
        name: The name of the option.
        read: Returns the parsed value; called with an OptionReader, the name and `arguments`.
    """
    return field(metadata={"name": name, "read": lambda reader: read(reader, name, *arguments)})


def _declared_names(kind: type[Any]) -> list[str]:
    return [each.metadata["name"] for each in fields(kind) if each.metadata]


def _read_declared(kind: type[Any], reader: OptionReader) -> dict[str, Any]:
    """Return the values of the fields of `kind` that `_option` declares, by field name."""
    return {each.name: each.metadata["read"](reader) for each in fields(kind) if each.metadata}


def _not_empty(reader: OptionReader, name: str) -> str | None:
    text = reader.text(name)
    if text is not None and not text.strip():
        raise ValueError(f"{name}: must not be empty")
    return text


def _stripped(reader: OptionReader, name: str) -> str | None:
    text = _not_empty(reader, name)
    return None if text is None else text.strip()


# Options that Spark itself adds to the options of a query.
_OF_SPARK = ("checkpointLocation", "queryName", "path")

_MAX_INT64 = 2**63 - 1
_DELIVERY = ("at-least-once", "exactly-once")
_MEBIBYTE = 1024 * 1024


class Subscription(NamedTuple):
    """The topics or partitions to read. Exactly one of the three fields is set."""

    assign: dict[str, list[int]] | None
    topics: list[str] | None
    pattern: str | None

    def has(self, topic: str) -> bool:
        """Return whether the query is subscribed to this topic."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in (self.assign or self.topics or ())


class Bound(NamedTuple):
    """Where a query starts or ends. If several fields are set, the first of them is used."""

    timestamp: int | None = None
    """Milliseconds since 1970, for all partitions."""

    timestamps: dict[str, dict[int, int]] | None = None
    offsets: dict[str, dict[int, int]] | None = None
    """Offsets by topic and partition; they may be EARLIEST or LATEST."""

    word: str = "latest"
    """The word "earliest", "latest" or "committed" (the offsets of the group)."""

    @property
    def is_by_time(self) -> bool:
        """Whether the bound is a timestamp, so that `offsets` and `word` are not used."""
        return self.timestamp is not None or self.timestamps is not None


@dataclass(frozen=True)
class ReadOptions:
    """The options of a query that reads. They are sent to executors. Times are in seconds."""

    kafka: ClientSettings
    subscription: Subscription
    starting: Bound
    ending: Bound
    group_id: str | None
    no_match: str = _option(
        "startingOffsetsByTimestampStrategy", OptionReader.choice, ("error", "latest"), "error"
    )
    fail_on_data_loss: bool = _option("failOnDataLoss", OptionReader.flag, True)
    poll_timeout: float = _option("kafkaConsumer.pollTimeoutMs", OptionReader.seconds, 120_000)
    retries: int = _option("fetchOffset.numRetries", OptionReader.whole, 3, 0)
    retry_interval: float = _option("fetchOffset.retryIntervalMs", OptionReader.seconds, 1000, 0)
    max_offsets: int | None = _option("maxOffsetsPerTrigger", OptionReader.integer)
    min_offsets: int | None = _option("minOffsetsPerTrigger", OptionReader.integer)
    max_delay: float = _option("maxTriggerDelay", OptionReader.duration, "15m")
    min_partitions: int | None = _option("minPartitions", OptionReader.integer)
    max_partitions: int | None = _option("maxPartitions", OptionReader.integer)
    max_records: int | None = _option("maxRecordsPerPartition", OptionReader.integer)
    include_headers: bool = _option("includeHeaders", OptionReader.flag, False)
    batch_rows: int = _option("batchRows", OptionReader.whole, 16384)
    prefetch_bytes: int = _option("prefetchBytes", OptionReader.whole, 64 * _MEBIBYTE, 65_536)
    commit_offsets: bool = _option("commitOffsets", OptionReader.flag, False)
    pushdown: bool = _option("pushdown", OptionReader.flag, False)
    idle_timeout: float = _option("clientIdleTimeout", OptionReader.duration, "5m")
    latest_interval: float = _option("latestOffset.minIntervalMs", OptionReader.seconds, 100, 0)

    @property
    def no_match_is_latest(self) -> bool:
        """Whether a partition whose records are all older than the starting timestamp is read from
        its end."""
        return self.no_match == "latest"

    @property
    def read_committed(self) -> bool:
        """Whether to skip records of open and aborted transactions."""
        return bool(self.kafka.role.get("isolation_level") == "read_committed")

    @property
    def has_fixed_start(self) -> bool:
        """Whether the query would start at the same records if it was started at a later time."""
        bound = self.starting
        if bound.is_by_time:
            return not self.no_match_is_latest
        if bound.offsets is not None:
            return not _has(bound.offsets, LATEST)
        return bound.word == "earliest"


@dataclass(frozen=True)
class WriteOptions:
    """The options of a query that writes. They are sent to executors. Times are in seconds."""

    kafka: ClientSettings
    exactly_once: bool
    topic: str | None = _option("topic", _stripped)
    prefix: str | None = _option("transactionalIdPrefix", _not_empty)
    marker_topic: str | None = _option("markerTopic", _not_empty)
    app_id: str | None = _option("txnAppId", OptionReader.text)
    version: int | None = _option("txnVersion", OptionReader.integer, None, 0)
    skip_written: bool = _option("skipWritten", OptionReader.flag, False)
    add_batch_headers: bool = _option("addBatchHeaders", OptionReader.flag, False)
    idle_timeout: float = _option("clientIdleTimeout", OptionReader.duration, "5m")

    @property
    def transactional_id_prefix(self) -> str:
        """The text with which every transactional id begins."""
        return self.prefix or "aiokafka-spark"


_SUBSCRIBING = ("assign", "subscribe", "subscribePattern")
_STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
READ_OPTIONS = (
    *(*_SUBSCRIBING, *_STARTING, *_ENDING, "groupIdPrefix"),
    *_declared_names(ReadOptions),
)
WRITE_OPTIONS = ("includeHeaders", "deliveryGuarantee", *_declared_names(WriteOptions))


def _settings(*, writing: bool) -> list[str]:
    return [f"kafka.{name}" for name in known_settings(writing)]


# -- Reading


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse and check the options of a query that reads. Their names may be in any case.

    Raises ValueError whose text has the name of the option and the accepted values.
    """
    reader = OptionReader(options)
    what = "a streaming query" if streaming else "a batch query"
    settings = parse_settings(reader.starting_with("kafka."), writing=False)
    parsed = ReadOptions(
        kafka=settings,
        subscription=_subscription(reader),
        starting=_starting(reader, streaming),
        ending=_ending(reader, streaming),
        group_id=_group_id(reader, settings, streaming),
        **_read_declared(ReadOptions, reader),
    )
    for name in _OF_SPARK[:2]:
        reader.text(name)
    reader.refuse_rest((*READ_OPTIONS, *WRITE_OPTIONS), what, _settings(writing=False))
    _check_read(parsed, streaming)
    return parsed


def _subscription(reader: OptionReader) -> Subscription:
    given = reader.given(*_SUBSCRIBING)
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise ValueError(f"exactly one of {', '.join(_SUBSCRIBING)} must be given, not {found}")
    assign = reader.partitions("assign")
    topics = _topics(reader.text("subscribe"))
    pattern = reader.text("subscribePattern")
    if pattern is not None:
        pattern = pattern.strip()  # as Spark's own source does: no topic name has spaces
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"subscribePattern={pattern!r}: must be a regular expression of Python's "
                f"re.fullmatch ({error})"
            ) from None
        if not pattern:
            raise ValueError("subscribePattern: must not be empty")
    return Subscription(assign, topics, pattern)


def _topics(text: str | None) -> list[str] | None:
    if text is None:
        return None
    topics = [topic.strip() for topic in text.split(",") if topic.strip()]
    if not topics:
        raise ValueError(f"subscribe={text!r}: must be topic names, separated by commas")
    return sorted(set(topics))


def _starting(reader: OptionReader, streaming: bool) -> Bound:
    bound = _bound(reader, "starting", "latest" if streaming else "earliest")
    word, offsets = bound.word, bound.offsets
    if word not in ("earliest", "latest", "committed"):
        raise ValueError(
            f"startingOffsets={word!r}: must be earliest, latest, committed, or JSON as "
            '{"topic": {"0": 23, "1": -2}}'
        )
    _check_offsets("startingOffsets", offsets, lowest=EARLIEST)
    if streaming or bound.is_by_time:
        return bound
    if word == "latest" and offsets is None:
        raise ValueError("startingOffsets=latest: has no meaning for a batch query")
    if _has(offsets, LATEST):
        raise ValueError("startingOffsets: -1 (latest) has no meaning for a batch query")
    return bound


def _ending(reader: OptionReader, streaming: bool) -> Bound:
    if streaming and (given := reader.given(*_ENDING)):
        raise ValueError(f"{given[0]}: has no meaning for a streaming query")
    bound = _bound(reader, "ending", "latest")
    if bound.is_by_time:
        return bound
    if bound.word != "latest":
        raise ValueError(
            f"endingOffsets={bound.word!r}: must be latest, or JSON as "
            '{"topic": {"0": 23, "1": -1}}'
        )
    if _has(bound.offsets, EARLIEST):
        raise ValueError("endingOffsets: -2 (earliest) has no meaning as the end")
    _check_offsets("endingOffsets", bound.offsets, lowest=LATEST)
    return bound


def _bound(reader: OptionReader, side: str, default: str) -> Bound:
    name = f"{side}Offsets"
    text = reader.text(name)
    text = default if text is None else text.strip()
    offsets = None
    if text.startswith("{"):
        offsets = reader.by_partition(name)
        text = default
    timestamps = reader.by_partition(f"{side}OffsetsByTimestamp")
    for numbers in (timestamps or {}).values():
        if any(not 0 <= value <= _MAX_INT64 for value in numbers.values()):
            raise ValueError(f"{side}OffsetsByTimestamp: must be milliseconds since 1970")
    timestamp = reader.integer(f"{side}Timestamp", minimum=0)
    if timestamp is not None and timestamp > _MAX_INT64:
        raise ValueError(f"{side}Timestamp={timestamp}: must be milliseconds since 1970")
    return Bound(timestamp, timestamps, offsets, text.lower())


def _check_offsets(name: str, offsets: dict[str, dict[int, int]] | None, lowest: int) -> None:
    for topic, numbers in (offsets or {}).items():
        for partition, offset in numbers.items():
            if not lowest <= offset <= _MAX_INT64:
                raise ValueError(f"{name}: {offset} of {topic}-{partition} is not an offset")


def _has(offsets: dict[str, dict[int, int]] | None, wanted: int) -> bool:
    return any(wanted in numbers.values() for numbers in (offsets or {}).values())


def _group_id(reader: OptionReader, settings: ClientSettings, streaming: bool) -> str | None:
    """Return the group id for commitOffsets and startingOffsets=committed; None if it is not set.

    The query never joins the group. Raises ValueError for commitOffsets without a group id, and in
    a batch query.
    """
    prefix = reader.text("groupIdPrefix")
    group_id: str | None = settings.role.get("group_id")
    if prefix is not None and group_id is not None:
        log.warning("groupIdPrefix has no effect: kafka.group.id is given")
    if reader.flag("commitOffsets", False) and not group_id:
        raise ValueError("commitOffsets: needs kafka.group.id, the group to commit for")
    if reader.flag("commitOffsets", False) and not streaming:
        raise ValueError("commitOffsets: has no meaning for a batch query")
    return group_id


def _check_read(options: ReadOptions, streaming: bool) -> None:
    """Raise ValueError for options that contradict each other, or that this kind of query does not
    allow."""
    least, most = options.min_offsets, options.max_offsets
    if least is not None and most is not None and least > most:
        raise ValueError(
            f"minOffsetsPerTrigger={least}: must not be more than maxOffsetsPerTrigger={most}"
        )
    least, most = options.min_partitions, options.max_partitions
    if least is not None and most is not None and least > most:
        raise ValueError(f"minPartitions={least}: must not be more than maxPartitions={most}")
    starting = options.starting
    if starting.word == "committed" and not starting.is_by_time and not options.group_id:
        raise ValueError("startingOffsets=committed: needs kafka.group.id, the group to ask for")
    if options.pushdown and streaming:
        raise ValueError("pushdown: has no meaning for a streaming query")
    isolation = options.kafka.role.get("isolation_level", "read_uncommitted")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ValueError(
            f"kafka.isolation.level={isolation!r}: must be read_committed or read_uncommitted"
        )
    assign = options.subscription.assign
    for name, bound in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if assign is None or bound.offsets is None or bound.is_by_time:
            continue
        if not _is_same(assign, bound.offsets):
            raise ValueError(f"{name}: must name exactly the partitions that assign names")
    if not streaming:
        _check_order(options.starting, options.ending)
    if not streaming and (options.max_offsets or options.min_offsets):
        log.warning("maxOffsetsPerTrigger and minOffsetsPerTrigger have no effect in a batch query")


def _check_order(starting: Bound, ending: Bound) -> None:
    """Raise ValueError if the options set, by offset or by timestamp, an end of a partition before
    its start. A timestamp for all partitions is not checked.
    """
    if starting.timestamp is not None or ending.timestamp is not None:
        return
    pairs = [("OffsetsByTimestamp", starting.timestamps, ending.timestamps)]
    if not starting.is_by_time and not ending.is_by_time:
        pairs.append(("Offsets", starting.offsets, ending.offsets))
    for name, begin, end in pairs:
        for topic, numbers in (begin or {}).items():
            for number, first in numbers.items():
                last = (end or {}).get(topic, {}).get(number, LATEST)
                if 0 <= last < first:
                    raise ValueError(
                        f"starting{name}: {first} of {topic}-{number} comes after "
                        f"ending{name}, {last}"
                    )


def _is_same(assign: dict[str, list[int]], offsets: dict[str, dict[int, int]]) -> bool:
    return {topic: set(numbers) for topic, numbers in assign.items()} == {
        topic: set(numbers) for topic, numbers in offsets.items()
    }


# -- Writing


def parse_write(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse and check the options of a query that writes. Their names may be in any case.

    Raises ValueError whose text has the name of the option and the accepted values.
    """
    reader = OptionReader(options)
    settings = parse_settings(reader.starting_with("kafka."), writing=True)
    values = _read_declared(WriteOptions, reader)
    app_id = values["app_id"]
    if (app_id is None) is not (values["version"] is None):
        raise ValueError("txnAppId and txnVersion: must be given both, or neither")
    if app_id is not None and streaming:
        raise ValueError("txnAppId: is for batch writes, such as those in foreachBatch")
    exactly_once = _delivery(reader, app_id, streaming) == "exactly-once"
    parsed = WriteOptions(kafka=settings, exactly_once=exactly_once, **values)
    reader.flag("includeHeaders", False)  # has no effect: a column `headers` is always written
    for name in _OF_SPARK:
        reader.text(name)
    what = "a streaming write" if streaming else "a batch write"
    reader.refuse_rest((*WRITE_OPTIONS, *READ_OPTIONS), what, _settings(writing=True))
    _check_write(parsed, reader)
    return parsed


def _delivery(reader: OptionReader, app_id: str | None, streaming: bool) -> str:
    default = _DELIVERY[0] if app_id is None else _DELIVERY[1]
    chosen = reader.choice("deliveryGuarantee", _DELIVERY, default)
    if chosen == "exactly-once" and app_id is None and not streaming:
        raise ValueError(
            "deliveryGuarantee=exactly-once: a batch write needs txnAppId and txnVersion, which "
            "say whether it is a repetition"
        )
    if chosen == "at-least-once" and app_id is not None:
        raise ValueError("deliveryGuarantee=at-least-once: contradicts txnAppId")
    return chosen


def _check_write(options: WriteOptions, reader: OptionReader) -> None:
    role = options.kafka.role
    if options.exactly_once:
        if role.get("acks", "all") != "all":
            raise ValueError("kafka.acks: must be all with deliveryGuarantee=exactly-once")
        if role.get("enable_idempotence") is False:
            raise ValueError(
                "kafka.enable.idempotence: must not be false with deliveryGuarantee=exactly-once"
            )
        if options.topic is None and options.marker_topic is None:
            raise ValueError(
                "markerTopic: must be given with deliveryGuarantee=exactly-once when there is no "
                "option topic"
            )
        return
    for name in ("transactionalIdPrefix", "markerTopic", "skipWritten"):
        if reader.given(name):
            raise ValueError(f"{name}: needs deliveryGuarantee=exactly-once")
