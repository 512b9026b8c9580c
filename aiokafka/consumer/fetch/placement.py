"""Decide which broker serves which partition, and know whether it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka._vitals import Contact, Trouble, broker_contact
from aiokafka.consumer._names import some_names
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["Placement"]

# Looks at the metadata, some in a second, that may find no leader before the log says so.
_MISSES_TO_MENTION = 5

# How long leaders are read after a replica named by one of them failed: the leader would name it
# again.
_REPLICA_REST = 30.0

log = logging.getLogger("aiokafka.consumer.fetcher")


class Absence:
    """A partition without a leader: since when (loop time), and how often it was missed."""

    __slots__ = ("is_told", "misses", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.misses = 0
        self.is_told = False
        """Whether a broker has said so; at first no broker was asked yet."""


class Placement:
    """Puts each partition at its leader, or at a closer replica that the leader named (KIP-392).

    Owns: each partition's `home`; the partitions without a leader; a Contact for each broker with
    partitions of ours; until when replicas are not used. Moves nothing itself: `place()` says where
    a partition was before, and the Fetcher tells the NodeFetchers.
    """

    def __init__(self, shared: Shared) -> None:
        self._client = shared.client
        self._config = shared.config
        self._subscriptions = shared.subscriptions
        self._on_change = shared.on_change
        self._log = SubjectLog(log, shared.config.subject)
        self._contacts: dict[int, Contact] = {}
        self._leaderless: dict[TopicPartition, Absence] = {}
        self._leaders_only_until = 0.0

    # -- places ------------------------------------------------------------------------------------

    def place(self, state: PartitionState) -> int | None:
        """Bring one partition's home up to the metadata; returns where it was before."""
        home = state.home
        cluster = self._client.cluster
        leader, epoch = cluster.leader_for_partition(state.tp), cluster.leader_epoch(state.tp)
        # Epochs of another topic say nothing about the log of this one.
        if not self._subscriptions.assignment.is_foreign(state.tp.topic, cluster):
            self._note_leader_epoch(state, epoch)
        if home.preferred is not None and (
            home.preferred_until <= _now() or cluster.broker_metadata(home.preferred) is None
        ):
            # It has had its time, or has left the cluster: the leader names another if there is
            # one.
            home.preferred = None
        node_id = leader if home.preferred is None else home.preferred
        if node_id is None or node_id < 0:
            node_id = None
            self._miss_leader(state.tp)
        else:
            self._leaderless.pop(state.tp, None)
        before, home.node_id = home.node_id, node_id
        if epoch < 0 and node_id not in (None, before):
            state.retry.end_wait()  # before Kafka 2.1 nothing else tells of another leader
        return before

    def prefer_replica(self, state: PartitionState, node_id: int) -> None:
        """Use a replica that the leader names, with the next `place()`; the leader, if the replica
        is not known."""
        if self._client.cluster.broker_metadata(node_id) is None:
            self._client.request_metadata(f"{state.tp}: replica {node_id} is not known")
            self.refuse_replica(state)
            return
        state.home.preferred = node_id
        state.home.preferred_until = _now() + self._config.client.metadata_max_age

    def refuse_replica(self, state: PartitionState) -> None:
        """Use the leader with the next `place()`, and for a while take no other advice."""
        self._leaders_only_until = _now() + _REPLICA_REST
        state.home.preferred = None

    def rack_id(self) -> str:
        """Return the rack to name to brokers; "" to have leaders serve us themselves."""
        if _now() < self._leaders_only_until:
            return ""
        return self._config.client.client_rack or ""

    def _note_leader_epoch(self, state: PartitionState, epoch: int) -> None:
        """Begin to validate the position if a newer leader took over since it was read (KIP-320),
        or an older one than it was read from: the topic may have been deleted and created again.
        """
        cursor = state.cursor
        if epoch < 0 or epoch == cursor.leader_epoch:
            return
        is_newer = epoch > cursor.leader_epoch
        is_of_another = 0 <= cursor.offset_epoch != epoch
        if is_newer:
            state.retry.end_wait()  # another leader has had it wait
        # What leads to a comparison with the leader's log:
        # 1. READY, and the record before the position was written under an older leader. The new
        #    one may not have it: it was cut off, or never replicated.
        # 2. READY, and that record is from a later epoch than the leader has. Either the topic is
        #    another one, or this snapshot comes from a broker that lags behind: the leader knows.
        #    It may be the first leader that is known, of a position that was committed.
        # 3. VALIDATING, and yet another leader took over: what the last one says is of no use any
        #    more.
        # Otherwise there is nothing to compare. No record was fetched yet (-1), or by this leader;
        # or the position is still being looked up, and will be this leader's.
        if (state.phase is Phase.READY and is_of_another) or (
            state.phase is Phase.VALIDATING and is_newer
        ):
            state.begin_validation(epoch)
        else:
            cursor.follow_leader(epoch)

    # -- partitions without a leader ---------------------------------------------------------------

    def _miss_leader(self, tp: TopicPartition) -> None:
        self._client.look_for_leader(tp, f"leader of {tp} unknown")
        absence = self._leaderless.get(tp)
        if absence is None:
            absence = self._leaderless[tp] = Absence(_now())
        absence.misses += 1
        cluster = self._client.cluster
        # Without either no broker was asked about the topic yet, which is no reason for an alarm.
        if cluster.known_partitions(tp.topic) is not None or cluster.topic_error(tp.topic):
            absence.is_told = True

    def review_absences(self) -> None:
        """Forget partitions that are not ours any more. Log which have no leader, once, if this
        lasts."""
        for tp in self._leaderless.keys() - self._subscriptions.assignment.tps:
            del self._leaderless[tp]
        lasting = [tp for tp, a in self._leaderless.items() if a.misses == _MISSES_TO_MENTION]
        if lasting:
            self._log.warning(
                "No leader, or no such partition: %s cannot be read", self.names(lasting)
            )

    @property
    def leaderless(self) -> Collection[TopicPartition]:
        """Partitions of ours without a leader, as a broker said."""
        return [tp for tp, absence in self._leaderless.items() if absence.is_told]

    def names(self, partitions: Collection[TopicPartition]) -> str:
        """Name some partitions, and say which of them their topics do not have."""
        counts = []
        for topic in sorted({tp.topic for tp in partitions}):
            known = self._client.cluster.known_partitions(topic)
            if known is not None and any(
                tp.topic == topic and tp.partition not in known for tp in partitions
            ):
                counts.append(f"{topic} has {len(known)} partition{'s' * (len(known) != 1)}")
        return some_names(partitions) + (f" ({', '.join(counts)})" if counts else "")

    # -- brokers that answer -----------------------------------------------------------------------

    def add_contact(self, node_id: int) -> Contact:
        """Return a new Contact for a broker that a partition was placed at."""
        contact = broker_contact(self._client, node_id, self._log, self._on_change)
        self._contacts[node_id] = contact
        return contact

    def drop_contact(self, node_id: int) -> Contact:
        """Forget a broker without partitions of ours; returns its Contact."""
        return self._contacts.pop(node_id)

    def contacts(self) -> list[Contact]:
        """Return the Contacts of the brokers with partitions of ours."""
        return list(self._contacts.values())

    def outages(self, now: float) -> dict[int, Trouble]:
        """Return what is wrong with the brokers that do not answer, by their ids."""
        found = {}
        for node_id, contact in list(self._contacts.items()):
            if (outage := contact.outage(now)) is not None:
                found[node_id] = outage
        return found

    def contact_of(self, node_id: int) -> Contact | None:
        """Return the Contact of one broker; None if no partition is placed there."""
        return self._contacts.get(node_id)

    def silent_since(self, state: PartitionState, outages: Mapping[int, Trouble]) -> float | None:
        """Return since when a partition's broker does not answer, or there is none; None if it
        does. `outages` are those of this moment: many partitions have the same broker."""
        if state.tp in self._leaderless:
            absence = self._leaderless[state.tp]
            return absence.since if absence.is_told else None
        outage = outages.get(state.home.node_id) if state.home.node_id is not None else None
        return None if outage is None else outage.since


def _now() -> float:
    return asyncio.get_running_loop().time()
