"""The configuration of clients: options, checked once and converted to internal units.

A client's constructor takes options by Kafka's names, with times in milliseconds. It passes the
options to `from_options` of a configuration class, which returns a frozen object, or raises an
error with the option's name and the accepted values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka._config.client import ClientConfig, parse_address, warn_ignored
from aiokafka._config.security import Credential, SecurityConfig

if TYPE_CHECKING:
    from aiokafka._config.security import TlsSource as TlsSource

__all__ = [
    "ClientConfig",
    "Credential",
    "SecurityConfig",
    "parse_address",
    "warn_ignored",
]
