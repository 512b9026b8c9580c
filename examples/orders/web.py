"""The page of the shop: an ASGI application without a framework."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from shop import Shop

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Response = tuple[int, str, bytes]

PAGE = Path(__file__).parent / "page.html"
MEMBER = Path(__file__).parent / "member.py"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class App:
    """Serves the page and what its buttons ask for.

    ================================= ========================
    ``GET /``                         the page
    ``GET /state``                    what it draws, as JSON
    ``GET /history``                  the last minute, four points a second
    ``GET /member.py``                the program of a member
    ``POST /members``                 add a member
    ``DELETE /members``               kill all
    ``DELETE /members/{name}``        kill it
    ``POST /brokers/{number}/stop``   stop a broker
    ``POST /brokers/{number}/start``  start it again
    ``POST /rate/{per_second}``       place so many orders
    ================================= ========================
    """

    def __init__(self, shop: Shop, started: Callable[[], None] = lambda: None) -> None:
        """Serve `shop`, which the server starts and stops; then call `started`."""
        self._shop = shop
        self._started = started

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, kind, body = await self._respond(scope["method"], scope["path"])
            headers = [
                (b"content-type", kind.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"cache-control", b"no-store"),
            ]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._shop:
            self._started()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _respond(self, method: str, path: str) -> Response:
        try:
            match (method, *path.strip("/").split("/")):
                case ("GET", ""):
                    return 200, "text/html; charset=utf-8", PAGE.read_bytes()
                case ("GET", "state"):
                    return 200, JSON, json.dumps(self._shop.state()).encode()
                case ("GET", "history"):
                    return 200, JSON, json.dumps(list(self._shop.history)).encode()
                case ("GET", "member.py"):
                    return 200, TEXT, MEMBER.read_bytes()
                case ("POST", "members"):
                    name = await self._shop.add_member()
                    return 201, JSON, json.dumps({"name": name}).encode()
                case ("DELETE", "members"):
                    await self._shop.kill_members()
                case ("DELETE", "members", name):
                    await self._shop.kill_member(name)
                case ("POST", "brokers", number, "stop"):
                    await self._shop.stop_broker(int(number))
                case ("POST", "brokers", number, "start"):
                    await self._shop.start_broker(int(number))
                case ("POST", "rate", per_second):
                    self._shop.set_rate(int(per_second))
                case _:
                    return 404, TEXT, b"There is nothing here\n"
        except KeyError as error:
            return 404, TEXT, f"There is no {error}\n".encode()
        except ValueError as error:
            return 409, TEXT, f"{error}\n".encode()
        return 204, TEXT, b""
