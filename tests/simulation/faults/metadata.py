"""Metadata that goes back: brokers that lag behind, and tell what was so before."""

from __future__ import annotations

from typing import Any

from aiokafka import errors
from aiokafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import Edit, Interception, RequestContext
from tests.simulation.faults.base import Fault
from tests.simulation.scenario import Draft


class OlderMetadata(Fault):
    """Some answers to Metadata are of the moment in which the fault begins: other brokers, former
    topics, fewer partitions, leaders of before. All else is as it is.

    A broker that is misled goes back in nothing that it has said itself, and serves what it
    believes. Here clients hear of the newest state and of an older one in turns, as from brokers
    that take in the cluster's log at different speeds.
    """

    kind = "older metadata"
    _interception: Interception | None = None

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """From when on, how often on each connection, and on which: all, or one of so many."""
        source = draft.random
        return {
            "after": source.choice((0, 0.3, 1.0, 3.0)),
            "times": source.choice((1, 1, 2, 5, 1000)),
            "every": source.choice((1, 1, 2, 3)),
        }

    async def begin(self) -> None:
        """Keep what is so now, and tell it later."""
        self._past = self.world.cluster.state.snapshot()
        self._left: dict[int, int] = {}
        self._from = self.world.now + self.arguments["after"]
        self._interception = self.world.cluster.intercept(MetadataRequest, self._answer)

    def _answer(self, request: MetadataRequest, context: RequestContext) -> Edit | None:
        known, number = self._left, context.connection_id
        if number not in known:
            # In order of their first requests: their numbers go on from run to run.
            is_chosen = len(known) % self.arguments["every"] == 0
            known[number] = self.arguments["times"] if is_chosen else 0
        if self.world.now < self._from or not known[number]:
            return None
        return Edit(lambda response: self._change(request, context, response))

    def _change(
        self, request: MetadataRequest, context: RequestContext, response: MetadataResponse
    ) -> None:
        past = self._past
        brokers = [
            MetadataResponseBroker(node_id=n.node_id, host=n.host, port=n.port, rack=n.rack)
            for n in past.nodes.values()
            if n.registered
        ]
        wanted = request.topics
        if wanted is None or (context.api_version == 0 and not wanted):
            wanted = [MetadataRequestTopic(name=name) for name in past.topics]
        topics = [self._describe(one) for one in wanted]
        newest = response.topics, response.brokers
        response.topics, response.brokers = topics, brokers
        # Another server than Apache Kafka hides the same in older metadata (leader epochs).
        server = self.world.cluster.state.nodes[context.node_id].profile
        for change in server.changes.get(context.api_key, ()):
            change(context, response)
        # Metadata that is no older does not count.
        if (response.topics, response.brokers) == newest:
            return
        self._left[context.connection_id] -= 1
        self.hit()

    def _describe(self, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
        past = self._past
        if wanted.topic_id != ZERO_UUID:
            topic, error = past.topics_by_id.get(wanted.topic_id), errors.UnknownTopicId.errno
        else:
            topic, error = (
                past.topics.get(wanted.name or ""),
                errors.UnknownTopicOrPartitionError.errno,
            )
        if topic is None:
            name, topic_id = wanted.name, wanted.topic_id
            return MetadataResponseTopic(
                error_code=error, name=name, topic_id=topic_id, partitions=[]
            )
        partitions = []
        for each in topic.partitions:
            live = past.live_replicas(each)
            partitions.append(
                MetadataResponsePartition(
                    error_code=errors.LeaderNotAvailableError.errno if each.leader == -1 else 0,
                    partition_index=each.index,
                    leader_id=each.leader,
                    leader_epoch=each.leader_epoch,
                    replica_nodes=list(each.replicas),
                    isr_nodes=past.isr(each) or each.replicas[-1:],
                    offline_replicas=[node for node in each.replicas if node not in live],
                )
            )
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=partitions,
        )

    async def end(self) -> None:
        """Tell what is so."""
        if self._interception is not None:
            self._interception.remove()


METADATA_FAULTS: dict[type[Fault], int] = {OlderMetadata: 3}
