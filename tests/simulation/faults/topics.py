"""What happens to topics: partitions added, records deleted, topics made again."""

from __future__ import annotations

from typing import Any

from aiokafka.structs import TopicPartition
from tests.simulation.faults.base import Fault, draw_partition
from tests.simulation.scenario import Draft


class MorePartitions(Fault):
    """A topic gets one more partition."""

    kind = "more partitions"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which topic."""
        return draw_partition(draft)

    async def begin(self) -> None:
        """Add it, if all brokers run: it gets no replicas on others later."""
        state = self.world.cluster.state
        topic = state.topics.get(self.arguments["topic"])
        if topic is not None and len(state.live_nodes()) == len(state.nodes):
            state.add_partitions(topic, len(topic.partitions) + 1)
            self.hit()


class Retention(Fault):
    """The older half of a partition's records is deleted."""

    kind = "retention"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which partition."""
        return draw_partition(draft)

    async def begin(self) -> None:
        """Delete them."""
        tp = TopicPartition(self.arguments["topic"], self.arguments["partition"])
        found = self.world.cluster.state.partition(*tp)
        if found is None or not found.log.high_watermark:
            return
        self.world.history.keep(tp)
        log = found.log
        stable = min(log.last_stable_offset, log.high_watermark)
        log.delete_before((log.start_offset + stable + 1) // 2)
        gone = self.world.history.gone
        gone[tp] = max(gone.get(tp, 0), log.start_offset)
        self.hit()


class TopicAgain(Fault):
    """A topic is deleted, and made again later."""

    kind = "topic again"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which topic."""
        return draw_partition(draft)

    async def begin(self) -> None:
        """Delete it; its records are gone, and nothing about them can be wrong."""
        name = self.arguments["topic"]
        cluster = self.world.cluster
        if name in cluster.state.topics:
            history = self.world.history
            history.forgive(name)
            history.remade.note_end(name)
            # What retention removed before is gone with it, too: no other log has these offsets.
            history.kept = {tp: known for tp, known in history.kept.items() if tp.topic != name}
            history.gone = {tp: end for tp, end in history.gone.items() if tp.topic != name}
            await cluster.delete_topic(name)
            self.hit()

    async def end(self) -> None:
        """Make it again, as it was but perhaps for the number of its partitions."""
        name = self.arguments["topic"]
        cluster = self.world.cluster
        all_live = len(cluster.state.live_nodes()) == len(cluster.state.nodes)
        if name not in cluster.state.topics and all_live:
            plan = self.world.scenario.topic(name)
            count = self.arguments.get("partitions", plan.partitions)
            await cluster.create_topic(name, count, plan.replicas, config=plan.config)


TOPIC_FAULTS: dict[type[Fault], int] = {MorePartitions: 2, Retention: 2, TopicAgain: 1}
