"""The page of the orders demo, by its ASGI interface: nothing is lost while members are killed and
brokers stopped."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from aiokafka._compat import timeout
from tests.examples.scripts import EXAMPLES, end_of, start_script

FOLDER = EXAMPLES / "orders"


class Browser:
    """What asks the application, as a page does."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, method: str, path: str, status: int = 204) -> httpx.Response:
        response = await self._client.request(method, path)
        assert response.status_code == status, response.text
        return response

    async def state(self) -> dict[str, Any]:
        found = (await self.ask("GET", "/state", 200)).json()
        assert (found["lost"], found["doubled"], found["refused"]) == (0, 0, 0)
        return found

    async def see(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Look again and again, as the page does, until the condition holds."""
        async with timeout(40):
            while not condition(state := await self.state()):
                await asyncio.sleep(0.05)
        return state


@pytest.fixture
async def browser(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Browser]:
    """Run the application, as a server does."""
    monkeypatch.syspath_prepend(str(FOLDER))
    web, shop = importlib.import_module("web"), importlib.import_module("shop")
    app = web.App(shop.Shop(session_timeout_s=1, members=2, rate=200))
    asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan"}, asked.get, said.put))
    try:
        await asked.put({"type": "lifespan.startup"})
        assert await said.get() == {"type": "lifespan.startup.complete"}
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://demo") as client:
            yield Browser(client)
        await asked.put({"type": "lifespan.shutdown"})
        await life
        assert await said.get() == {"type": "lifespan.shutdown.complete"}
    finally:
        life.cancel()
        await asyncio.wait([life])
        for name in ("web", "shop"):
            sys.modules.pop(name, None)


def owners(state: dict[str, Any]) -> set[str | None]:
    return {row["owner"] for row in state["partitions"]}


async def test_nothing_is_lost(browser: Browser) -> None:
    await browser.see(lambda now: now["billed"] > 20 and owners(now) == {"billing-1", "billing-2"})
    await browser.ask("DELETE", "/members/billing-1")
    await browser.ask("POST", "/brokers/0/stop")
    state = await browser.see(lambda now: owners(now) == {"billing-2"})
    assert [broker["is_running"] for broker in state["brokers"]] == [False, True, True]
    assert not any(row["leader"] == 0 for row in state["partitions"])
    assert (await browser.ask("POST", "/members", 201)).json() == {"name": "billing-3"}
    await browser.ask("POST", "/brokers/0/start")
    state = await browser.see(lambda now: owners(now) == {"billing-2", "billing-3"})
    assert state["brokers"][0]["leads"]
    assert [member["name"] for member in state["members"]] == ["billing-2", "billing-3"]
    await browser.ask("POST", "/rate/0")
    state = await browser.see(
        lambda now: now["billed"] == now["placed"] and not now["on_their_way"]
    )
    assert state["placed"] > 20
    assert any("billing-1 was killed" in event["text"] for event in state["events"])
    history = (await browser.ask("GET", "/history", 200)).json()
    assert history[-1]["billed"] > history[0]["billed"]
    await browser.ask("DELETE", "/members")
    await browser.see(lambda now: not any(each["is_running"] for each in now["members"]))


async def test_all_brokers_may_be_stopped(browser: Browser) -> None:
    await browser.see(lambda now: now["billed"] > 20)
    for number in range(3):
        await browser.ask("POST", f"/brokers/{number}/stop")
    await browser.see(lambda now: now["on_their_way"] > 20)
    await browser.ask("POST", "/brokers/1/start")
    await browser.ask("POST", "/rate/0")
    await browser.see(lambda now: now["billed"] == now["placed"] and not now["on_their_way"])


async def test_what_is_not_there_is_refused(browser: Browser) -> None:
    page = (await browser.ask("GET", "/", 200)).text
    assert "http" not in re.sub(r"www\.w3\.org", "", page), "the page needs nothing else"
    assert "TransactionalSession" in (await browser.ask("GET", "/member.py", 200)).text
    for method, path in (
        ("GET", "/favicon.ico"),
        ("POST", "/brokers/7/stop"),
        ("DELETE", "/members/billing-9"),
    ):
        await browser.ask(method, path, 404)
    await browser.ask("POST", "/rate/many", 409)
    for _ in range(4):
        await browser.ask("POST", "/members", 201)
    refused = await browser.ask("POST", "/members", 409)
    assert "one for each partition" in refused.text


async def test_without_a_server_one_line_says_what_to_install() -> None:
    block = "import runpy, sys; sys.modules['uvicorn'] = None; sys.argv = ['orders']; "
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{block}runpy.run_path({str(FOLDER)!r}, run_name='__main__')"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert await end_of(process) == ("", "orders: the page needs a server: pip install uvicorn\n")
    assert process.returncode == 1


async def test_help() -> None:
    process = await start_script("orders", "--help")
    output, errors = await end_of(process)
    assert "--port" in output and not errors
