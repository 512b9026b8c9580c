"""The one place where rebalance listeners are called, and the calls that they may not make."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aiokafka.errors import IllegalStateError
from aiokafka.structs import TopicPartition

__all__ = ["ListenerMethod", "call_listener", "refuse_in_listener"]

ListenerMethod = Callable[[set[TopicPartition]], Awaitable[None] | None]


class _Call:
    """One call of a listener's method. Tasks that it starts inherit it, and may outlive it."""

    __slots__ = ("is_running", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.is_running = True


_running: ContextVar[_Call | None] = ContextVar("aiokafka_listener", default=None)


async def call_listener(
    owner: object, method: ListenerMethod, partitions: frozenset[TopicPartition]
) -> None:
    """Call a listener's method, plain or `async`, for the consumer that `owner` stands for.

    Raises what it raises.
    """
    with _inside(owner):
        result = method(set(partitions))
        if inspect.isawaitable(result):
            await result


def refuse_in_listener(owner: object, call: str) -> None:
    """Raise IllegalStateError if a listener of the consumer, or a task that one started, makes
    a call that would wait for the listener to return, or change what it was told."""
    running = _running.get()
    if running is not None and running.is_running and running.owner is owner:
        raise IllegalStateError(f"{call} cannot be called in a rebalance listener")


@contextmanager
def _inside(owner: object) -> Iterator[None]:
    call = _Call(owner)
    token = _running.set(call)
    try:
        yield
    finally:
        call.is_running = False
        _running.reset(token)
