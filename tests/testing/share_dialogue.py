"""Requests of a member of a share group, for dialogues with a broker; see `scenarios`."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from aiokafka.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from aiokafka.protocol.messages.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from .scenarios import Side
from .support import RawClient, batch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LEAVING = -1
FINAL = -1
GROUP = 32

Place = tuple[bytes, int]
"""Topic id and partition."""
Ack = tuple[Any, ...]
"""First offset, last offset, and one or more acknowledgement types."""


def now_ms() -> int:
    return int(time.time() * 1000)


async def set_group(side: Side, group: str, **settings: object) -> int:
    """Set settings of a group, dots written as underscores; return the error code."""
    configs = [
        IncrementalAlterableConfig(
            name=name.replace("_", "."), config_operation=0, value=str(value)
        )
        for name, value in settings.items()
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=GROUP, resource_name=group, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return (await side.client.call(request, 1)).responses[0].error_code


class ShareMember:
    """A member of a share group on a connection."""

    def __init__(self, client: RawClient, group: str, member_id: str | None = None) -> None:
        self.client = client
        self.group = group
        self.member_id = str(uuid.uuid4()) if member_id is None else member_id
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: list[Any] = []

    async def heartbeat(
        self, *topics: str, epoch: int | None = None, rack_id: str | None = None
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rack_id=rack_id,
            subscribed_topic_names=list(topics) or None,
        )
        response = await self.client.call(request, 1)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = [
                    (topic.topic_id, index)
                    for topic in response.assignment.topic_partitions
                    for index in topic.partitions
                ]
        return response

    async def join(self, *topics: str, partitions: int = 1) -> None:
        """Join, and wait until the coordinator has assigned that many partitions."""
        await self.heartbeat(*topics)
        while len(self.assigned) < partitions:
            await asyncio.sleep(0.05)
            await self.heartbeat()

    async def load(self, place: Place) -> None:
        """Open a share session with an empty partition; return when the leader has loaded the share
        partition."""
        while True:
            self.session_epoch = 0
            found = taken(await self.fetch(place, max_wait_ms=100))
            if found and not found[0][1]:
                return
            await asyncio.sleep(0.05)

    async def open(self, place: Place) -> None:
        """Open a share session and acquire nothing."""
        self.session_epoch = 0
        await self.fetch(place, max_records=0)

    async def fetch(
        self,
        *partitions: Place,
        acks: dict[Place, list[Ack]] | None = None,
        forget: tuple[Place, ...] = (),
        epoch: int | None = None,
        version: int = 2,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        exact: bool = False,
        renews: bool = False,
    ) -> ShareFetchResponse:
        """Send a ShareFetch request in the next session epoch."""
        wanted = {place: [] for place in partitions} | dict(acks or {})
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            max_wait_ms=0 if renews else max_wait_ms,
            min_bytes=0 if renews else min_bytes,
            max_bytes=0 if renews else max_bytes,
            max_records=0 if renews else max_records,
            batch_size=batch_size,
            share_acquire_mode=int(exact),
            is_renew_ack=renews,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=index, acknowledgement_batches=_batches(given)
                        )
                    ],
                )
                for (topic_id, index), given in wanted.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in forget
            ],
        )
        response = await self.client.call(request, version)
        if not response.error_code and epoch is None:
            self.session_epoch += 1
        return response

    async def acknowledge(
        self,
        acks: dict[Place, list[Ack]],
        *,
        epoch: int | None = None,
        version: int = 2,
        renews: bool = False,
    ) -> ShareAcknowledgeResponse:
        """Send a ShareAcknowledge request in the next session epoch."""
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=index, acknowledgement_batches=_batches(given)
                        )
                    ],
                )
                for (topic_id, index), given in acks.items()
            ],
        )
        response = await self.client.call(request, version)
        if not response.error_code and epoch is None:
            self.session_epoch += 1
        return response

    # -- what is seen in the responses -----------------------------------------------------------

    async def take(self, *partitions: Place, **options: Any) -> list[Any]:
        """Fetch, and return the error, or what is acquired of each partition."""
        return taken(await self.fetch(*partitions, **options))

    async def settle(self, place: Place, *acks: Ack, **options: Any) -> list[Any]:
        """Acknowledge records of one partition, and return the errors."""
        return settled(await self.acknowledge({place: list(acks)}, **options))


def _batches(acks: list[Ack]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, *types in acks
    ]


def taken(response: ShareFetchResponse) -> list[Any]:
    """Return (index, error, acknowledgement error, acquired ranges, offsets) of each partition."""
    if response.error_code:
        return [response.error_code]
    return sorted(
        (
            part.partition_index,
            part.error_code,
            part.acknowledge_error_code,
            [(r.first_offset, r.last_offset, r.delivery_count) for r in part.acquired_records],
            base_offsets(part.records),
        )
        for topic in response.responses
        for part in topic.partitions
    )


def base_offsets(records: Any) -> list[int]:
    """Return the base offsets of record batches."""
    found, position = [], 0
    data = bytes(records or b"")
    while position + 12 <= len(data):
        found.append(int.from_bytes(data[position : position + 8], "big"))
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def settled(response: ShareAcknowledgeResponse) -> list[Any]:
    """Return the error, or (index, error) of each partition."""
    if response.error_code:
        return [response.error_code]
    return sorted(
        (part.partition_index, part.error_code)
        for topic in response.responses
        for part in topic.partitions
    )


async def fill(side: Side, topic: str, *sizes: int, partition: int = 0) -> None:
    """Write one batch of each number of records."""
    for size in sizes:
        records = batch(*[b"x"] * size, timestamp=now_ms())
        await side.produce(topic, records, partition=partition)


async def share_topic(side: Side, partitions: int = 1, **config: str) -> tuple[str, bytes]:
    """Return the name and the id of a new topic."""
    name = await side.topic(partitions, **config)
    [described] = await side.metadata(name)
    return name, described.topic_id


async def new_share_group(side: Side, **settings: object) -> str:
    """Return a group id whose coordinator is ready; the group reads from the earliest offset."""
    from .group_scenarios import new_group

    group = await new_group(side)
    defaults = {
        "share_assignment_interval_ms": 0,
        "share_auto_offset_reset": "earliest",
        "share_session_timeout_ms": 45_000,  # a slow machine must not remove members
    }
    assert not await set_group(side, group, **{**defaults, **settings})
    return group
