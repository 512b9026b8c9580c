"""The classic protocol: members join together, and the leader shares out (KIP-429)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._backoff import Backoff
from aiokafka.consumer.group.assignors import GroupAssignors, assignment_of, subscriptions_of
from aiokafka.consumer.group.classic_member import ClassicMember, Joined
from aiokafka.consumer.group.group import GroupCoordinator
from aiokafka.consumer.position.committed import Identity, OffsetCommitter
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["ClassicCoordinator"]

_LOST = (UnknownMemberIdError, IllegalGenerationError)


class ClassicCoordinator(GroupCoordinator):
    """Joins the group again and again, until the members agree, whenever there is a reason.

    Owns: the topics and partitions that this member shared out as leader; whether an eager member
    has given up everything for a join that is still to come.
    """

    def __init__(
        self, shared: Shared, route: Callable[[], None], committer: OffsetCommitter
    ) -> None:
        super().__init__(shared, route, committer)
        client, config = shared.client, shared.config
        self._member = ClassicMember(client, config, committer.group_id, committer.contact)
        self._assignors = GroupAssignors(
            config.partition_assignment_strategy, config.client.client_rack
        )
        self._is_revoked = False
        self._is_joining = False
        self._shared: dict[str, frozenset[int] | None] = {}

    @property
    def _membership(self) -> ClassicMember:
        return self._member

    def _has_work(self) -> bool:
        return self._reason is not None

    # -- metadata ----------------------------------------------------------------------------------

    def _assign(self) -> None:
        """The leader looks whether what it has shared out has changed."""
        cluster = self._client.cluster
        for topic, numbers in self._shared.items():
            found = cluster.partitions_for_topic(topic)
            if self._is_settled and found is not None and found != numbers:
                self.request_join(f"partitions of {topic} changed")

    # -- joining -----------------------------------------------------------------------------------

    async def _advance(self) -> None:
        """Join until it works or is no longer wanted."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        try:
            while self._may_take_part() and self._reason is not None:
                try:
                    await self._join()
                    delays.reset()
                except KafkaError as error:
                    self._on_join_failed(error)
                    await asyncio.sleep(delays.next())
        finally:
            self._is_joining = False
            if self._wants_membership():
                self._commits.resume()
            self._handover.release()

    async def _join(self) -> None:
        """One round: give up, join, take over."""
        await self._prepare()
        if not self._may_take_part():
            return
        reason, self._reason = self._reason or "", None
        subscription = self._subscriptions.subscription
        topics = self._subscriptions.topics
        self._is_settled = False
        self._is_joining = True
        self._commits.suspend()
        try:
            joined = await self._member.join(self._assignors.protocols(topics), reason)
            shares = await self._share_out(joined)
            data = await self._member.sync(joined, shares)
        except KafkaError:
            if self._reason is None:
                self._reason = reason
            raise
        self._is_joining = False
        self._log.info(
            "Member %s of generation %d, %s, assignor %s",
            self._member.member_id,
            joined.generation,
            f"leader of {len(joined.members)}" if joined.members else "no leader",
            joined.protocol,
        )
        is_wanted = self._subscriptions.subscription is subscription
        if not is_wanted and self._assignors.is_cooperative:
            # It is not adopted, so the next join has to claim what we have in fact: nobody may get
            # that before we gave it up.
            data = assignment_of(self._handover.owned)
        assignment = self._assignors.accept(joined.protocol, joined.generation, data)
        if is_wanted:
            await self._adopt(frozenset(assignment.partitions()))
            if joined.is_kept and len(joined.members) == 1:
                self._look_for_growth()

    async def _prepare(self) -> None:
        """Before a join: without membership everything is lost; eager members give up all."""
        if self.generation < 0:
            if self._handover.owned and not self._is_revoked:
                self._assignors.forget()
                await self._handover.lose()
                self._handover.release()
            elif not self._assignors.is_cooperative and not self._is_revoked:
                await self._handover.begin()
                self._is_revoked = True
        elif not self._assignors.is_cooperative and not self._is_revoked:
            owned = self._handover.owned
            if owned:
                await self._handover.revoke(owned)
            self._is_revoked = True

    async def _share_out(self, joined: Joined) -> dict[str, bytes]:
        """The leader's work."""
        was_leader, self._shared = bool(self._shared), {}
        if not joined.members:
            if was_leader and self._subscriptions.pattern is None:
                self._client.set_topics(self._subscriptions.topics)
            return {}
        members = subscriptions_of(joined.members, joined.instances)
        topics = {topic for metadata in members.values() for topic in metadata.subscription}
        if self._subscriptions.pattern is None:
            # Others may want topics that we do not.
            known = self._client.set_topics(topics | self._subscriptions.topics)
            await asyncio.wait([known], timeout=self._config.session_timeout / 2)
        cluster = self._client.cluster
        self._shared = {topic: cluster.partitions_for_topic(topic) for topic in topics}
        if joined.is_kept:
            # A static leader that was restarted: it goes on to watch what it once shared out.
            return {}
        return self._assignors.share_out(joined.protocol, cluster, members)

    def _look_for_growth(self) -> None:
        """A static leader that is alone was away: what came meanwhile is in no assignment."""
        for topic, numbers in self._shared.items():
            mine = {tp.partition for tp in self._handover.owned if tp.topic == topic}
            if numbers is not None and not numbers <= mine:
                self.request_join(f"partitions of {topic} were added while this member was away")

    async def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        self._commits.resume()
        self._is_revoked = False
        if self._assignors.is_cooperative:
            had_others = await self._handover.give_up_all_but(assigned)
            if not self._may_take_part():
                return  # the application has unsubscribed meanwhile
            await self._handover.extend(assigned)
            if had_others:
                self.request_join("partitions were given up for others")
        else:
            await self._handover.take_over(assigned)
        self._settle()

    def _on_join_failed(self, error: KafkaError) -> None:
        """Retry, say, or give up."""
        self._trouble = error
        if isinstance(error, _LOST):
            self._lose_membership(error)
        elif isinstance(error, RebalanceInProgressError):
            self._log.debug("Not joined: %s", error)
        elif not self._tolerate(error):
            raise error

    def _forget(self) -> None:
        super()._forget()
        self._is_revoked = False
        self._assignors.forget()

    # -- heartbeats --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        interval = min(self._config.heartbeat_interval, self._config.max_poll_interval / 2)
        delay = interval
        while True:
            await asyncio.sleep(delay)
            delay = interval
            self._notice_idleness()
            if self.generation < 0 or self._is_joining or self._is_idle:
                continue
            generation = self.generation
            try:
                await self._member.heartbeat()
                delays.reset()
                self._note_success()
            except KafkaError as error:
                if generation == self.generation and not self._is_joining:
                    self._on_heartbeat_failed(error)
                    delay = min(interval, delays.next())

    def _on_heartbeat_failed(self, error: KafkaError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self.request_join("the group is rebalancing")
        elif isinstance(error, _LOST):
            self._lose_membership(error)
        elif not self._tolerate(error):
            self._end_with(error)

    def _lose_membership(self, error: BaseException) -> None:
        if isinstance(error, IllegalGenerationError):
            self._member.forget_generation()
        else:
            self._member.forget_member()
        self._is_settled = False
        self._commits.lose()
        self.request_join(f"the group removed us: {type(error).__name__}")

    def _on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        cause = error.__cause__
        if identity.generation < 0:
            return
        if isinstance(cause, _LOST):
            self._lose_membership(cause)
        elif isinstance(cause, RebalanceInProgressError):
            self.request_join("the group is rebalancing")
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)
