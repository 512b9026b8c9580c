"""A fake cluster in a thread, for blocking tests and clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka.testing.cluster import FakeCluster

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ServedCluster"]

T = TypeVar("T")


class ServedCluster:
    """A :class:`FakeCluster` in a thread with its own event loop.

    Args:
        brokers: Number of brokers.
        options: Further arguments of :class:`FakeCluster`.

    Example::

        with ServedCluster(brokers=3) as server:
            server.call(lambda cluster: cluster.create_topic("orders", partitions=6))
            send_orders(server.bootstrap_servers)       # a blocking client
            assert server.call(lambda cluster: len(cluster.log("orders", 0).records())) == 1
    """

    def __init__(self, brokers: int = 1, **options: Any) -> None:
        self._arguments = (brokers, options)
        self._started: concurrent.futures.Future[FakeCluster] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name="kafka", daemon=True)

    def start(self, timeout_s: float = 60) -> None:
        """Start the thread and the brokers; raise their error, or RuntimeError if called again."""
        if self._thread.ident is not None:
            raise RuntimeError("a ServedCluster runs once: make another one")
        self._thread.start()
        self._started.result(timeout_s)

    def stop(self, timeout_s: float = 60) -> None:
        """Stop the brokers and the thread. A second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(timeout_s)

    @property
    def bootstrap_servers(self) -> str:
        """``"host:port"`` of every broker, separated by commas."""
        return self._running().bootstrap_servers

    def call(self, function: Callable[[FakeCluster], T | Awaitable[T]], timeout_s: float = 30) -> T:
        """Call a function with the cluster, in the loop of the brokers, and return its result.

        Args:
            function: A plain function, or a coroutine function.
            timeout_s: Seconds to wait for the result.

        Raises the exception of the function; TimeoutError of `concurrent.futures` after `timeout_s`
        seconds, when the function is cancelled; RuntimeError if the cluster does not run.
        """
        cluster = self._running()

        async def run() -> T:
            result = function(cluster)
            return await result if inspect.isawaitable(result) else result

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if future.done():  # TimeoutError is the function's own exception
                raise
            future.cancel()
            text = f"the function has not ended after {timeout_s:g} s"
            raise concurrent.futures.TimeoutError(text) from None

    def _running(self) -> FakeCluster:
        if not (self._thread.is_alive() and self._started.done()):
            raise RuntimeError("the cluster does not run: use it in a `with` block, or start() it")
        return self._started.result(0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        brokers, options = self._arguments
        async with FakeCluster(brokers, **options) as cluster:
            self._started.set_result(cluster)
            await self._stopping.wait()
