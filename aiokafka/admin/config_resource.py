"""`ConfigResource`, a resource with a configuration, and the types of resources."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

__all__ = ["ConfigResource", "ConfigResourceType"]


class ConfigResourceType(enum.IntEnum):
    """The type of a resource that has a configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def as_resource_type(argument: str, value: ConfigResourceType | str) -> ConfigResourceType:
    """Return the ConfigResourceType for a member, or for the name of a member in any case.

    Raises ValueError for any other name; `argument` is for the error text.
    """
    if isinstance(value, ConfigResourceType):
        return value
    types = ConfigResourceType.__members__
    found = types.get(str(value).upper())
    if found is None:
        raise ValueError(f"{argument}={value!r}: must be one of {', '.join(types)}")
    return found


class ConfigResource:
    """A resource that has a configuration, such as a topic or a broker.

    Raises ValueError for a type that does not exist.

    Args:
        resource_type: a `ConfigResourceType` or its name in any case, such as "topic".
        name: name of the topic, group or other resource; id of the broker, as a string or number.
        configs: to describe the resource, the names of the settings to return (default: all); to
            alter it, the new values by name.
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | str,
        name: str | int,
        configs: Mapping[str, str | float | None] | Iterable[str] | None = None,
    ) -> None:
        self.resource_type = as_resource_type("resource_type", resource_type)
        self.name = str(name) if isinstance(name, int) else name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type.name}, {self.name!r}, {self.configs})"
