"""Wait for topics that are not there: with a word about it, and not where nothing creates them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from aiokafka._tasks import together
from aiokafka.cli.output import note
from aiokafka.errors import AdminItemsError, KafkaError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.cli.session import Session

__all__ = ["find_to_send", "while_absent"]

# Seconds without a word, and then for a topic that was made a moment ago to turn up.
_SILENT = _TURNS_UP = 1.0

Waits = Callable[["AIOKafkaAdminClient"], Coroutine[Any, Any, bool]]


async def find_to_send(session: Session, producer: AIOKafkaProducer, topic: str) -> None:
    """Wait for the topic that records are to go to, unless nothing creates it.

    Raises UnknownTopicOrPartitionError.
    """
    waits = functools.partial(_may_be_created, session)
    await while_absent(session, (topic,), producer.partitions_for(topic), waits)


async def while_absent(
    session: Session, topics: Collection[str], work: Coroutine[Any, Any, Any], waits: Waits
) -> None:
    """Do `work`, which begins with a wait for topics.

    After a second stderr has a line about those that are not there. Raises
    UnknownTopicOrPartitionError after another one, unless `waits` says that they are waited for.
    """

    async def do() -> None:
        await work
        raise _Done

    async def watch() -> None:
        await asyncio.sleep(_SILENT)
        error = await _look(session, topics, waits)
        if error is not None:
            await asyncio.sleep(_TURNS_UP)
            raise error

    with contextlib.suppress(_Done):
        await together((do(), watch()))


class _Done(Exception):
    """The work has ended, and so does the watch."""


async def _look(session: Session, topics: Collection[str], waits: Waits) -> KafkaError | None:
    """Print which topics are not there; return the error if it makes no sense to wait for them."""
    try:
        async with session.admin_beside() as admin:
            absent = await _absent(admin, topics)
            for topic in absent:
                text = f"topic {topic!r} is not there; waiting for it"
                note(f"aiokafka: {text}")
            if not absent or await waits(admin):
                return None
            return UnknownTopicOrPartitionError(f"no topic {absent[0]!r}")
    except KafkaError:
        return None  # The work will say what is wrong.


async def _absent(admin: AIOKafkaAdminClient, topics: Collection[str]) -> list[str]:
    try:
        await admin.topics.describe(topics)
    except UnknownTopicOrPartitionError:
        return list(topics)
    except AdminItemsError as error:
        unknown = UnknownTopicOrPartitionError
        return [str(name) for name, each in error.errors.items() if isinstance(each, unknown)]
    return []


async def _may_be_created(session: Session, admin: AIOKafkaAdminClient) -> bool:
    """Say whether a topic is created because records are sent to it, as far as brokers tell."""
    from aiokafka.admin import ConfigKey

    if not session.client_options.get("allow_auto_create_topics", True):
        return False
    try:
        (broker, *_) = (await admin.brokers.describe_cluster()).brokers
        found = await admin.configs.describe([ConfigKey.broker(broker.id)])
    except KafkaError:
        return True  # It may not be asked, or is too old to tell.
    settings = next(iter(found.values()))
    setting = settings.get("auto.create.topics.enable")
    return setting is None or setting.value != "false"
