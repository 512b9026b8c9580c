"""The configuration of clients: checked once, in seconds inside.

Public constructors take Kafka's keywords, with times in milliseconds. They pass them to
`from_options` of these classes and pass one frozen object on. A wrong value raises at once, with
the name of the keyword and what is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka._config.admin import AdminConfig
from aiokafka._config.client import ClientConfig, parse_address
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.ignored import warn_ignored
from aiokafka._config.producer import ProducerConfig
from aiokafka._config.security import Credential, SecurityConfig

if TYPE_CHECKING:
    from aiokafka._config.security import TlsSource as TlsSource

__all__ = [
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "Credential",
    "ProducerConfig",
    "SecurityConfig",
    "parse_address",
    "warn_ignored",
]
