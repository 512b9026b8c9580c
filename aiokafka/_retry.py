"""Retries: exponential backoff (KIP-144, KIP-580), the retry loop, and the choice of a broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Protocol, TypeVar

from aiokafka._compat import timeout_after_reading, timeout_at
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
)

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = [
    "MOST_PROMPT_ATTEMPTS",
    "Backoff",
    "OutOfTimeError",
    "RetryNodes",
    "is_retriable",
    "until",
    "within",
]

T = TypeVar("T")

MOST_PROMPT_ATTEMPTS = 3
"""So many attempts in a row without a pause, if another leader is known after each: brokers may
name each other."""

# 2 ** 64 * any sane delay is far above any sane maximum; more would only overflow the float.
_MAX_DOUBLINGS = 64


class Backoff:
    """Delays that grow from `initial` to `maximum` seconds, each spread by `jitter` so that
    clients do not march in step."""

    __slots__ = ("_initial", "_jitter", "_maximum", "_multiplier", "failures")

    def __init__(
        self, initial: float, maximum: float, multiplier: float = 2.0, jitter: float = 0.2
    ) -> None:
        self._initial = initial
        self._maximum = max(initial, maximum)
        self._multiplier = multiplier
        self._jitter = jitter
        self.failures = 0

    def next(self) -> float:
        """Count one more failure, and return the seconds to wait before the next attempt."""
        delay = self.peek()
        self.failures += 1
        return delay

    def peek(self) -> float:
        """Return the seconds for the failures counted so far, without counting another."""
        exponent = min(self.failures, _MAX_DOUBLINGS)
        delay = min(self._initial * self._multiplier**exponent, self._maximum)
        return delay * random.uniform(1.0 - self._jitter, 1.0 + self._jitter)

    def reset(self) -> None:
        """Start again from `initial`: the thing worked."""
        self.failures = 0


class OutOfTimeError(Exception):
    """The deadline came first. `failure` is what the last attempt failed with, None without one."""

    def __init__(self, failure: KafkaError | None) -> None:
        super().__init__(str(failure))
        self.failure = failure


def is_retriable(error: KafkaError) -> bool:
    """Say whether the same call may succeed later."""
    return error.retriable


async def until(
    deadline: float,
    attempt: Callable[[], Awaitable[T]],
    pause: Callable[[KafkaError], float],
    passes: Callable[[KafkaError], bool] = is_retriable,
) -> T:
    """Return what `attempt` returns, repeating it while its error is one that `passes`.

    `attempt` itself has to end by `deadline` (loop time), with asyncio.TimeoutError, with a
    KafkaTimeoutError that says more, or because of `within`. `pause` gives the seconds before the
    next attempt. Raises other errors at once, and OutOfTimeError at the deadline.
    """
    loop = asyncio.get_running_loop()
    failure: KafkaError | None = None
    while True:
        try:
            return await attempt()
        except asyncio.TimeoutError:
            raise OutOfTimeError(failure) from failure
        except KafkaError as error:
            if not passes(error):
                # A call inside that had no time left to learn anything knows less than we do.
                knows_nothing = isinstance(error, KafkaTimeoutError) and error.__cause__ is None
                if knows_nothing and failure is not None:
                    raise OutOfTimeError(failure) from failure
                raise
            failure = error
        # Not beyond the deadline: the caller learns of it then, and not after the longest pause.
        await asyncio.sleep(max(0.0, min(pause(failure), deadline - loop.time())))
        if loop.time() >= deadline:
            raise OutOfTimeError(failure) from failure


def within(deadline: float, attempt: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """Return `attempt` with a timer: it raises asyncio.TimeoutError at `deadline` (loop time).

    A response that has arrived by then counts, even where the process stood still meanwhile:

    1. The process is stopped, or its machine is suspended, until after the deadline. The response
       waits in the socket.
    2. The process goes on. In one turn the loop reads the response and calls the timers that are
       due; the task that waits for the response runs in the next turn.
    3. A timer that cancels the task at once would drop the response. This one lets a turn pass
       (before Python 3.11 it does not).
    """

    async def timed() -> T:
        async with timeout_after_reading(deadline):
            return await attempt()

    return timed


# -- Choose brokers for a request that any of them can answer


# Of the time that is left, while there are other brokers to ask, or the only one is to be asked
# twice, as a response may get lost; and the least that is worth it, in seconds: a shorter attempt
# would say "no response" in place of what the others have said.
_PART = 1 / 3
_PART_OF_ONLY = 1 / 2
_LEAST = 0.2
# So long as there are others, in seconds: `start()` may have minutes.
_LONGEST = 10.0


class Nodes(Protocol):
    """The brokers to choose from: an AIOKafkaClient."""

    @property
    def cluster(self) -> ClusterMetadata:
        """The current snapshot of the cluster."""

    def get_random_node(self, avoid: Collection[int] = ()) -> int | None:
        """Return the id of some broker, another than these if there is one."""


class RetryNodes:
    """Asks one broker with each attempt, another than those that failed before.

    Owns: which brokers have failed. Once all have, only the last one is avoided.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._failed: set[int] = set()

    async def ask(self, attempt: Callable[[int], Awaitable[T]], deadline: float) -> T:
        """Return what `attempt` returns for the node id of a broker.

        A broker that keeps silent gets a third of the time until `deadline` (loop time), 0.2 s at
        least and 10 s at most, so that others can be asked, and the last one all of it; the only
        broker gets half of it at first. Raises what `attempt`
        raises, RequestTimedOutError for a silent broker, asyncio.TimeoutError at the deadline, and
        KafkaConnectionError when no broker is known.
        """
        node_id = self._nodes.get_random_node(self._failed)
        if node_id is None:
            raise KafkaConnectionError("no broker is known: bootstrap() first")
        now = asyncio.get_running_loop().time()
        has_others = bool(set(self._nodes.cluster.node_ids) - self._failed - {node_id})
        may_repeat = has_others or not self._failed
        part = max(_LEAST, (deadline - now) * (_PART if has_others else _PART_OF_ONLY))
        part = min(part, _LONGEST) if has_others else part
        has_time = may_repeat and now + part < deadline
        end = now + part if has_time else deadline
        try:
            async with timeout_at(end):
                return await attempt(node_id)
        except asyncio.TimeoutError:
            self._note(node_id)
            if not has_time:
                raise
            text = f"node {node_id}: no response in {end - now:.1f} s"
            raise RequestTimedOutError(text) from None
        except KafkaError as error:
            if error.retriable:
                self._note(node_id)
            raise

    def _note(self, node_id: int) -> None:
        self._failed.add(node_id)
        if self._failed.issuperset(self._nodes.cluster.node_ids):
            # All have failed, so it was not one broker's fault: begin again, with another than the
            # last.
            self._failed = {node_id}
