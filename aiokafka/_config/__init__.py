"""The configuration of clients: checked once, in seconds inside.

Public constructors take Kafka's keywords, with times in milliseconds. They pass them to
`from_options` of these classes and pass one frozen object on. A wrong value raises at once, with
the name of the keyword and what is accepted.

What only one kind of client has is in a module of its own, which the others need not load.
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
