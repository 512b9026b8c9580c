"""The configuration of clients: options, checked once and converted to internal units.

Constructors take Kafka's option names, with times in milliseconds, and pass them to `from_options`
of these classes, which returns a frozen object. A wrong value raises at once, with the option's
name and the accepted values.
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
