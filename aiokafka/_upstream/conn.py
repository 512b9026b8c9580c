"""The names of `aiokafka.conn`."""

from __future__ import annotations

import asyncio
import enum
import functools
import logging

from aiokafka.abc import AbstractTokenProvider
from aiokafka.net.connection import BrokerConnection as AIOKafkaConnection

__all__ = [
    "AIOKafkaConnection",
    "AbstractTokenProvider",
    "CloseReason",
    "asyncio",
    "functools",
    "log",
]

log = logging.getLogger("aiokafka.conn")


class CloseReason(enum.IntEnum):
    """The reasons for which aiokafka 0.14 closes a connection. This package does not use them: its
    failed requests raise errors that have the reason in their text."""

    CONNECTION_BROKEN = 0
    CONNECTION_TIMEOUT = 1
    OUT_OF_SYNC = 2
    IDLE_DROP = 3
    SHUTDOWN = 4
    AUTH_FAILURE = 5
