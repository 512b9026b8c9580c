"""Replication between brokers: lagging and stalled followers, the ISR, reassignments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from aiokafka._typing import later
from aiokafka.structs import TopicPartition
from aiokafka.testing.actions import check_seconds
from aiokafka.testing.log import PartitionLog

if TYPE_CHECKING:
    from aiokafka.testing.state import ClusterState, Node, Partition
else:
    ClusterState = later("aiokafka.testing.state.ClusterState")
    Partition = later("aiokafka.testing.state.Partition")
    Node = later("aiokafka.testing.state.Node")

Place = tuple[str, int]
"""Topic and partition."""
Seconds = float | tuple[float, float]
"""A duration, or (least, most) bounds of random durations."""

# First release in which the high watermark advances only while min.insync.replicas are in sync.
_FIRST_WAITING_FOR_MIN = (3, 7)


def drawn(seconds: Seconds, random: Random) -> float:
    return random.uniform(*seconds) if isinstance(seconds, tuple) else seconds


class Replication:
    """Replication from leaders to followers, the attribute `replication` of a :class:`FakeCluster`.

    By default all replicas of a partition share one log: replication takes no time and no record is
    lost. The first call of :meth:`lag`, :meth:`stall` or :meth:`use` gives each replica its own
    log. From then on the partition behaves as in Kafka:

    - Followers copy from the leader, after the lag. The high watermark is the end of the records
      that all in-sync replicas have; consumers read up to it, and ``acks=all`` waits for it.
    - A follower that has not caught up for ``replica.lag.time.max.ms`` leaves the ISR, and rejoins
      it when it has caught up.
    - A new leader keeps its own log: records that it had not copied are lost, and the other
      replicas truncate their logs to it. Only an in-sync replica is elected, so records
      acknowledged with ``acks=all`` are kept. With ``unclean.leader.election.enable`` any replica
      may be elected.

    ``cluster.log(...)`` then returns the log of the current leader: call it again after an
    election. The methods raise KeyError for an unknown partition or broker id.

    Example::

        cluster.replication.stall(("orders", 0), broker_id=2)   # broker 2 copies nothing
        await producer.send_and_wait("orders", b"x", partition=0)     # acks=1: the leader has it
        cluster.controller.elect(("orders", 0), 2)              # and now the record is lost
    """

    def __init__(self, state: ClusterState, random: Random) -> None:
        self._state = state
        self._random = random
        self._all = False
        self._lags: dict[tuple[Place | None, int | None], Seconds] = {}
        self._stalls: dict[tuple[Place | None, int | None], None] = {}
        state.replication = self

    # -- for tests -----------------------------------------------------------------------------

    def use(self, tp: TopicPartition | Place | None = None) -> None:
        """Give each replica its own log.

        Args:
            tp: One partition; None (the default) for all present and future partitions."""
        if tp is not None:
            self._divide(self._partition(tp))
            return
        self._all = True
        for partition in self._state.partitions():
            self._divide(partition)

    def lag(
        self,
        seconds: Seconds,
        tp: TopicPartition | Place | None = None,
        broker_id: int | None = None,
    ) -> None:
        """Set the delay with which followers copy records.

        Args:
            seconds: The delay, or the (least, most) bounds of random delays.
            tp: Only this partition; None (the default) for all partitions.
            broker_id: Only the follower on this broker; None (the default) for all.

        Raises:
            KeyError: no such partition or broker.
            ValueError: the time is negative.
        """
        for each in seconds if isinstance(seconds, tuple) else (seconds,):
            check_seconds("seconds", each)
        self._lags[self._key(tp, broker_id)] = seconds
        self.use(tp)

    def stall(self, tp: TopicPartition | Place | None = None, broker_id: int | None = None) -> None:
        """Stop followers from copying until :meth:`resume`; the arguments are those of
        :meth:`lag`.
        """
        self._stalls[self._key(tp, broker_id)] = None
        self.use(tp)

    def resume(
        self, tp: TopicPartition | Place | None = None, broker_id: int | None = None
    ) -> None:
        """End the :meth:`stall` with the same arguments."""
        self._stalls.pop(self._key(tp, broker_id), None)
        self.replicate()

    def heal(self) -> None:
        """End all lags and stalls, so that followers catch up at once. The replicas do not share
        one log again: each keeps its own."""
        self._lags.clear()
        self._stalls.clear()
        for partition in self._state.partitions():
            if partition.replica_logs is not None:
                partition.replica_logs.replicate_now()

    def isr(self, tp: TopicPartition | Place) -> list[int]:
        """Return the in-sync replicas of a partition."""
        return self._state.isr(self._partition(tp))

    def shrink(self, tp: TopicPartition | Place, broker_id: int) -> None:
        """Remove a lagging follower from the ISR at once, without waiting for
        ``replica.lag.time.max.ms``. It rejoins the ISR as soon as it has caught up. Without a
        controller, the ISR changes as soon as there is one.

        Raises:
            KeyError: no such partition or broker.
            ValueError: the broker is the leader.
        """
        self._key(tp, broker_id)
        partition = self._partition(tp)
        if partition.leader == broker_id:
            raise ValueError(f"broker {broker_id} leads {tp[0]}-{tp[1]}")
        self._divide(partition)
        if partition.replica_logs is not None:
            partition.replica_logs.shrink(broker_id)

    def log(self, tp: TopicPartition | Place, broker_id: int) -> PartitionLog:
        """Return the log of one replica, which may be the log shared by all replicas."""
        partition = self._partition(tp)
        if broker_id not in partition.replicas:
            raise KeyError(f"broker {broker_id} keeps no replica of {tp[0]}-{tp[1]}")
        return partition.log_of(broker_id)

    # -- for the cluster -----------------------------------------------------------------------

    def replicate(self) -> None:
        """Copy the missing records to the followers of all partitions, after a change in the
        cluster: followers that could not copy before may be able to now."""
        for partition in self._state.partitions():
            if partition.replica_logs is not None:
                partition.replica_logs.replicate()

    def partition_added(self, partition: Partition) -> None:
        """Give each replica of a new partition its own log, if :meth:`use` was called for all."""
        if self._all:
            self._divide(partition)

    def close(self) -> None:
        """Cancel all timers."""
        for partition in self._state.partitions():
            if partition.replica_logs is not None:
                partition.replica_logs.stop()

    def delay(self, partition: Partition, node_id: int) -> float | None:
        """Return the seconds before a follower copies the next records; None if it is stalled."""
        place = (partition.topic, partition.index)
        keys = ((place, node_id), (place, None), (None, node_id), (None, None))
        if any(key in self._stalls for key in keys):
            return None
        found = next((self._lags[key] for key in keys if key in self._lags), 0.0)
        return drawn(found, self._random)

    def _divide(self, partition: Partition) -> None:
        if partition.replica_logs is None:
            partition.replica_logs = ReplicaLogs(self, self._state, partition)
        partition.replica_logs.replicate()

    def _partition(self, tp: TopicPartition | Place) -> Partition:
        found = self._state.partition(*tp)
        if found is None:
            raise KeyError(f"no partition {tp[0]}-{tp[1]}")
        return found

    def _key(
        self, tp: TopicPartition | Place | None, broker_id: int | None
    ) -> tuple[Place | None, int | None]:
        if tp is not None:
            self._partition(tp)
        if broker_id is not None and broker_id not in self._state.nodes:
            raise KeyError(f"no broker {broker_id}")
        return None if tp is None else (tp[0], tp[1]), broker_id


class ReplicaLogs:
    """The logs of the replicas of one partition. The partition's `log` is the leader's log.

    Owns: the logs of the followers, the high watermark, and the ISR. A follower copies in rounds,
    as real followers fetch: a round copies the leader's records, and the high watermark that the
    leader has before the round.
    """

    def __init__(self, model: Replication, state: ClusterState, partition: Partition) -> None:
        self.logs: dict[int, PartitionLog] = {}
        self._model = model
        self._state = state
        self._partition = partition
        self._timers: dict[
            int, asyncio.TimerHandle
        ] = {}  # the next round of a follower, by broker id
        self._lag_timers: dict[int, asyncio.TimerHandle] = {}  # until the follower leaves the ISR
        self._lagging: dict[
            int, None
        ] = {}  # followers to remove from the ISR, once there is a controller
        self._untruncated: dict[int, None] = {}  # followers not yet truncated to the leader's log
        self._replicating = False
        self._closed = False
        partition.in_sync = state.live_replicas(partition) or partition.replicas[-1:]
        first = partition.replicas[0] if partition.leader == -1 else partition.leader
        partition.log.share()
        for node_id in partition.replicas:
            self.logs[node_id] = partition.log if node_id == first else partition.log.replica()
        partition.log.subscribe(self.replicate)

    # -- copying --------------------------------------------------------------------------

    def set_leader(self, node_id: int) -> None:
        """Make the log of the replica on `node_id` the log of the leader, in a new leader epoch; -1
        for no leader."""
        partition, former = self._partition, self._partition.log
        self.stop()
        self._lagging.clear()
        if node_id != -1:
            partition.log = self._log_of(node_id)
            if partition.log is not former:
                former.unsubscribe(self.replicate)
                former.pass_pause_to(partition.log)
                partition.log.subscribe(self.replicate)
            self._untruncated = {n: None for n in partition.replicas if n != node_id}
            partition.log.begin_epoch(partition.leader_epoch)
        self.replicate()
        former.wake()

    def catch_up(self, node_id: int) -> None:
        """Copy all records of the leader, if there is one, to a replica, and add the replica to the
        ISR."""
        partition = self._partition
        self._log_of(node_id)
        if partition.leader not in (-1, node_id):
            self._fetch(node_id)
        if partition.in_sync is not None and node_id not in partition.in_sync:
            partition.in_sync.append(node_id)

    def replicate_now(self) -> None:
        """Cancel the pending rounds of all followers, and replicate again: at once to followers
        without a lag, later to the others."""
        self.stop()
        self.replicate()

    def replicate(self) -> None:
        """Copy the missing records to each follower, at once or after its lag. The leader's log
        calls this at every change.
        """
        if self._replicating or self._closed:
            return
        self._replicating = True
        try:
            moved = True
            while moved:  # if a round advances the high watermark, the other followers must copy it
                rounds = [self._next_round(node_id) for node_id in self.logs]
                moved = True in rounds
            self._update_isr()
        finally:
            self._replicating = False

    def _next_round(self, node_id: int) -> bool:
        """Run or schedule the next round of a follower; return whether a round was run."""
        if node_id in self._timers or not self._is_behind(node_id):
            return False
        delay = self._model.delay(self._partition, node_id) if self._can_fetch(node_id) else None
        if delay is not None and delay <= 0:
            self._fetch(node_id)
            return True
        if self._misses_records(node_id):
            self._start_lag_timer(node_id)
        if delay is not None:
            loop = asyncio.get_running_loop()
            self._timers[node_id] = loop.call_later(delay, self._round, node_id)
        return False

    def _round(self, node_id: int) -> None:
        del self._timers[node_id]
        if self._can_fetch(node_id) and self._model.delay(self._partition, node_id) is not None:
            self._fetch(node_id)
        self.replicate()

    def _fetch(self, node_id: int) -> None:
        leader, log = self._partition.log, self.logs[node_id]
        mark = leader.high_watermark
        self._untruncated.pop(node_id, None)
        log.follow(leader)
        log.set_high_watermark(mark)
        timer = self._lag_timers.pop(node_id, None)
        if timer is not None:
            timer.cancel()
        self._lagging.pop(node_id, None)
        self._update_isr()

    # -- the ISR ------------------------------------------------------------------------

    def shrink(self, node_id: int) -> None:
        """Remove a follower from the ISR, as soon as there is a controller."""
        self._lagging[node_id] = None
        self._update_isr()

    def _start_lag_timer(self, node_id: int) -> None:
        if node_id in self._lag_timers or node_id not in (self._partition.in_sync or ()):
            return
        longest = self._state.setting("replica.lag.time.max.ms") / 1000
        loop = asyncio.get_running_loop()
        self._lag_timers[node_id] = loop.call_later(longest, self.shrink, node_id)

    def _update_isr(self) -> None:
        """Shrink and grow the ISR if there is a controller, and advance the high watermark to the
        end of the records that all in-sync replicas have. The high watermark stays while fewer than
        min.insync.replicas are in sync (from Kafka 3.7 on), or an in-sync replica has yet to
        truncate its log to the leader's. Do nothing without a leader.
        """
        partition, in_sync = self._partition, self._partition.in_sync
        if partition.leader == -1 or in_sync is None:
            return
        if self._state.has_controller:
            for node_id in tuple(self._lagging):
                if node_id in in_sync and node_id != partition.leader:
                    in_sync.remove(node_id)
            self._lagging.clear()
            for node_id in partition.replicas:
                if node_id not in in_sync and self._has_caught_up(node_id):
                    in_sync.append(node_id)
        if not self._may_advance(in_sync) or any(n in self._untruncated for n in in_sync):
            return
        mark = min(self.logs[node_id].end_offset for node_id in in_sync)
        if mark > partition.log.high_watermark:
            partition.log.set_high_watermark(mark)

    def _may_advance(self, in_sync: Sequence[int]) -> bool:
        topic = self._state.topics.get(self._partition.topic)
        if topic is None or self._state.profile.release < _FIRST_WAITING_FOR_MIN:
            return True
        least = min(int(topic.setting("min.insync.replicas")), len(self._partition.replicas))
        return len(in_sync) >= least

    def _has_caught_up(self, node_id: int) -> bool:
        fetches = self._can_fetch(node_id) and self._state.nodes[node_id].registered
        return fetches and not self._misses_records(node_id)

    # -- state of followers ----------------------------------------------------------------------

    def _misses_records(self, node_id: int) -> bool:
        end = self._partition.log.end_offset
        return node_id in self._untruncated or self.logs[node_id].end_offset != end

    def _is_behind(self, node_id: int) -> bool:
        """Return whether a round would change the follower's log or its high watermark."""
        leader, log = self._partition.log, self.logs[node_id]
        if log is leader or self._partition.leader == -1:
            return False
        return (
            self._misses_records(node_id)
            or log.high_watermark != leader.high_watermark
            or log.start_offset
            < leader.start_offset  # a follower may have a higher log start than the leader
        )

    def _can_fetch(self, node_id: int) -> bool:
        """Return whether the follower and the leader both run, are not isolated, have working
        disks, and know of this leader."""
        leader = self._partition.leader
        if leader in (-1, node_id):
            return False
        return all(self._takes_part(self._state.nodes[n]) for n in (leader, node_id))

    def _takes_part(self, node: Node) -> bool:
        partition = self._partition
        if not self._state.can_serve(partition, node.node_id):
            return False
        if node.view is None:
            return True
        seen = node.view.partition(partition.topic, partition.index)
        return seen is not None and seen.leader == partition.leader

    # -- logs and timers -------------------------------------------------------------------------

    def _log_of(self, node_id: int) -> PartitionLog:
        if node_id not in self.logs:
            self.logs[node_id] = self._partition.log.replica()
        return self.logs[node_id]

    def stop(self) -> None:
        """Cancel all timers; the next `replicate()` starts new timers."""
        for timer in (*self._timers.values(), *self._lag_timers.values()):
            timer.cancel()
        self._timers.clear()
        self._lag_timers.clear()

    def close(self) -> None:
        """Stop copying: the topic is deleted."""
        self._closed = True
        self.stop()


# -- Reassignments (KIP-455)


@dataclass(frozen=True)
class Reassignment:
    """The ongoing reassignment of a partition."""

    former: list[int]
    """The replicas before the reassignment."""
    target: list[int]

    @property
    def adding(self) -> list[int]:
        """The new replicas, which must copy the partition."""
        return [node for node in self.target if node not in self.former]

    @property
    def removing(self) -> list[int]:
        """The replicas that are removed when the reassignment completes."""
        return [node for node in self.former if node not in self.target]


class Reassignments:
    """Ongoing reassignments. A reassignment completes as soon as all its target brokers run and the
    partition has a leader."""

    def __init__(self, state: ClusterState) -> None:
        #: The ongoing reassignments, by topic and partition.
        self.ongoing: dict[Place, Reassignment] = {}
        self._state = state

    def begin(self, partition: Partition, target: list[int]) -> None:
        """Begin a reassignment, or change the target of the ongoing reassignment."""
        place = (partition.topic, partition.index)
        present = self.ongoing.get(place)
        former = partition.replicas if present is None else present.former
        move = Reassignment(list(former), list(target))
        self.ongoing[place] = move
        partition.replicas = [*target, *move.removing]
        self.advance()

    def cancel(self, partition: Partition) -> bool:
        """Cancel a reassignment and restore the replicas; return False if none is ongoing."""
        move = self.ongoing.pop((partition.topic, partition.index), None)
        if move is None:
            return False
        self._keep(partition, move.former)
        return True

    def advance(self) -> None:
        """Complete the reassignments whose leader and target brokers all run."""
        for place, move in list(self.ongoing.items()):
            partition = self._state.partition(*place)
            if partition is None:
                del self.ongoing[place]
                continue
            live = self._state.live_nodes()
            if partition.leader == -1 or not all(node in live for node in move.target):
                continue
            del self.ongoing[place]
            if partition.replica_logs is not None:
                for node in move.adding:
                    partition.replica_logs.catch_up(node)
            self._keep(partition, move.target)

    def _keep(self, partition: Partition, replicas: list[int]) -> None:
        partition.replicas = list(replicas)
        if partition.in_sync is not None:
            partition.in_sync = [node for node in partition.in_sync if node in replicas]
        if partition.leader not in replicas:
            self._state.elect(partition)
