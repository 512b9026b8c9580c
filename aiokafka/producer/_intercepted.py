"""What a producer with interceptors does in place of its short way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka._interception import Interception
from aiokafka.interceptors import ProducerRecord
from aiokafka.structs import RecordMetadata

__all__ = ["decline", "send_intercepted"]


def decline(*_: Any) -> None:
    """Append nothing, in place of `Appender.append`."""


async def send_intercepted(
    interception: Interception,
    given: ProducerRecord,
    deadline: float,
    send: Callable[[ProducerRecord, int], Awaitable[asyncio.Future[RecordMetadata]]],
    number: int,
) -> asyncio.Future[RecordMetadata]:
    """Send what the interceptors make of a record, and tell them what became of it. `number` is
    that of the transaction.

    Raises KafkaTimeoutError if they are too far behind until `deadline` (loop time).
    """
    await interception.wait_for_room(deadline)
    record = await interception.pass_on(
        "on_send", given, _is_record, partial(_tell_cancelled, interception)
    )
    try:
        future = await send(record, number)
    except (Exception, asyncio.CancelledError) as error:
        # A send that is cancelled while it waits has sent nothing.
        interception.tell("on_acknowledgement", record, None, error)
        raise
    future.add_done_callback(partial(_tell_outcome, interception, record))
    return future


def _is_record(value: Any) -> bool:
    return isinstance(value, ProducerRecord)


def _tell_cancelled(interception: Interception, record: ProducerRecord, count: int) -> None:
    """Tell the first `count` interceptors that `send` was cancelled in the last of them."""
    error = asyncio.CancelledError("send() was cancelled in an interceptor")
    interception.tell("on_acknowledgement", record, None, error, count=count)


def _tell_outcome(
    interception: Interception, record: ProducerRecord, future: asyncio.Future[RecordMetadata]
) -> None:
    """Tell the interceptors what became of a record whose future is done."""
    metadata: RecordMetadata | None = None
    error: BaseException | None
    if future.cancelled():
        error = asyncio.CancelledError("the program has cancelled the future of the record")
    else:
        # Not `exception()`: that counts as looking at it, and asyncio would not log any more that
        # the program has ignored a record that failed.
        error = future._exception
        metadata = future.result() if error is None else None
    interception.tell("on_acknowledgement", record, metadata, error)
