"""Import path of aiokafka, kept as a shim: connections."""

from __future__ import annotations

import asyncio
import logging

from aiokafka.abc import AbstractTokenProvider
from aiokafka.net.connection import BrokerConnection as AIOKafkaConnection

__all__ = ["AIOKafkaConnection", "AbstractTokenProvider", "asyncio", "log"]

log = logging.getLogger("aiokafka.conn")
