"""How late the event loop is."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiokafka.debug import DebugApp, LoopLag
from aiokafka.metrics._clients import clients


async def test_code_that_blocks_is_seen() -> None:
    with LoopLag(interval_ms=5) as lag:
        assert lag in clients()
        while lag.metrics().value("lag").count < 3:
            await asyncio.sleep(0.005)
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        while lag.metrics().value("lag").max < 90:
            await asyncio.sleep(0.005)
    assert lag not in clients()
    seen = lag.metrics().value("lag").count
    await asyncio.sleep(0.02)
    assert lag.metrics().value("lag").count == seen


async def test_it_is_among_the_metrics_and_is_no_client() -> None:
    async def get(path: str) -> tuple[int, bytes]:
        sent = []

        async def send(message: object) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path}
        await app(scope, receive, send)  # type: ignore[arg-type]
        start, body = sent
        return start["status"], body["body"]  # type: ignore[index]

    async def receive() -> dict[str, str]:
        return {"type": "http.request"}

    app = DebugApp()
    with LoopLag():
        status, text = await get("/metrics")
        assert status == 200 and b"kafka_event_loop_lag_seconds_count 0.0" in text
        assert (await get("/debug"))[0] == (await get("/health/ready"))[0] == 200


async def test_wrong_intervals() -> None:
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="interval_ms"):
            LoopLag(interval_ms=wrong)
