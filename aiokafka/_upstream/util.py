"""The names of `aiokafka.util`. This package does not use them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from packaging.version import Version

__all__ = [
    "INTEGER_MAX_VALUE",
    "INTEGER_MIN_VALUE",
    "NO_EXTENSIONS",
    "create_future",
    "create_task",
    "get_running_loop",
    "parse_kafka_version",
]

INTEGER_MAX_VALUE = 2**31 - 1
INTEGER_MIN_VALUE = -(2**31)
NO_EXTENSIONS = bool(os.environ.get("AIOKAFKA_NO_EXTENSIONS"))

get_running_loop = asyncio.get_running_loop


def create_task(coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task in the running loop."""
    return asyncio.get_running_loop().create_task(coro)


def create_future(loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[Any]:
    """Return a new future of `loop`, by default of the running loop."""
    return (loop or asyncio.get_running_loop()).create_future()


def parse_kafka_version(api_version: str) -> tuple[int, int, int]:
    """Return (major, minor, patch) of a version such as "2.8.1".

    Raises ValueError unless the version has two to four numbers.
    """
    version = Version(api_version)
    if not 2 <= len(version.release) <= 4:
        raise ValueError(f"{api_version!r} is not a Kafka version like '2.8.1'")
    return version.major, version.minor, version.micro
