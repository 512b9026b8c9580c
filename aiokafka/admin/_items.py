"""Ask about several items in one call: repeat what may pass, return all, or raise what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from aiokafka._tasks import together
from aiokafka.admin._routing import Router
from aiokafka.errors import (
    AdminItemsError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    UnsupportedEndpointType,
    UnsupportedVersionError,
)

__all__ = ["attempt", "by_node", "outcome", "settle"]

K = TypeVar("K")
V = TypeVar("V")

_LACKING = (UnsupportedVersionError, UnsupportedEndpointType)


async def settle(
    router: Router,
    items: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Mapping[K, V | KafkaError]]],
    deadline: float,
    *,
    fail_fast: bool = False,
    final: tuple[type[KafkaError], ...] = (),
    stays: Callable[[K], bool] = lambda _: False,
) -> dict[K, V]:
    """Return what each item got, in the order of `items`.

    `ask` takes the items that are left and returns a value or an error for each; what it raises is
    the error of all. It ends by the deadline by itself, so that an item with a response is not lost
    because of another. Items with a retriable error are asked about again after a pause, until the
    deadline (loop time), except those whose error is one of the types `final`, or `stays` as it is.
    Raises what `outcome` raises, and what `ask` raises at first if that cannot pass; with
    `fail_fast` the first error of an item that cannot pass, as soon as it is known.
    """
    wanted = list(dict.fromkeys(items))
    found: dict[K, V | KafkaError] = {}
    left = wanted
    backoff = router.backoff()
    loop = asyncio.get_running_loop()
    while left:
        answers = await _ask_once(ask, left, raises=not found)
        for item in left:
            answer = answers[item] if item in answers else _unanswered(item)
            found[item] = _known_better(item, found.get(item), answer)
        left = [item for item in left if _may_pass(found[item], final) and not stays(item)]
        if fail_fast:
            _raise_final(found, left)
        pause = backoff.next()
        if left and loop.time() + pause >= deadline:
            for item in left:
                found[item] = _too_late(item, found[item])
            break
        if left:
            await asyncio.sleep(pause)
    return outcome({item: found[item] for item in wanted})


async def _ask_once(
    ask: Callable[[list[K]], Awaitable[Mapping[K, V | KafkaError]]],
    left: list[K],
    *,
    raises: bool,
) -> Mapping[K, V | KafkaError]:
    """Return what `ask` does, or its error for each item; with `raises`, raise what stays."""
    try:
        return await ask(left)
    except KafkaError as error:
        if raises and not error.retriable and not isinstance(error, KafkaTimeoutError):
            raise  # of the call, such as an API that no broker has: not of one item or another
        return dict.fromkeys(left, error)


def _unanswered(item: object) -> KafkaError:
    return KafkaProtocolError(f"{item}: the response does not name it")


def _raise_final(found: Mapping[K, object], left: Collection[K]) -> None:
    for item, each in found.items():
        if isinstance(each, KafkaError) and item not in left:
            raise each


def _may_pass(answer: object, final: tuple[type[KafkaError], ...]) -> bool:
    stays = isinstance(answer, (KafkaTimeoutError, *final))
    return isinstance(answer, KafkaError) and answer.retriable and not stays


def _known_better(item: K, before: V | KafkaError | None, now: V | KafkaError) -> V | KafkaError:
    """Return the response; for a late attempt that learned nothing, what the one before brought."""
    learned_nothing = isinstance(now, KafkaTimeoutError) and now.__cause__ is None
    return _too_late(item, before) if learned_nothing and before is not None else now


def _too_late(item: K, answer: object) -> KafkaError:
    error = KafkaTimeoutError(f"{item}: timed out; the last attempt: {answer}")
    error.__cause__ = answer if isinstance(answer, KafkaError) else None
    return error


def outcome(found: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """Return the values if no item failed.

    Raises the error of the item if there is only one, or if all could not be asked for, such as
    UnsupportedVersionError; else AdminItemsError with all errors and all values.
    """
    errors = {item: each for item, each in found.items() if isinstance(each, KafkaError)}
    results = {item: each for item, each in found.items() if not isinstance(each, KafkaError)}
    if not errors:
        return results
    lacking = all(isinstance(each, _LACKING) for each in errors.values())
    if len(found) == 1 or (lacking and not results):
        raise next(iter(errors.values()))
    raise AdminItemsError(errors, results)


async def attempt(
    call: Awaitable[Mapping[K, V | KafkaError]], items: Collection[K]
) -> dict[K, V | KafkaError]:
    """Return what `call` returns or raises for each item, to go on without some."""
    try:
        return dict(await call)
    except KafkaError as error:
        # The error of a single item may itself be about several things.
        if isinstance(error, AdminItemsError) and len(items) > 1:
            return {**error.results, **error.errors}
        return dict.fromkeys(items, error)


async def by_node(
    groups: Mapping[int, list[K]],
    send: Callable[[int, list[K]], Awaitable[Mapping[K, V | KafkaError]]],
) -> dict[K, V | KafkaError]:
    """Ask several nodes at once, each about its items; a node that fails fails its items."""

    async def one(node_id: int, items: list[K]) -> Mapping[K, V | KafkaError]:
        try:
            return await send(node_id, items)
        except KafkaError as error:
            return dict.fromkeys(items, error)

    found: dict[K, V | KafkaError] = {}
    for answers in await together(one(*group) for group in groups.items()):
        found.update(answers)
    return found
