"""Dialogues of static members of the next-generation protocol (KIP-848); see `scenarios`."""

from __future__ import annotations

from .group_scenarios import NextMember, new_group
from .scenarios import Seen, Side, scenario

ME = {"instance_id": "me"}


@scenario
async def a_stranger_with_an_instance_id(side: Side) -> Seen:
    """As a member that was removed, and has a successor under its instance id."""
    group, client, topic = await new_group(side), side.client, await side.topic(1)
    former, successor = NextMember(side, client, group), NextMember(side, client, group)
    epoch = (await former.join(topic, **ME))[1]
    seen: Seen = [(await former.beat(-1, **ME))[0]]
    seen.append((await former.beat(epoch, **ME))[0])
    seen.append((await successor.join(topic, **ME))[0])
    seen.append((await former.beat(epoch, **ME))[0])
    seen.append((await former.beat(epoch))[0])
    seen.append((await former.beat(epoch, instance_id="other"))[0])
    seen.append((await former.join(topic, **ME))[0])
    seen += [(await former.beat(leaving, **ME))[0] for leaving in (-1, -2)]
    seen.append((await former.beat(-1))[0])
    return seen
