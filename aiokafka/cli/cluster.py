"""`aiokafka cluster`."""

from __future__ import annotations

from typing import Any

from aiokafka.cli.arguments import name_of
from aiokafka.cli.session import Session, Verbs, command
from aiokafka.structs import TopicPartition

commands = Verbs(help="Show whether all partitions have a leader and all their replicas.")


@command(commands, "health")
async def health(session: Session) -> int:
    """Show the brokers, and partitions without a leader, with offline replicas, or with replicas
    that are not in sync. The exit code is 1 if there are such partitions.

    \b
    Example:
      aiokafka cluster health
    """
    async with session.admin() as admin:
        cluster = await admin.brokers.describe_cluster()
        listed = await admin.topics.list(include_internal=True)
        names = [topic.name for topic in listed]
        topics = await session.parts(admin.topics.describe(names), names) if names else {}
    partitions = [
        (TopicPartition(topic.name, each.partition), each)
        for topic in topics.values()
        for each in topic.partitions
    ]
    leaderless = [tp for tp, each in partitions if each.leader is None or each.leader < 0]
    offline = [tp for tp, each in partitions if each.offline_replicas]
    behind = [tp for tp, each in partitions if len(each.isr) < len(each.replicas)]
    is_healthy = not (leaderless or offline or behind)
    facts: list[dict[str, Any]] = [
        {"fact": "healthy", "value": is_healthy},
        {"fact": "broker ids", "value": sorted(broker.id for broker in cluster.brokers)},
        {"fact": "controller id", "value": cluster.controller_id},
        {"fact": "topics", "value": len(topics)},
        {"fact": "partitions", "value": len(partitions)},
        {"fact": "without a leader", "value": _names(leaderless)},
        {"fact": "with offline replicas", "value": _names(offline)},
        {"fact": "with replicas not in sync", "value": _names(behind)},
    ]
    session.output.rows(facts, ("fact", "value"))
    return 0 if is_healthy else 1


def _names(partitions: list[TopicPartition]) -> list[str]:
    return [name_of(tp) for tp in sorted(partitions)]
