"""Ask about several items in one call: retry them, return all values, or raise all errors.

`settle` retries the items. `by_coordinator` and `by_leader` send each item to its broker;
`of_every_broker` asks all brokers the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from aiokafka._coordinator_lookup import coordinators_in, lookup_of
from aiokafka._tasks import together
from aiokafka.admin._routing import Call, Router, fetch_metadata
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
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.structs import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

GONE = (UnknownTopicOrPartitionError, UnknownTopicId)
"""A topic that the controller does not know will not turn up."""

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


# -- Partitions in requests and responses, by topic

T = TypeVar("T")


class _Entry(Protocol):
    """What a response says of one partition."""

    @property
    def partition_index(self) -> int:
        """The number of the partition."""


E = TypeVar("E", bound=_Entry)
E_co = TypeVar("E_co", bound=_Entry, covariant=True)


class _Topic(Protocol[E_co]):
    """What a response says of the partitions of one topic."""

    @property
    def name(self) -> str:
        """The name of the topic."""

    @property
    def partitions(self) -> Sequence[E_co]:
        """An entry for each partition."""


def name_of(tp: TopicPartition) -> str:
    """Return what errors call a partition."""
    return f"{tp.topic}-{tp.partition}"


def by_topic(
    partitions: Iterable[TopicPartition], entry: Callable[[TopicPartition], T]
) -> dict[str, list[T]]:
    """Return what `entry` makes of each partition, by the names of topics, in order."""
    topics: dict[str, list[T]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(entry(tp))
    return topics


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of the partitions of each topic."""
    return by_topic(partitions, lambda tp: tp.partition)


def partitions_in(topics: Iterable[_Topic[E]]) -> Iterator[tuple[TopicPartition, E]]:
    """Yield each partition that a response names, with its entry there."""
    for topic in topics:
        for each in topic.partitions:
            yield TopicPartition(topic.name, each.partition_index), each


# -- To the coordinators of groups or transactional ids

_NAMES = {CoordinationType.GROUP: "group", CoordinationType.TRANSACTION: "transactional id"}


async def by_coordinator(
    router: Router,
    group_ids: Iterable[str],
    send: Callable[[int, list[str]], Awaitable[Mapping[str, V | KafkaError]]],
    deadline: float,
    *,
    kind: CoordinationType = CoordinationType.GROUP,
) -> dict[str, V]:
    """Ask the coordinator of each group, all coordinators at once, and return what each said.

    With the kind CoordinationType.TRANSACTION these are transactional ids. `send` asks one node
    about its groups. Those with a retriable error are asked about again, at their new coordinator.
    Raises as `settle` does.
    """

    async def ask(left: list[str]) -> Mapping[str, V | KafkaError]:
        found: dict[str, V | KafkaError] = {}
        nodes: dict[int, list[str]] = {}
        for group_id, home in (await _find(router, left, kind, deadline)).items():
            if isinstance(home, KafkaError):
                found[group_id] = home
            else:
                nodes.setdefault(home, []).append(group_id)
        return found | await by_node(nodes, send)

    return await settle(router, group_ids, ask, deadline)


async def _find(
    router: Router, keys: list[str], kind: CoordinationType, deadline: float
) -> dict[str, int | KafkaError]:
    """Return the coordinator of each key: in one request, or before Kafka 3.0 in one each."""
    try:
        return await _look_up(router, keys, kind, deadline)
    except UnsupportedVersionError:
        if len(keys) == 1:
            raise
    found: dict[str, int | KafkaError] = {}
    for part in await together(
        attempt(_look_up(router, [key], kind, deadline), [key]) for key in keys
    ):
        found |= part
    return found


async def _look_up(
    router: Router, keys: list[str], kind: CoordinationType, deadline: float
) -> dict[str, int | KafkaError]:
    call = Call(FindCoordinatorRequest, lambda version: lookup_of(version, kind, keys))
    response = await router.to_any(call, deadline)
    homes = coordinators_in(response, {key: f"{_NAMES[kind]} {key!r}" for key in keys})
    return {key: router.learn(home) for key, home in homes.items()}


# -- To the leaders of partitions

# What a broker says of a partition that others may know better.
_MISSING = (UnknownTopicOrPartitionError, LeaderNotAvailableError)

# Seconds in which a topic that was made a moment ago turns up in the metadata of all brokers.
_NEW_TOPIC = 1.0

# Seconds in which a partition gets another leader, if there is a replica that may lead.
_ELECTION = 3.0


async def by_leader(
    router: Router,
    partitions: Iterable[TopicPartition],
    send: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]],
    deadline: float,
    *,
    fail_fast: bool = False,
    final: tuple[type[KafkaError], ...] = (),
    patience: float = _NEW_TOPIC,
) -> dict[TopicPartition, V]:
    """Ask the leader of each partition, all leaders at once, and return what each said.

    `send` asks one node about its partitions. Those with a retriable error are sent again, to their
    new leader. One that the metadata does not have is waited for at most `patience` seconds, and
    at most half of the time: what does not exist has UnknownTopicOrPartitionError, not a timeout.
    One without a leader is waited for at most 3 s, unless it is the only one: it must not hold up
    the others. Raises as `settle` does.
    """
    partitions = list(partitions)
    loop = asyncio.get_running_loop()
    began = loop.time()
    missing: dict[TopicPartition, float] = {}

    def stays(tp: TopicPartition) -> bool:
        return tp in missing and loop.time() >= min(missing[tp], (began + deadline) / 2)

    async def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, V | KafkaError]:
        leaders = await leaders_of(router, left, deadline)
        missing.clear()
        for tp, each in leaders.items():
            if isinstance(each, UnknownTopicOrPartitionError):
                missing[tp] = began + patience
            elif isinstance(each, LeaderNotAvailableError) and len(partitions) > 1:
                missing[tp] = began + _ELECTION
        groups: dict[int, list[TopicPartition]] = {}
        found: dict[TopicPartition, V | KafkaError] = {}
        for tp, leader in leaders.items():
            if isinstance(leader, KafkaError):
                found[tp] = leader
            else:
                groups.setdefault(leader, []).append(tp)
        return found | await by_node(groups, send)

    return await settle(
        router, partitions, ask, deadline, fail_fast=fail_fast, final=final, stays=stays
    )


async def leaders_of(
    router: Router, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, int | KafkaError]:
    """Return the leader of each partition, or the reason why it is unknown, by two brokers."""
    wanted, asked = list(partitions), set[int]()
    found = await _leaders_by_one(router, wanted, deadline, asked)
    missing = [tp for tp, each in found.items() if isinstance(each, _MISSING)]
    by = router.second_opinion_by(asked, deadline)
    if missing and by is not None:
        with suppress(KafkaError):
            second = await _leaders_by_one(router, missing, by, asked)
            found |= {tp: each for tp, each in second.items() if not isinstance(each, KafkaError)}
    return found


async def _leaders_by_one(
    router: Router, wanted: list[TopicPartition], deadline: float, asked: set[int]
) -> dict[TopicPartition, int | KafkaError]:
    names = sorted({tp.topic for tp in wanted})
    metadata = await fetch_metadata(router, names, deadline, asked=asked)
    codes: dict[str, int] = {}
    leaders: dict[TopicPartition, int] = {}
    for topic in metadata.topics:
        codes[str(topic.name)] = topic.error_code
        for partition in topic.partitions:
            tp = TopicPartition(str(topic.name), partition.partition_index)
            leaders[tp] = partition.leader_id
    return {tp: _leader(tp, codes.get(tp.topic, 0), leaders.get(tp)) for tp in wanted}


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
    """What brokers have said, and the error of each broker that has said nothing, by its id."""

    values: list[V] = field(default_factory=list)
    errors: dict[int, KafkaError] = field(default_factory=dict)


async def of_every_broker(
    router: Router, ask: Callable[[int], Awaitable[Iterable[V]]], deadline: float
) -> Gathered[V]:
    """Return what `ask` returns for the node ids of all brokers, which it asks at once.

    A broker that goes away leaves what it cared for to others, perhaps to one that has been asked
    already: after an error that may pass, all are asked again. Another error ends the call at once.
    At the deadline the brokers without a response are told of beside what the others have said.
    Raises KafkaTimeoutError if that is nothing.
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
        # An attempt for which no time was left has learned nothing.
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
