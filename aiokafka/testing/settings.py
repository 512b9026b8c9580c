"""Supported settings of brokers, topics, groups, client metrics and loggers, with defaults."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

BROKER_DEFAULTS: dict[str, str] = {
    "allow.everyone.if.no.acl.found": "false",
    "authorizer.class.name": "",
    "auto.create.topics.enable": "true",
    "connections.max.idle.ms": "600000",
    "default.replication.factor": "1",
    "delegation.token.expiry.time.ms": "86400000",
    "delegation.token.max.lifetime.ms": "604800000",
    "delegation.token.secret.key": "",
    "delete.topic.enable": "true",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.session.timeout.ms": "45000",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "1800000",
    "group.max.size": "2147483647",
    "group.min.session.timeout.ms": "6000",
    "group.share.delivery.count.limit": "5",
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.max.share.sessions": "2000",
    "group.share.max.size": "200",
    "group.share.partition.max.record.locks": "2000",
    "group.share.record.lock.duration.ms": "30000",
    "group.share.session.timeout.ms": "45000",
    "max.incremental.fetch.session.cache.slots": "1000",
    "message.max.bytes": "1048588",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "min.insync.replicas": "1",
    "num.partitions": "1",
    "offset.metadata.max.bytes": "4096",
    "replica.lag.time.max.ms": "30000",
    "socket.request.max.bytes": "104857600",
    "super.users": "",
    "telemetry.max.bytes": "1048576",
    "transaction.max.timeout.ms": "900000",
    "unclean.leader.election.enable": "false",
}
"""The supported broker settings with their defaults. They are Kafka's defaults, except that
``group.initial.rebalance.delay.ms`` is 0 and not 3000, which makes tests faster.
"""

TOPIC_DEFAULTS: dict[str, str] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""The supported topic settings with their defaults. Only settings of messages, timestamps and
replicas have an effect."""

INHERITED: dict[str, str] = {
    "max.message.bytes": "message.max.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""For each topic setting, the broker setting that is its default."""

GROUP_RESOURCE = 32
"""Type of the config resources that are groups."""

GROUP_DEFAULTS: dict[str, tuple[str, str]] = {
    # group setting: (the broker setting that is its default, the default of that broker setting)
    "consumer.assignment.interval.ms": ("group.consumer.assignment.interval.ms", "1000"),
    "consumer.heartbeat.interval.ms": ("group.consumer.heartbeat.interval.ms", "5000"),
    "consumer.session.timeout.ms": ("group.consumer.session.timeout.ms", "45000"),
    "share.assignment.interval.ms": ("group.share.assignment.interval.ms", "1000"),
    "share.auto.offset.reset": ("share.auto.offset.reset", "latest"),
    "share.delivery.count.limit": ("group.share.delivery.count.limit", "5"),
    "share.heartbeat.interval.ms": ("group.share.heartbeat.interval.ms", "5000"),
    "share.isolation.level": ("share.isolation.level", "read_uncommitted"),
    "share.partition.max.record.locks": ("group.share.partition.max.record.locks", "2000"),
    "share.record.lock.duration.ms": ("group.share.record.lock.duration.ms", "30000"),
    "share.renew.acknowledge.enable": ("share.renew.acknowledge.enable", "true"),
    "share.session.timeout.ms": ("group.share.session.timeout.ms", "45000"),
    "streams.assignment.interval.ms": ("group.streams.assignment.interval.ms", "1000"),
    "streams.heartbeat.interval.ms": ("group.streams.heartbeat.interval.ms", "5000"),
    "streams.initial.rebalance.delay.ms": ("group.streams.initial.rebalance.delay.ms", "3000"),
    "streams.num.standby.replicas": ("group.streams.num.standby.replicas", "0"),
    "streams.session.timeout.ms": ("group.streams.session.timeout.ms", "45000"),
}
"""The group settings of Kafka 4.3. The settings of share groups have an effect, except the
assignment interval. The other group settings have no effect, but the corresponding broker settings
do if they are in `BROKER_DEFAULTS`."""

METRICS_DEFAULTS: dict[str, str] = {"interval.ms": "300000", "match": "", "metrics": ""}
"""The settings of a subscription to client metrics (KIP-714), with defaults."""

_GROUP_CHOICES: dict[str, tuple[str, ...]] = {
    "share.isolation.level": ("read_uncommitted", "read_committed"),
    "share.renew.acknowledge.enable": ("true", "false"),
}
_DURATION = r"P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?([\d.]+S)?)?"
_RESET_STRATEGY = re.compile(f"earliest|latest|by_duration:{_DURATION}", re.I)


def invalid_group_setting(name: str, value: str) -> str | None:
    """Return the error message for an invalid group setting; None if it is valid. The limits that
    brokers have for the settings of their groups are not checked."""
    choices = _GROUP_CHOICES.get(name)
    if name not in GROUP_DEFAULTS:
        return f"Unknown config name: {name}"
    if choices is not None:
        is_valid = value.lower() in choices
    elif name == "share.auto.offset.reset":
        is_valid = bool(_RESET_STRATEGY.fullmatch(value))
    else:
        is_valid = bool(re.fullmatch(r"\s*\d+\s*", value))
    return None if is_valid else f"Invalid value {value} for configuration {name}"


LOGGER_DEFAULTS: dict[str, str] = {
    "kafka": "INFO",
    "kafka.server.KafkaApis": "INFO",
    "org.apache.kafka": "INFO",
    "root": "INFO",
}
"""The loggers of a broker, with their initial levels."""
LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")

_LEAST: dict[str, float] = {
    "compression.lz4.level": 1,
    "delete.retention.ms": 0,
    "file.delete.delay.ms": 0,
    "flush.messages": 1,
    "flush.ms": 0,
    "index.interval.bytes": 0,
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": 1,
    "max.message.bytes": 0,
    "message.timestamp.after.max.ms": 0,
    "message.timestamp.before.max.ms": 0,
    "min.cleanable.dirty.ratio": 0,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "retention.ms": -1,
    "segment.bytes": 14,
    "segment.index.bytes": 4,
    "segment.jitter.ms": 0,
    "segment.ms": 1,
}
_INTEGERS = (
    "index.interval.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "segment.bytes",
    "segment.index.bytes",
)
_MOST: dict[str, float] = {
    **dict.fromkeys(_INTEGERS, 2**31 - 1),
    "compression.gzip.level": 9,
    "compression.lz4.level": 17,
    "compression.zstd.level": 22,
    "min.cleanable.dirty.ratio": 1,
}
_FIRST_WITHOUT_POLICY = (4, 0)  # first release that accepts an empty cleanup.policy
# First release that requires this minimum of segment.bytes (KIP-1030).
_FIRST_WITH_LARGE_SEGMENTS, _SMALLEST_SEGMENT = (4, 1), 1024 * 1024

_BOOLEANS = ("true", "false")
_CHOICES: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact"),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "preallocate": _BOOLEANS,
    "remote.log.copy.disable": _BOOLEANS,
    "remote.log.delete.on.disable": _BOOLEANS,
    "remote.storage.enable": _BOOLEANS,
    "unclean.leader.election.enable": _BOOLEANS,
}
_BROKER_CHOICES: dict[str, tuple[str, ...]] = {
    "group.consumer.migration.policy": ("disabled", "upgrade", "downgrade", "bidirectional"),
}
_BROKER_WORDS = {name for name, value in BROKER_DEFAULTS.items() if value in _BOOLEANS} | set(
    _BROKER_CHOICES
)
"""Broker settings with case-insensitive values."""
_NEVER = "connections.max.idle.ms"  # the only numeric setting that may be -1 (no limit)
REPLICA_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_REPLICAS = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")


def broker_settings(config: Mapping[str, object]) -> dict[str, str]:
    """Validate broker settings, and return them as strings: booleans and choices in lower case,
    without spaces around them.

    Raises:
        ValueError: a setting is unknown, or its value is invalid.
    """
    unknown = set(config) - set(BROKER_DEFAULTS)
    if unknown:
        known = ", ".join(sorted(BROKER_DEFAULTS))
        raise ValueError(f"unknown broker settings {sorted(unknown)}; known are {known}")
    given = texts(config)
    problem = invalid_broker_setting(given)
    if problem is not None:
        raise ValueError(f"config: {problem}")
    return {
        name: value.strip().lower() if name in _BROKER_WORDS else value
        for name, value in given.items()
    }


def invalid_broker_setting(config: Mapping[str, str]) -> str | None:
    """Return the error message for the first invalid broker setting; None if all are valid."""
    for name, value in config.items():
        default = BROKER_DEFAULTS[name]
        if default in _BOOLEANS and value.strip().lower() not in _BOOLEANS:
            wanted = "Expected value to be either true or false"
        elif name in _BROKER_CHOICES and value.strip().lower() not in _BROKER_CHOICES[name]:
            wanted = f"Expected one of {', '.join(_BROKER_CHOICES[name])}"
        elif default.isdigit() and not re.fullmatch(r"\s*-?\d+\s*", value):
            wanted = "Not a number"
        elif default.isdigit() and int(value) < 0 and name != _NEVER:
            wanted = "Value must be at least 0"
        else:
            continue
        return f"Invalid value {value} for configuration {name}: {wanted}"
    return None


def texts(config: Mapping[str, object]) -> dict[str, str]:
    """Convert values of settings to strings in Kafka's format, such as ``true``."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.items()
    }


def invalid_topic_setting(
    config: Mapping[str, str | None], release: tuple[int, ...] = (99,)
) -> str | None:
    """Return the error message for the first invalid topic setting; None if all are valid."""
    for name, given in config.items():
        if name not in TOPIC_DEFAULTS:
            return f"Unknown topic config name: {name}"
        value = None if given is None else _as_read(name, given)
        if value is None or (name in REPLICA_LISTS and _REPLICAS.fullmatch(value)):
            continue
        if name == "cleanup.policy" and not value and release >= _FIRST_WITHOUT_POLICY:
            continue
        choices = _CHOICES.get(name)
        is_valid = value in choices if choices else _is_number_for(name, value)
        if is_valid and name == "segment.bytes" and release >= _FIRST_WITH_LARGE_SEGMENTS:
            is_valid = int(value) >= _SMALLEST_SEGMENT
        if not is_valid:
            return f"Invalid value {given} for configuration {name}"
    return None


def topic_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return `config` without spaces around values and items of lists, and with lower-case
    booleans."""
    return {name: _as_read(name, value) for name, value in config.items()}


def _as_read(name: str, value: str) -> str:
    """Normalize the value of a topic setting: strip spaces, also in lists, and lower-case
    booleans.
    """
    if _CHOICES.get(name) == _BOOLEANS:
        return value.strip().lower()
    return ",".join(part.strip() for part in value.split(","))


def _is_number_for(name: str, value: str) -> bool:
    number = r"-?\d+(\.\d+)?" if name == "min.cleanable.dirty.ratio" else r"-?\d+"
    if not re.fullmatch(number, value):
        return False
    return _LEAST.get(name, -math.inf) <= float(value) <= _MOST.get(name, math.inf)
