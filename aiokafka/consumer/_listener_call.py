"""The one place where rebalance listeners are called; calls that they and interceptors may not
make."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aiokafka.errors import IllegalStateError
from aiokafka.structs import TopicPartition

__all__ = [
    "ListenerMethod",
    "call_listener",
    "intercepting",
    "refuse_in_listener",
    "refuse_reading",
]

ListenerMethod = Callable[[set[TopicPartition]], Awaitable[None] | None]


class _Call:
    """One call of the application's method. Tasks that it starts inherit it, and may outlive it."""

    __slots__ = ("is_running", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.is_running = True


_running: ContextVar[_Call | None] = ContextVar("aiokafka_listener", default=None)
_intercepting: ContextVar[_Call | None] = ContextVar("aiokafka_interceptor", default=None)


async def call_listener(
    owner: object, method: ListenerMethod, partitions: frozenset[TopicPartition]
) -> None:
    """Call a listener's method, plain or `async`, for the consumer that `owner` stands for.

    Raises what it raises.
    """
    with _inside(_running, owner):
        result = method(set(partitions))
        if inspect.isawaitable(result):
            await result


@contextmanager
def intercepting(owner: object) -> Iterator[None]:
    """Mark the block as a call of `on_consume` for the consumer that `owner` stands for."""
    with _inside(_intercepting, owner):
        yield


def refuse_in_listener(owner: object, call: str) -> None:
    """Raise IllegalStateError if a listener of the consumer, or a task that one started, makes
    a call that would wait for the listener to return, or change what it was told."""
    if _is_inside(_running, owner):
        raise IllegalStateError(f"{call} cannot be called in a rebalance listener")


def refuse_reading(owner: object) -> None:
    """Raise IllegalStateError if a listener or an interceptor of the consumer, or a task that one
    started, asks for records: they come when it has returned."""
    refuse_in_listener(owner, "getone() and getmany()")
    if _is_inside(_intercepting, owner):
        raise IllegalStateError("getone() and getmany() cannot be called in on_consume()")


def _is_inside(place: ContextVar[_Call | None], owner: object) -> bool:
    running = place.get()
    return running is not None and running.is_running and running.owner is owner


@contextmanager
def _inside(place: ContextVar[_Call | None], owner: object) -> Iterator[None]:
    call = _Call(owner)
    token = place.set(call)
    try:
        yield
    finally:
        # Tasks that the listener has started may go on with this context: the object tells them
        # that it is over.
        call.is_running = False
        place.reset(token)
