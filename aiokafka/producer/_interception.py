"""Passes the records of `send()` through the producer's interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka._interception import Interception
from aiokafka._log import SubjectLog
from aiokafka.interceptors import ProducerRecord, new_record

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig

__all__ = ["ProducerInterception"]


class ProducerInterception(Interception):
    """The interceptors of a producer."""

    def __init__(self, config: ProducerConfig, log: SubjectLog) -> None:
        super().__init__(config.interceptors, log, config.introduction)
        self._on_send = self.methods("on_send")
        self._on_acknowledgement = self.methods("on_acknowledgement")
        self.acknowledge = partial(self.tell, self._on_acknowledgement)
        """Called with a record, and its metadata or its error."""

    def on_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> ProducerRecord | Coroutine[Any, Any, ProducerRecord]:
        """Return the record that the interceptors return for the arguments of `send`; a coroutine
        of the record if an interceptor returns an awaitable."""
        given = new_record(topic, value, key, partition, timestamp_ms, headers)
        return self.pass_on(given, self._on_send, _is_record)  # type: ignore[arg-type]

    def cancelled(self, item: ProducerRecord, count: int) -> None:
        """Call `on_acknowledgement` of the first `count` interceptors: `send` was cancelled while
        the last of them ran."""
        error = asyncio.CancelledError("send() was cancelled in an interceptor")
        self.tell(self._on_acknowledgement[:count], item, None, error)


def _is_record(value: Any) -> bool:
    return isinstance(value, ProducerRecord)
