"""Calls about several items, such as topics: retry failed items, return values, raise errors.

`settle` repeats a call for the items that failed. `by_coordinator` and `by_leader` send each item
to its coordinator or leader; `of_every_broker` sends the same request to all brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from aiokafka._coordinator_lookup import coordinators_in, lookup_of
from aiokafka._tasks import together
from aiokafka.admin._routing import Call, Outcomes, Router, Send, fetch_metadata
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    AdminItemsError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    UnsupportedEndpointType,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.structs import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

GONE = (UnknownTopicOrPartitionError, UnknownTopicId)
"""Errors that are not retried if the controller returns them, because the controller knows all
topics."""

_NOT_SUPPORTED = (UnsupportedVersionError, UnsupportedEndpointType)


async def settle(
    router: Router,
    items: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Outcomes[K, V]]],
    deadline: float,
    *,
    fail_fast: bool = False,
    final: tuple[type[KafkaError], ...] = (),
    is_final: Callable[[K], bool] = lambda _: False,
) -> dict[K, V]:
    """Return the value of each item, in the order of `items`.

    `ask(items)` sends the requests about these items, and returns a value or an error for each
    item. If `ask` raises an error, this is the error of all these items. `ask` must end at the
    deadline (loop time) by itself, so that the values of other items are kept.

    After a backoff, `ask` is called again with the items that have a retriable error, until the
    deadline. An item is not retried if its error is a KafkaTimeoutError or of one of the types
    `final`, or if `is_final(item)` returns True.

    Raises the same errors as `outcome`. If the first call of `ask` raises an error that is neither
    retriable nor a KafkaTimeoutError, raises it at once. With `fail_fast`, raises the first error
    of an item that is not retried, without waiting for the other items.
    """
    wanted = list(dict.fromkeys(items))
    found: dict[K, V | KafkaError] = {}
    left = wanted
    backoff = router.backoff()
    loop = asyncio.get_running_loop()
    while left:
        try:
            outcomes: Outcomes[K, V] = await ask(left)
        except KafkaError as error:
            if not found and not error.retriable and not isinstance(error, KafkaTimeoutError):
                raise  # an error of the call, not of an item, such as UnsupportedVersionError
            outcomes = dict.fromkeys(left, error)
        for item in left:
            now = outcomes[item] if item in outcomes else _missing(item)
            # A timeout without a cause explains less than the error of the previous attempt, so
            # put that error into the text.
            is_empty = isinstance(now, KafkaTimeoutError) and now.__cause__ is None
            found[item] = _timed_out(item, found[item]) if is_empty and item in found else now
        left = [item for item in left if _is_retriable(found[item], final) and not is_final(item)]
        if fail_fast:
            _raise_final(found, left)
        pause = backoff.next()
        if left and loop.time() + pause >= deadline:
            for item in left:
                found[item] = _timed_out(item, found[item])
            break
        if left:
            await asyncio.sleep(pause)
    return outcome({item: found[item] for item in wanted})


def _missing(item: object) -> KafkaError:
    return KafkaProtocolError(f"{item}: the response does not name it")


def _raise_final(found: Mapping[K, object], left: Collection[K]) -> None:
    for item, each in found.items():
        if isinstance(each, KafkaError) and item not in left:
            raise each


def _is_retriable(found: object, final: tuple[type[KafkaError], ...]) -> bool:
    is_final = isinstance(found, (KafkaTimeoutError, *final))
    return isinstance(found, KafkaError) and found.retriable and not is_final


def _timed_out(item: object, last: object) -> KafkaError:
    error = KafkaTimeoutError(f"{item}: timed out; the last attempt: {last}")
    error.__cause__ = last if isinstance(last, KafkaError) else None
    return error


def outcome(found: Outcomes[K, V]) -> dict[K, V]:
    """Return the values if no item failed. Otherwise raise:

    - with a single item, its error;
    - if all items failed because the broker does not support the request, one of these errors
      (UnsupportedVersionError or UnsupportedEndpointType);
    - in all other cases AdminItemsError, with all errors and all values.
    """
    errors = {item: each for item, each in found.items() if isinstance(each, KafkaError)}
    results = {item: each for item, each in found.items() if not isinstance(each, KafkaError)}
    if not errors:
        return results
    not_supported = all(isinstance(each, _NOT_SUPPORTED) for each in errors.values())
    if len(found) == 1 or (not_supported and not results):
        raise next(iter(errors.values()))
    raise AdminItemsError(errors, results)


async def attempt(
    call: Callable[[], Awaitable[Outcomes[K, V]]], items: Collection[K]
) -> dict[K, V | KafkaError]:
    """Return the values of `call` by item. A KafkaError is not raised: it is the outcome of the
    item that it concerns, or of all `items`.

    `call` is a function and not a coroutine: if the task of `attempt` is cancelled before its first
    step, a coroutine would never be awaited, and Python would warn about it.
    """
    try:
        return dict(await call())
    except KafkaError as error:
        # With several items, AdminItemsError has an error for each item that failed. With a single
        # item, the AdminItemsError as a whole is the error of this item: the errors in it are those
        # of parts of the item, such as the ACL entries that an ACL filter selects.
        if isinstance(error, AdminItemsError) and len(items) > 1:
            return {**error.results, **error.errors}
        return dict.fromkeys(items, error)


async def by_node(groups: Mapping[int, list[K]], send: Send[K, V]) -> dict[K, V | KafkaError]:
    """Call `send` for several nodes concurrently, each with its own items.

    If `send` raises a KafkaError, this error is the outcome of all items of that node.
    """

    async def one(node_id: int, items: list[K]) -> Outcomes[K, V]:
        try:
            return await send(node_id, items)
        except KafkaError as error:
            return dict.fromkeys(items, error)

    found: dict[K, V | KafkaError] = {}
    for part in await together(one(*group) for group in groups.items()):
        found.update(part)
    return found


# -- Partitions in requests and responses, by topic

T = TypeVar("T")
E = TypeVar("E")


def name_of(tp: TopicPartition) -> str:
    """Return the name of a partition for error texts."""
    return f"{tp.topic}-{tp.partition}"


def by_topic(
    partitions: Iterable[TopicPartition],
    make_topic: Callable[[str, list[E]], T],
    make_entry: Callable[[TopicPartition], E],
) -> list[T]:
    """Return the topics of a request, each made from its name and its partitions' entries."""
    topics: dict[str, list[E]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(make_entry(tp))
    return [make_topic(name, entries) for name, entries in topics.items()]


def numbers_by_topic(
    partitions: Iterable[TopicPartition], make_topic: Callable[[str, list[int]], T]
) -> list[T]:
    """Return the topics of a request, each made from its name and its partitions' numbers."""
    return by_topic(partitions, make_topic, lambda tp: tp.partition)


def partitions_in(
    topics: Iterable[Any], name: str = "name"
) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield each partition in the topics of a response, and its entry in the response.

    `name` is the name of the field that has the topic's name.
    """
    for topic in topics:
        for each in topic.partitions:
            yield TopicPartition(getattr(topic, name), each.partition_index), each


# -- To the coordinators of groups or transactional ids

_NAMES = {CoordinationType.GROUP: "group", CoordinationType.TRANSACTION: "transactional id"}


async def by_coordinator(
    router: Router,
    keys: Iterable[str],
    send: Send[str, V],
    deadline: float,
    *,
    kind: CoordinationType = CoordinationType.GROUP,
) -> dict[str, V]:
    """Return a value for each key (a group id or transactional id), from its coordinator.

    `send` sends a request to one node, about the keys that this node coordinates; requests to
    several nodes are concurrent. Keys with a retriable error are retried after a new coordinator
    lookup. Raises the same errors as `settle`.
    """

    async def ask(left: list[str]) -> Outcomes[str, V]:
        return await _at_nodes(await _find(router, left, kind, deadline), send)

    return await settle(router, keys, ask, deadline)


async def _at_nodes(
    nodes: Mapping[K, int | KafkaError], send: Send[K, V]
) -> dict[K, V | KafkaError]:
    """Call `send` once for each node, with the items of that node.

    If the node of an item is unknown, `nodes` has an error instead of a node id, and this error is
    the outcome of the item.
    """
    found: dict[K, V | KafkaError] = {}
    groups: dict[int, list[K]] = {}
    for item, node_id in nodes.items():
        if isinstance(node_id, KafkaError):
            found[item] = node_id
        else:
            groups.setdefault(node_id, []).append(item)
    return found | await by_node(groups, send)


async def _find(
    router: Router, keys: list[str], kind: CoordinationType, deadline: float
) -> dict[str, int | KafkaError]:
    """Return the node id of each key's coordinator, or the error of the key.

    One request looks up all coordinators; before Kafka 3.0, there is one request for each key.
    """
    try:
        return await _look_up(router, keys, kind, deadline)
    except UnsupportedVersionError:
        if len(keys) == 1:
            raise
    found: dict[str, int | KafkaError] = {}
    for part in await together(
        attempt(partial(_look_up, router, [key], kind, deadline), [key]) for key in keys
    ):
        found |= part
    return found


async def _look_up(
    router: Router, keys: list[str], kind: CoordinationType, deadline: float
) -> dict[str, int | KafkaError]:
    call = Call(FindCoordinatorRequest, lambda version: lookup_of(version, kind, keys))
    response = await router.to_any(call, deadline)
    brokers = coordinators_in(response, {key: f"{_NAMES[kind]} {key!r}" for key in keys})
    return {key: router.learn(broker) for key, broker in brokers.items()}


# -- To the leaders of partitions

# Errors that a broker also returns while its metadata is outdated: query a second broker as well.
_MISSING = (UnknownTopicOrPartitionError, LeaderNotAvailableError)

# A partition that is not in the metadata is looked up again for this many seconds, because a broker
# may not know a new topic yet. After this time, the partition counts as nonexistent.
_NEW_TOPIC = 1.0

# A call about several partitions retries a partition without a leader for this many seconds: an
# election takes less time, if a replica can become the leader. After this time, the partition
# fails.
_ELECTION = 3.0


async def by_leader(
    router: Router,
    partitions: Iterable[TopicPartition],
    send: Send[TopicPartition, V],
    deadline: float,
    *,
    fail_fast: bool = False,
    final: tuple[type[KafkaError], ...] = (),
    missing_for: float = _NEW_TOPIC,
) -> dict[TopicPartition, V]:
    """Return a value for each partition, from its leader.

    `send` sends a request to one node, about the partitions that this node leads; requests to
    several nodes are concurrent. Partitions with a retriable error are retried after a metadata
    request, at the leader in the new metadata, until the deadline. Two cases end earlier, after at
    most half of the time until the deadline:

    - A partition that is not in the metadata, after `missing_for` seconds: it does not exist, and
      fails with UnknownTopicOrPartitionError in place of a timeout.
    - A partition without a leader, after 3 s, so that it does not delay the other partitions. A
      single partition is retried until the deadline.

    Raises the same errors as `settle`.
    """
    partitions = list(partitions)
    loop = asyncio.get_running_loop()
    began = loop.time()
    retried_until: dict[TopicPartition, float] = {}

    def is_final(tp: TopicPartition) -> bool:
        return tp in retried_until and loop.time() >= min(retried_until[tp], (began + deadline) / 2)

    async def ask(left: list[TopicPartition]) -> Outcomes[TopicPartition, V]:
        leaders = await leaders_of(router, left, deadline)
        retried_until.clear()
        for tp, each in leaders.items():
            if isinstance(each, UnknownTopicOrPartitionError):
                retried_until[tp] = began + missing_for
            elif isinstance(each, LeaderNotAvailableError) and len(partitions) > 1:
                retried_until[tp] = began + _ELECTION
        return await _at_nodes(leaders, send)

    return await settle(
        router, partitions, ask, deadline, fail_fast=fail_fast, final=final, is_final=is_final
    )


async def leaders_of(
    router: Router, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, int | KafkaError]:
    """Return the node id of each partition's leader, or the partition's error.

    If the broker does not know a partition or its leader, a second broker is queried.
    """

    async def ask(
        wanted: list[TopicPartition] | None, until: float, asked: set[int]
    ) -> dict[TopicPartition, int | KafkaError]:
        wanted = wanted or []
        names = sorted({tp.topic for tp in wanted})
        metadata = await fetch_metadata(router, names, until, asked=asked)
        codes = {str(topic.name): topic.error_code for topic in metadata.topics}
        leaders = {tp: each.leader_id for tp, each in partitions_in(metadata.topics)}
        return {tp: _leader(tp, codes.get(tp.topic, 0), leaders.get(tp)) for tp in wanted}

    return await router.ask_two(
        ask,
        list(partitions),
        lambda each: isinstance(each, _MISSING),
        deadline,
        lambda second, first: not isinstance(second, KafkaError),
    )


def _leader(tp: TopicPartition, code: int, leader: int | None) -> int | KafkaError:
    if code:
        return for_code(code)(tp.topic)
    if leader is None:
        return UnknownTopicOrPartitionError(f"{tp.topic}-{tp.partition}: no such partition")
    if leader < 0:
        return LeaderNotAvailableError(f"{tp.topic}-{tp.partition}")
    return leader


# -- To all brokers


@dataclass
class Gathered(Generic[V]):
    """The values that brokers returned, and the errors of the other brokers by broker id."""

    values: list[V] = field(default_factory=list)
    errors: dict[int, KafkaError] = field(default_factory=dict)


async def of_every_broker(
    router: Router, ask: Callable[[int], Awaitable[Iterable[V]]], deadline: float
) -> Gathered[V]:
    """Call `ask(node_id)` for all brokers concurrently, and return the values.

    A retriable error of one broker repeats the call for all brokers: after a broker has failed, its
    groups or transactions move to other brokers, and the other brokers may have responded before
    that move. Any other error is raised at once. At the deadline (loop time), returns the values of
    the brokers that responded and the errors of the others; raises KafkaTimeoutError if there are
    no values.
    """
    gathered: Gathered[V] = Gathered()

    async def one(node_id: int) -> Iterable[V] | KafkaError:
        try:
            return await ask(node_id)
        except KafkaError as error:
            if not error.retriable:
                raise
            return error

    async def attempt() -> None:
        nonlocal gathered
        metadata = await fetch_metadata(router, [], deadline)
        nodes = [broker.node_id for broker in metadata.brokers]
        found: Gathered[V] = Gathered()
        for node_id, part in zip(nodes, await together(map(one, nodes)), strict=True):
            if isinstance(part, KafkaError):
                found.errors[node_id] = part
            else:
                found.values += part
        # Keep the result of the previous attempt if no broker responded to this attempt.
        if len(found.errors) < len(nodes):
            gathered = found
        for error in found.errors.values():
            raise error

    try:
        await router.retry(attempt, deadline)
    except KafkaTimeoutError:
        if not gathered.errors or not gathered.values:
            raise
        for node_id, error in gathered.errors.items():
            late = KafkaTimeoutError(f"node {node_id}: timed out; the last attempt: {error}")
            late.__cause__ = error
            gathered.errors[node_id] = late
    return gathered
