"""Deserializing the records of a share consumer, with plain and `async` deserializers."""

from __future__ import annotations

import asyncio
import logging
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from aiokafka._log import SubjectLog
from aiokafka._serialization import (
    adapt_deserializer,
    deserialize,
    not_deserialized,
    unreadable_records,
)
from aiokafka.errors import RecordDeserializationError
from aiokafka.share.acquired import Acknowledgements, AcknowledgeType, runs

if TYPE_CHECKING:
    from aiokafka._config.share import ShareConsumerConfig
    from aiokafka.share._metrics import ShareMeter
    from aiokafka.share.acquired import Run, ShareRecord
    from aiokafka.share.buffer import ShareBuffer

__all__ = ["Deserializers"]

log = logging.getLogger("aiokafka.share")

# Results of these types are not awaitable, so they need no check by `isawaitable`.
_PLAIN = frozenset({type(None), bool, bytes, dict, float, int, list, str})


class Deserializers:
    """The deserializers of a share consumer.

    `getone()` and `getmany()` take records from the buffer before they deserialize the records. If
    a call is cancelled while a deserializer waits, it puts the records back. This is possible
    because acquired records are independent of each other: a share consumer has no position in the
    partition.
    """

    def __init__(
        self, config: ShareConsumerConfig, acknowledgements: Acknowledgements, meter: ShareMeter
    ) -> None:
        self._acknowledgements = acknowledgements
        self._on_unreadable = unreadable_records(
            config.on_deserialization_error, SubjectLog(log, config.subject), meter, "rejected"
        )
        self._key = adapt_deserializer(config.key_deserializer)
        self._value = adapt_deserializer(config.value_deserializer)

    @property
    def is_empty(self) -> bool:
        """Whether there is no deserializer."""
        return self._key is None and self._value is None

    async def convert(self, taken: list[Run], buffer: ShareBuffer) -> list[Run]:
        """Deserialize records and return them. Records that a deserializer cannot read are rejected
        or returned as bytes, as `on_deserialization_error` says.

        With on_deserialization_error="raise", return the records before the unreadable record, and
        put the others back; raise RecordDeserializationError if the first record is unreadable. If
        the call is cancelled, put back all records that were not rejected.
        """
        if self.is_empty:
            return taken
        records = [record for run in taken for record in run]
        kept: list[ShareRecord[Any, Any]] = []
        done = 0
        try:
            for record in records:
                if await self.convert_one(record):
                    kept.append(record)
                else:
                    record._acquisition.deliver(1)
                    self._acknowledgements.finish(record, AcknowledgeType.REJECT)
                done += 1
        except RecordDeserializationError:
            buffer.put_back(records[max(done, 1) :])
            if done:
                return list(runs(kept))
            raise
        except BaseException:
            buffer.put_back([*kept, *records[done:]])
            raise
        return taken if len(kept) == len(records) else list(runs(kept))

    async def convert_one(self, record: ShareRecord[Any, Any]) -> bool:
        """Deserialize a record that is not deserialized yet. Return False if the record is to be
        rejected. Raises RecordDeserializationError with on_deserialization_error="raise"."""
        if not record._is_raw:
            return True
        try:
            key = await self._convert(record, "key", self._key, record.key)
            value = await self._convert(record, "value", self._value, record.value)
        except RecordDeserializationError as error:
            if self._on_unreadable is None:
                raise
            record._is_raw = False
            return self._on_unreadable(error)
        # Set key and value only after both deserializers have returned: RecordDeserializationError
        # must contain the record with key and value as bytes.
        record.key, record.value, record._is_raw = key, value, False
        return True

    async def _convert(
        self, record: ShareRecord[Any, Any], part: str, deserializer: Any, data: Any
    ) -> Any:
        if deserializer is None:
            return data
        count = getattr(asyncio.current_task(), "cancelling", lambda: None)
        before = count()
        try:
            result = deserialize(deserializer, record, part, data)
            if type(result) in _PLAIN or not isawaitable(result):
                return result
            return await result
        except Exception as error:
            raise not_deserialized(record, error, part) from error
        except asyncio.CancelledError as error:
            # If this task is not cancelled, the deserializer has awaited a task or future that was
            # cancelled. Python 3.10 cannot distinguish the causes.
            if before is None or count() > before:
                raise
            raise not_deserialized(record, error, part) from error
