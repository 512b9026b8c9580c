"""Send any request of Kafka's protocol to the broker that it concerns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiokafka._partitions import as_partition
from aiokafka.admin._items import by_leader, by_node, settle
from aiokafka.admin._routing import Call, R, Router, codes_in, fetch_metadata
from aiokafka.client import CoordinationType
from aiokafka.protocol.schema import Request
from aiokafka.structs import TopicPartition

__all__ = ["SendTo", "send", "send_to_all"]


@dataclass(frozen=True)
class SendTo:
    """Says which broker a request is for: made by `any`, `controller`, `broker`, `leader`,
    `coordinator` or `transaction_coordinator`."""

    kind: str
    target: Any = None

    @classmethod
    def any(cls) -> SendTo:
        """Choose any broker; another one if the first is silent."""
        return cls("any")

    @classmethod
    def controller(cls) -> SendTo:
        """Choose the controller, or with KRaft a broker that forwards to it."""
        return cls("controller")

    @classmethod
    def broker(cls, broker_id: int) -> SendTo:
        """Choose this broker."""
        return cls("broker", broker_id)

    @classmethod
    def leader(cls, partition: TopicPartition) -> SendTo:
        """Choose the leader of a partition."""
        return cls("leader", as_partition(partition))

    @classmethod
    def coordinator(cls, group_id: str) -> SendTo:
        """Choose the coordinator of a group."""
        return cls("group", group_id)

    @classmethod
    def transaction_coordinator(cls, transactional_id: str) -> SendTo:
        """Choose the coordinator of a transactional id."""
        return cls("transaction", transactional_id)


async def send(router: Router, request: Request[R], to: SendTo, deadline: float) -> R:
    """Return the response of the broker that a request is for."""
    call: Call[R] = Call(type(request), lambda version: request, codes_in)
    if to.kind == "any":
        return await router.to_any(call, deadline)
    if to.kind == "controller":
        return await router.to_controller(call, deadline)
    if to.kind == "broker":
        return await router.to_node(to.target, call, deadline)
    if to.kind == "leader":

        async def ask(node_id: int, part: list[TopicPartition]) -> dict[TopicPartition, R]:
            return dict.fromkeys(part, await router.send(node_id, call, deadline))

        found = await by_leader(router, [to.target], ask, deadline)
        return found[to.target]
    kind = CoordinationType.GROUP if to.kind == "group" else CoordinationType.TRANSACTION
    return await router.to_coordinator(to.target, call, deadline, kind=kind)


async def send_to_all(router: Router, request: Request[R], deadline: float) -> dict[int, R]:
    """Return the response of each broker; raise what failed."""
    call: Call[R] = Call(type(request), lambda version: request)
    metadata = await fetch_metadata(router, [], deadline)

    async def one(node_id: int, _: list[int]) -> dict[int, R]:
        return {node_id: await router.send_to_named(node_id, call, deadline)}

    return await settle(
        router,
        sorted(broker.node_id for broker in metadata.brokers),
        lambda left: by_node({node_id: [node_id] for node_id in left}, one),
        deadline,
    )
