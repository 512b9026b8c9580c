"""Retries: exponential backoff (KIP-144, KIP-580), the retry loop, and the choice of a broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._compat import timeout_after_reading, timeout_at
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
)

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = [
    "MOST_PROMPT_ATTEMPTS",
    "Backoff",
    "OutOfTimeError",
    "RetryNodes",
    "fail_late",
    "is_retriable",
    "until",
    "within",
]

T = TypeVar("T")

MOST_PROMPT_ATTEMPTS = 3
"""Limit of consecutive attempts without backoff when each error response names another leader: two
brokers may name each other again and again."""

# 2 ** 64 exceeds any maximum; larger exponents would overflow the float.
_MAX_DOUBLINGS = 64


class Backoff:
    """Delays that grow from `initial` to `maximum` seconds, each with a random `jitter`, so that
    clients do not retry at the same time."""

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
        """Count a failure; return the seconds until the next attempt."""
        delay = self.peek()
        self.failures += 1
        return delay

    def peek(self) -> float:
        """Return the delay for the failures so far, without counting a new failure."""
        exponent = min(self.failures, _MAX_DOUBLINGS)
        delay = min(self._initial * self._multiplier**exponent, self._maximum)
        return delay * random.uniform(1.0 - self._jitter, 1.0 + self._jitter)

    def reset(self) -> None:
        """Start again from `initial`, after a success."""
        self.failures = 0


class OutOfTimeError(Exception):
    """Raised at the deadline of a retry loop. `failure` is the error of the last failed attempt,
    None if no attempt has failed."""

    def __init__(self, failure: KafkaError | None) -> None:
        super().__init__(str(failure))
        self.failure = failure


def is_retriable(error: KafkaError) -> bool:
    """Return `error.retriable`. The default of the argument `passes` of `until()`."""
    return error.retriable


async def until(
    deadline: float,
    attempt: Callable[[], Awaitable[T]],
    pause: Callable[[KafkaError], float],
    passes: Callable[[KafkaError], bool] = is_retriable,
) -> T:
    """Return the result of `attempt`; retry it until `deadline` (loop time).

    Args:
        attempt: A function that ends at the deadline, with asyncio.TimeoutError or
            KafkaTimeoutError; `within` adds a timer to a function without a time limit.
        pause: Returns the seconds until the next attempt.
        passes: Returns whether to retry after an error. Other errors are raised at once.

    Raises OutOfTimeError at the deadline.
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
                # A KafkaTimeoutError without a cause means that `attempt` had no time to send a
                # request: report the error of the previous attempt instead.
                sent_nothing = isinstance(error, KafkaTimeoutError) and error.__cause__ is None
                if sent_nothing and failure is not None:
                    raise OutOfTimeError(failure) from failure
                raise
            failure = error
        # Sleep at most until the deadline, so that the caller gets the error in time.
        await asyncio.sleep(max(0.0, min(pause(failure), deadline - loop.time())))
        if loop.time() >= deadline:
            raise OutOfTimeError(failure) from failure


def within(deadline: float, attempt: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """Return `attempt` with a timer: it raises asyncio.TimeoutError at `deadline` (loop time).

    A response that arrived before the deadline counts, even if the event loop was blocked:

    1. The process is stopped, or the machine suspended, until after the deadline. The response
       waits in the socket.
    2. The process continues. In one loop iteration the loop reads the response and calls the due
       timers; the task that waits for the response runs in the next iteration.
    3. A timer that cancels the task at once would drop the response. With Python 3.11 and later,
       this timer cancels the task two iterations later, when the task has got the response.
    """

    async def timed() -> T:
        async with timeout_after_reading(deadline):
            return await attempt()

    return timed


def fail_late(future: asyncio.Future[Any]) -> None:
    """Fail `future` with asyncio.TimeoutError unless it is done: a callback for `loop.call_at`.

    Use it in place of `timeout_at` if the caller itself has created the future that it awaits. The
    timer costs a third of `timeout_at`, which has to cancel a task.
    """
    if not future.done():
        future.set_exception(asyncio.TimeoutError())


# -- Choose a broker for a request that any broker can serve


# The fraction of the remaining time for one attempt: `_PART` if there are other brokers,
# `_PART_OF_ONLY` for the first attempt at the only broker, so that there is time for a second
# attempt if the response is lost. `_LEAST` is the minimum in seconds: a shorter attempt would end
# with "no response" in place of a more specific error.
_PART = 1 / 3
_PART_OF_ONLY = 1 / 2
_LEAST = 0.2
# The maximum in seconds if there are other brokers: the deadline of `start()` may be minutes away.
_LONGEST = 10.0


class RetryNodes:
    """Chooses a broker for each attempt of a retry loop, and avoids brokers that failed. After all
    brokers have failed, it avoids only the broker that failed last.
    """

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._failed: set[int] = set()

    async def ask(self, attempt: Callable[[int], Awaitable[T]], deadline: float) -> T:
        """Return the result of `attempt` for the node id of a broker.

        The time of an attempt until `deadline` (loop time):

        - If another broker has not failed yet: a third of the time, between 0.2 s and 10 s.
        - For the last of several brokers: all of the time.
        - For the only broker of a cluster: half of the time for the first attempt, then all.

        Raises the errors of `attempt`; RequestTimedOutError at the end of the attempt's time;
        asyncio.TimeoutError at the deadline; KafkaConnectionError if no broker is known.
        """
        node_id = self._client.get_random_node(self._failed)
        if node_id is None:
            raise KafkaConnectionError("no broker is known: bootstrap() first")
        now = asyncio.get_running_loop().time()
        has_others = bool(set(self._client.cluster.node_ids) - self._failed - {node_id})
        may_repeat = has_others or not self._failed
        part = max(_LEAST, (deadline - now) * (_PART if has_others else _PART_OF_ONLY))
        part = min(part, _LONGEST) if has_others else part
        has_time = may_repeat and now + part < deadline
        end = now + part if has_time else deadline
        try:
            async with timeout_at(end):
                return await attempt(node_id)
        except asyncio.TimeoutError:
            self._add_failed(node_id)
            if not has_time:
                raise
            text = f"node {node_id}: no response in {end - now:.1f} s"
            raise RequestTimedOutError(text) from None
        except KafkaError as error:
            if error.retriable:
                self._add_failed(node_id)
            raise

    def _add_failed(self, node_id: int) -> None:
        self._failed.add(node_id)
        if self._failed.issuperset(self._client.cluster.node_ids):
            # All brokers have failed: from now on, avoid only the last of them.
            self._failed = {node_id}
