"""Which of one broker's partitions to ask for, as far as it depends on them alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka._reading import FetchSpec, OldEpochs
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import TopicPartition

__all__ = ["FetchPlan"]

# Record sets of one partition that may wait: one is read while the next is on its way.
QUEUED_PER_PARTITION = 2


class FetchPlan:
    """What the next fetch to one broker asks for.

    Owns `specs` (by partition, what to ask), the states and epochs they were made for, `full`
    (partitions left out because enough of them waits to be read) and the partitions that back off.
    A partition that changed is touched; `update()` looks at those alone. All in the order in which
    it came about, so that requests do not depend on the hashes of objects.
    """

    def __init__(self, node_id: int, max_bytes: int, old_epochs: OldEpochs) -> None:
        self.specs: dict[TopicPartition, FetchSpec] = {}
        self.full: dict[PartitionState, None] = {}
        self._node_id = node_id
        self._max_bytes = max_bytes
        self._old_epochs = old_epochs
        self._made_for: dict[TopicPartition, tuple[PartitionState, int]] = {}
        self._later: dict[PartitionState, float] = {}
        self._touched: dict[PartitionState, None] = {}
        self._changed: dict[TopicPartition, None] = {}

    def touch(self, state: PartitionState) -> None:
        """Look at this partition again with the next `update()`."""
        self._touched[state] = None

    def update(self, now: float, topic_ids: Mapping[str, bytes]) -> bool:
        """Take note of everything touched and of back-offs that ended; True if there is more to ask
        for."""
        # Nothing else touches them when their time has come.
        if self._later:
            self._touched.update((state, None) for state, at in self._later.items() if at <= now)
        if not self._touched:
            return False
        touched, self._touched = self._touched, {}
        gained = False
        for state in touched:
            gained |= self._look_at(state, now, topic_ids)
        return gained

    def next_retry(self) -> float | None:
        """Return when the first back-off ends (loop time); None without one."""
        return min(self._later.values(), default=None)

    def take_changed(self) -> dict[TopicPartition, None]:
        """Return the partitions whose spec may be another than at the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def rotate(self) -> None:
        """Let the next partition be the first, for a broker that does not know who was served last.

        A response begins with the first partition that has records, and there may be no room for
        those of others: none at all for a batch that is larger than what was asked for.
        """
        first = next(iter(self.specs), None)
        if first is not None:
            self.specs[first] = self.specs.pop(first)

    def state_for(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state that a response is for; None if the partition moved on since the
        request."""
        made_for = self._made_for.get(tp)
        if made_for is None:
            return None
        state, epoch = made_for
        # The epoch tells of a seek, a reset or a revocation since the request. The offset tells of
        # what leaves the epoch as it is: the buffer was dropped, or another broker has brought the
        # same records.
        if state.epoch != epoch or state.cursor.offset != self.specs[tp].offset:
            # The other broker's plan was told, not this one: the next request would ask for the
            # same again, as fast as the broker responds.
            self.touch(state)
            return None
        return state

    def states(self) -> list[PartitionState]:
        """Return the partitions asked for."""
        return [state for state, _ in self._made_for.values()]

    def _look_at(self, state: PartitionState, now: float, topic_ids: Mapping[str, bytes]) -> bool:
        cursor = state.cursor
        self.full.pop(state, None)
        self._later.pop(state, None)
        if state.home.node_id != self._node_id or not state.is_fetchable:
            return self._leave_out(state)
        if state.retry.at > now:
            self._later[state] = state.retry.at
            return self._leave_out(state)
        if cursor.queued >= QUEUED_PER_PARTITION:
            # Looked at again when a record set of it is read: the buffer touches it then.
            self.full[state] = None
            return self._leave_out(state)
        tp = state.tp
        topic_id = topic_ids.get(tp.topic, ZERO_UUID)
        epoch = self._old_epochs.to_ask(tp, cursor.leader_epoch)
        spec = FetchSpec(topic_id, cursor.offset, epoch, self._max_bytes)
        gained = tp not in self.specs
        self.specs[tp] = spec
        self._made_for[tp] = (state, state.epoch)
        self._changed[tp] = None
        return gained

    def _leave_out(self, state: PartitionState) -> bool:
        made_for = self._made_for.get(state.tp)
        # Only what was made for this state: its partition may have been revoked and assigned again,
        # and the new state may be in the plan by now.
        if made_for is not None and made_for[0] is state:
            del self._made_for[state.tp]
            del self.specs[state.tp]
            self._changed[state.tp] = None
        return False
