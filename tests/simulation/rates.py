"""How often clients ask: one that has nothing to wait for, and asks again at once, is a fault."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from aiokafka.protocol.messages.fetch import FetchRequest
from tests.simulation.promises import PATIENT

if TYPE_CHECKING:
    from tests.simulation.world import World

# Requests of one client to one broker in a virtual second. Those that programs cause by sending,
# reading, seeking and committing, come as often as they do.
_MOST = 60
_MOST_ASKED_FOR = 400
_ASKED_FOR = (0, 1, 2, 8, 24, 25, 26, 28, 78, 79)
# Fetches by readers that are sent away, who must not come back at once each time.
_MOST_SENT_AWAY = 25
# Pauses grow to a second: so many are left of these some seconds after they began to be refused.
_MOST_IN_THE_END = 7
# ... and so many of these.
_MOST_CALLS_IN_THE_END = 4
_GROWN_S = 2.5
_GROWING = (1, 10)
_FETCH = 1
# Bytes of a fetch that brings one batch. A reader needs one for each record and each marker, but it
# has no reason to ask from where it has asked just before.
_ONE_BATCH = 100


def check_rates(world: World) -> None:
    """No client asks the same thing again and again, and none calls without a pause."""
    _check_requests(world)
    if world.promises(PATIENT):
        _check_calls(world)


def _check_calls(world: World) -> None:
    grown = {
        second
        for begin, end in world.unreachable
        for second in range(math.ceil(begin + _GROWN_S), int(end))
    }
    counts = Counter((line, int(at)) for at, line in world.simulation.network.attempts)
    for (line, second), count in counts.items():
        if second in grown and count > _MOST_CALLS_IN_THE_END:
            text = f"{line.host}:{line.port} was called {count} times in second {second}"
            world.violate("calls too often", text)


def _check_requests(world: World) -> None:
    """No client asks the same thing again and again, whatever it is answered."""
    slowed = {
        (api, second)
        for api, begin, end in world.refusing
        for second in range(int(begin) + 1, int(end))
    }
    grown = {
        (api, second)
        for api, begin, end in world.refusing
        if api in _GROWING
        for second in range(math.ceil(begin + _GROWN_S), int(end))
    }
    away = {
        second for begin, end in world.sending_away for second in range(int(begin) + 1, int(end))
    }
    counts: Counter[tuple[str, int, int, int]] = Counter()
    asked_from: dict[tuple[str, int], list[int]] = {}
    for seen in world.cluster.requests():
        context = seen.context
        if isinstance(seen.request, FetchRequest) and _bytes_wanted(seen.request) <= _ONE_BATCH:
            reader = context.client_id or "", context.node_id
            offsets = [
                one.fetch_offset for topic in seen.request.topics for one in topic.partitions
            ]
            if offsets and asked_from.get(reader) != offsets:
                asked_from[reader] = offsets
                continue
        second = int(context.received_at)
        counts[context.client_id or "", context.api_key, context.node_id, second] += 1
    for (client, api, broker, second), count in counts.items():
        is_asked_for = api in _ASKED_FOR and (api, second) not in slowed
        most = _MOST_ASKED_FOR if is_asked_for else _MOST
        if (api, second) in grown:
            most = _MOST_IN_THE_END
        elif api == _FETCH and second in away:
            most = _MOST_SENT_AWAY
        if count > most:
            text = f"{client} sent {count} requests of API {api} to broker {broker} in second "
            world.violate("asks too often", text + str(second))


def _bytes_wanted(request: FetchRequest) -> int:
    """The bytes that a response may have, or that it may have of one partition."""
    wanted = [one.partition_max_bytes for topic in request.topics for one in topic.partitions]
    return min(request.max_bytes, max(wanted, default=request.max_bytes))
