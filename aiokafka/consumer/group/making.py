"""Make the parts of a consumer that has a group, for the protocol that it is configured for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aiokafka._log import SubjectLog
from aiokafka._vitals import Contact
from aiokafka.client import CoordinationType
from aiokafka.consumer.group.group import Group
from aiokafka.consumer.group.membership import GroupLink, Membership
from aiokafka.consumer.group.protocol import GroupParts, GroupProtocol
from aiokafka.consumer.group.reader_view import GroupView
from aiokafka.consumer.position.committed import Identity, OffsetCommitter

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = ["GroupMakings", "prepare_group"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


class GroupMakings(NamedTuple):
    """What is made of a group before there is a Fetcher: positions need the committer."""

    committer: OffsetCommitter
    identify: Callable[[], Identity]
    make_protocol: Callable[[GroupParts], GroupProtocol]

    def make_group(self, shared: Shared, route: Callable[[], None]) -> Group:
        """Make the group. `route` is called when the assignment has changed."""
        return Group(shared, route, self.committer, self.identify, self.make_protocol)

    def make_view(self, shared: Shared, group: Group) -> GroupView:
        """Make what a transactional producer reads of the consumer."""
        return GroupView(shared, group)


def prepare_group(shared: Shared, group_id: str) -> GroupMakings:
    """Make a member for the configured protocol, and the committer of its group."""
    contact = _contact(shared, group_id)
    link = GroupLink(shared.client, shared.config, group_id, contact, shared.meter.coordinated)
    # Only what the configured protocol needs is imported.
    if shared.config.group_protocol == "classic":
        from aiokafka.consumer.group.classic import ClassicProtocol
        from aiokafka.consumer.group.classic_member import KEPT, ClassicMember

        classic = ClassicMember(shared.config, link)
        identify = partial(_identify, classic, shared.subscriptions)
        # OffsetFetch has no field for a member of the classic protocol.
        committer = OffsetCommitter(shared, group_id, contact, Identity, KEPT)
        return GroupMakings(committer, identify, partial(ClassicProtocol, member=classic))
    from aiokafka.consumer.group.kip848 import Kip848Protocol
    from aiokafka.consumer.group.kip848_member import Kip848Member

    member = Kip848Member(shared.config, link)
    identify = partial(_identify, member, shared.subscriptions)
    committer = OffsetCommitter(shared, group_id, contact, identify)
    return GroupMakings(committer, identify, partial(Kip848Protocol, member=member))


def _identify(member: Membership, subscriptions: SubscriptionState) -> Identity:
    """Return who commits now: the member, or no member for partitions that the application has
    chosen itself."""
    return member.identity if subscriptions.is_by_group else Identity()


def _contact(shared: Shared, group_id: str) -> Contact:
    """Return what is known of whether a group's coordinator answers; nothing yet."""
    client, kind = shared.client, CoordinationType.GROUP
    return Contact(
        f"The coordinator of group {group_id}",
        SubjectLog(log, shared.config.subject),
        shared.on_change,
        partial(client.address_of_coordinator, kind, group_id),
        lambda: client.throttled_until(client.known_coordinator(kind, group_id)),
    )
