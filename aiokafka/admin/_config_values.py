"""What calls about configurations take and return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka.admin._values import Value
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.enums import ConfigOperation, ConfigSource, ConfigType

__all__ = [
    "Change",
    "ConfigChange",
    "ConfigKey",
    "ConfigSetting",
    "ConfigSynonym",
    "Plain",
    "ResourceLike",
    "changes_of",
    "key_of",
    "text_of",
]


class ConfigKey(NamedTuple):
    """A resource that has a configuration, as a key of dicts: its type and its name."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigKey:
        """Return the key of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigKey:
        """Return the key of a broker, by default that of the settings which all brokers share."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> ConfigKey:
        """Return the key of the log levels of a broker."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigKey:
        """Return the key of a group."""
        return cls(ConfigResourceType.GROUP, name)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigKey:
        """Return the key of a subscription to metrics of clients (KIP-714)."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        kind = self.type.name.lower()
        return f"{kind} {self.name}" if self.name else f"every {kind}"


ResourceLike = ConfigKey | ConfigResource | tuple[ConfigResourceType | str, str]
Plain = str | int | float | bool


class ConfigSynonym(NamedTuple):
    """A setting that counts if those before it are not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True)
class ConfigSetting(Value):
    """A setting of a resource."""

    name: str
    value: str | None
    """None if it is sensitive, or has no value."""
    source: ConfigSource
    type: ConfigType
    """UNKNOWN before Kafka 2.6."""
    is_sensitive: bool
    is_read_only: bool
    """Whether only a restart of the broker changes it."""
    synonyms: tuple[ConfigSynonym, ...] = ()
    """The settings that could have given the value, first that which does; if asked for."""
    documentation: str | None = None
    """If asked for, from Kafka 2.6 on (KIP-569)."""

    @property
    def is_default(self) -> bool:
        """Whether nothing sets it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True)
class ConfigChange(Value):
    """What to do with a setting. `value` may be a str, a number or a bool; None to delete."""

    operation: ConfigOperation
    value: Plain | None = None

    @classmethod
    def set(cls, value: Plain) -> ConfigChange:
        """Return the change that sets a value."""
        return cls(ConfigOperation.SET, value)

    @classmethod
    def delete(cls) -> ConfigChange:
        """Return the change that goes back to the default."""
        return cls(ConfigOperation.DELETE)

    @classmethod
    def append(cls, value: Plain) -> ConfigChange:
        """Return the change that adds to a list what it does not have."""
        return cls(ConfigOperation.APPEND, value)

    @classmethod
    def subtract(cls, value: Plain) -> ConfigChange:
        """Return the change that takes something off a list."""
        return cls(ConfigOperation.SUBTRACT, value)


Change = ConfigChange | Plain | None


def key_of(resource: Any) -> ConfigKey:
    """Return the key of a resource, however it is given.

    Raises TypeError or ValueError for what is none.
    """
    if isinstance(resource, ConfigResource):
        key = ConfigKey(resource.resource_type, resource.name)
    elif isinstance(resource, tuple) and len(resource) == 2 and isinstance(resource[1], str):
        key = ConfigKey(ConfigResource(*resource).resource_type, resource[1])
    else:
        raise TypeError(f"{resource!r}: must be a ConfigKey, a ConfigResource, or (type, name)")
    of_broker = key.type is ConfigResourceType.BROKER and key.name
    if (of_broker or key.type is ConfigResourceType.BROKER_LOGGER) and not (
        key.name.isascii() and key.name.isdigit()
    ):
        raise ValueError(f"{key}: the name must be the id of a broker")
    return key


def text_of(name: str, value: object) -> str:
    """Return the value of a setting as Kafka has it. Raises TypeError for other types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError(f"{name}={value!r}: must be a str, a number or a bool")
    return str(value)


def changes_of(changes: Mapping[str, Change]) -> dict[str, ConfigChange]:
    """Return changes with their values as text: a plain value sets, None deletes."""
    found = {}
    for name, change in changes.items():
        if change is None:
            change = ConfigChange.delete()
        if not isinstance(change, ConfigChange):
            change = ConfigChange.set(change)
        deletes = change.operation is ConfigOperation.DELETE
        value = None if deletes else text_of(name, change.value)
        found[name] = ConfigChange(ConfigOperation(change.operation), value)
    return found
