"""The interceptions of a fake cluster, its received requests, and `wait_for`."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout
from aiokafka._typing import Self, later
from aiokafka.protocol.schema import Request, Response
from aiokafka.testing.actions import Action, Answer, check_whole, refuse_class

if TYPE_CHECKING:
    from aiokafka.testing.broker import FakeBroker
    from aiokafka.testing.security import Session
    from aiokafka.testing.services import Services
    from aiokafka.testing.state import ClusterState
    from aiokafka.testing.versions import BrokerProfile
else:
    FakeBroker = later("aiokafka.testing.broker.FakeBroker")
    Session = later("aiokafka.testing.security.Session")
    Services = later("aiokafka.testing.services.Services")
    ClusterState = later("aiokafka.testing.state.ClusterState")
    BrokerProfile = later("aiokafka.testing.versions.BrokerProfile")

_KEPT_REQUESTS = 10_000
_CHECK_INTERVAL = 0.05  # maximum seconds between two checks of a condition in `wait_for`
_KEPT_BYTES = 32 * 1024 * 1024


@dataclass(slots=True, eq=False)  # not frozen: that takes four times as long to create
class RequestContext:
    """A received request: its header, its connection, and the broker that received it."""

    broker: FakeBroker
    """The broker that received the request."""
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    connection_id: int
    """Unique number of the connection."""
    client_host: str
    received_at: float
    """``loop.time()`` when the request was complete."""
    session: Session | None = None
    """State of the connection's SASL login; None without SASL."""
    size: int = 0
    """Size of the request in bytes."""

    @property
    def state(self) -> ClusterState:
        """The cluster state as the broker knows it; stale after :meth:`Faults.mislead`."""
        return self.broker.state

    @property
    def cluster_state(self) -> ClusterState:
        """The actual state of the cluster."""
        return self.broker.services.state

    @property
    def profile(self) -> BrokerProfile:
        """The release that the broker imitates."""
        return self.broker.profile

    @property
    def services(self) -> Services:
        """The coordinators, permissions and other state that all brokers share."""
        return self.broker.services

    def check_topic(self, name: str) -> int:
        """Return the error code for a topic; 0 if the client has the permission that this request
        needs for the topic."""
        return self.broker.services.acls.check_topic(self, name)

    @property
    def node_id(self) -> int:
        """Id of the broker that received the request."""
        return self.broker.node_id


Handler = Callable[[Any, RequestContext], Answer | Awaitable[Answer]]
"""A function, plain or ``async``, which is called with a request and its context."""


@dataclass(slots=True, eq=False)
class SeenRequest:
    """A request that reached a broker."""

    request: Any
    """The decoded request."""
    context: RequestContext

    @property
    def version(self) -> int:
        """API version of the request."""
        return self.context.api_version

    @property
    def broker_id(self) -> int:
        """Id of the broker that received the request."""
        return self.context.broker.node_id


class Interception:
    """A handler that is called before the broker's handler; see :meth:`FakeCluster.intercept`.

    It ends with :meth:`remove`, at the end of a ``with`` block, or after `times` requests.
    """

    def __init__(
        self,
        script: Script,
        api_key: int | None,
        handler: Handler | Answer,
        times: int | None,
        broker: int | None,
    ) -> None:
        #: Number of intercepted requests.
        self.hits = 0
        self._script = script
        self._api_key = api_key
        self._handler = handler
        self._times = times
        self._broker = broker

    def remove(self) -> None:
        """Stop intercepting requests. The actions of held and delayed requests continue."""
        self._script.remove(self)

    async def wait(self, hits: int = 1, timeout_s: float = 10.0) -> None:
        """Wait until `hits` requests have been intercepted in total.

        Raises:
            TimeoutError: fewer requests were intercepted within `timeout_s` seconds.
        """
        await self._script.wait_for(lambda: self.hits >= hits, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    def matches(self, context: RequestContext) -> bool:
        """Return whether the interception applies to a request."""
        if self._times is not None and self.hits >= self._times:
            return False
        if self._broker is not None and self._broker != context.broker.node_id:
            return False
        return self._api_key is None or self._api_key == context.api_key

    def ask(self, request: Any, context: RequestContext) -> Answer | Awaitable[Answer]:
        """Count a request, and return the action or response that was passed to
        :meth:`FakeCluster.intercept`. If a function was passed, return its result, an awaitable if
        the function is ``async``."""
        self.hits += 1
        if self._times is not None and self.hits >= self._times:
            self.remove()
        self._script.wake()
        return self._handler(request, context) if callable(self._handler) else self._handler


@dataclass(slots=True, eq=False)
class AsyncHandlerCall:
    """A call of an ``async`` handler that was not awaited yet. If the handler returns None, the
    next matching interceptions are called."""

    asked: Awaitable[Answer]
    others: Iterator[Interception]
    request: Any
    context: RequestContext

    async def answer(self) -> Answer:
        """Await the handler; return the first result that is not None, of this handler or of the
        next interceptions."""
        answer = await self.asked
        for interception in self.others:
            if answer is not None:
                break
            if interception.matches(self.context):
                found = interception.ask(self.request, self.context)
                answer = await found if inspect.isawaitable(found) else found
        return answer

    def close(self) -> None:
        """Close the handler's coroutine instead of awaiting it."""
        if inspect.iscoroutine(self.asked):
            self.asked.close()


class Script:
    """The interceptions of a cluster, and the received requests."""

    def __init__(self) -> None:
        self._interceptions: list[Interception] = []
        self._seen: deque[SeenRequest] = deque()
        self._seen_bytes = 0
        #: Number of requests by API key, since `forget`.
        self.counts: dict[int, int] = {}
        self._waiters: dict[asyncio.Event, None] = {}  # a dict as an ordered set

    def add(
        self,
        api: type[Request[Any]] | int | None,
        handler: Handler | Answer,
        times: int | None,
        broker: int | None,
    ) -> Interception:
        """Add an interception; the arguments are those of :meth:`FakeCluster.intercept`."""
        _check_handler(handler)
        if times is not None:
            check_whole("times", times, 0)
        interception = Interception(self, key_of(api), handler, times, broker)
        self._interceptions.append(interception)
        return interception

    def remove(self, interception: Interception) -> None:
        """Remove an interception, unless it is removed already."""
        if interception in self._interceptions:
            self._interceptions.remove(interception)

    def ask(self, request: Any, context: RequestContext) -> Answer | AsyncHandlerCall:
        """Call the matching interceptions, oldest first, until one returns something other than
        None; return this result. If an ``async`` handler must be awaited, return an
        AsyncHandlerCall.
        """
        interceptions = iter(tuple(self._interceptions))
        for interception in interceptions:
            if interception.matches(context):
                answer = interception.ask(request, context)
                if inspect.isawaitable(answer):
                    return AsyncHandlerCall(answer, interceptions, request, context)
                if answer is not None:
                    return answer
        return None

    @property
    def idle(self) -> bool:
        """Whether there are no interceptions."""
        return not self._interceptions

    def saw(self, request: Any, context: RequestContext) -> None:
        """Store a received request, and discard the oldest requests above the limits."""
        self._seen.append(SeenRequest(request, context))
        self._seen_bytes += context.size
        self.counts[context.api_key] = self.counts.get(context.api_key, 0) + 1
        while len(self._seen) > _KEPT_REQUESTS or self._seen_bytes > _KEPT_BYTES:
            self._seen_bytes -= self._seen.popleft().context.size
        self.wake()

    def seen(self, api: type[Request[Any]] | int | None) -> list[SeenRequest]:
        """Return the received requests of one API, or of all APIs, oldest first."""
        key = key_of(api)
        return [seen for seen in self._seen if key is None or seen.context.api_key == key]

    def forget(self) -> None:
        """Discard the received requests, and reset the counts."""
        self._seen.clear()
        self._seen_bytes = 0
        self.counts.clear()

    def wake(self) -> None:
        """Make every pending :meth:`wait_for` check its condition again."""
        if self._waiters:
            for event in tuple(self._waiters):
                event.set()

    async def wait_for(self, condition: Callable[[], object], timeout_s: float) -> None:
        event = asyncio.Event()
        self._waiters[event] = None
        try:
            async with timeout(timeout_s):
                while not _is_true(condition):
                    event.clear()
                    await _wait_for_change(event)
        except asyncio.TimeoutError:  # not the builtin TimeoutError on Python 3.10
            raise TimeoutError(f"the condition is not true after {timeout_s} s") from None
        finally:
            self._waiters.pop(event, None)


def _check_handler(handler: object) -> None:
    refuse_class("handler", handler)
    if not (handler is None or callable(handler) or isinstance(handler, Action | Response)):
        raise TypeError(f"handler must be an action, a response or a function, not {handler!r}")


def _is_true(condition: Callable[[], object]) -> bool:
    found = condition()
    if inspect.isawaitable(found):  # an awaitable would always count as true
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError("condition must be a plain function: what it returned has to be awaited")
    return bool(found)


async def _wait_for_change(event: asyncio.Event) -> None:
    """Wait for the event, at most `_CHECK_INTERVAL` seconds: a condition may depend on state whose
    changes do not set the event."""
    handle = asyncio.get_running_loop().call_later(_CHECK_INTERVAL, event.set)
    try:
        await event.wait()
    finally:
        handle.cancel()


def key_of(api: type[Request[Any]] | int | None) -> int | None:
    """Return the API key of a request class; return an API key or None unchanged. Raises TypeError
    for anything else."""
    key = api if api is None or isinstance(api, int) else getattr(api, "API_KEY", "")
    if isinstance(key, str):
        raise TypeError(f"api must be a class such as ProduceRequest, or its API key, not {api!r}")
    return key
