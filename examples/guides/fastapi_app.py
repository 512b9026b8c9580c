"""A web service with FastAPI: `uvicorn fastapi_app:app` (pip install fastapi uvicorn)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from order_service import OrderService

from aiokafka.debug import DebugApp
from aiokafka.errors import KafkaError


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the clients with the service, in its event loop, and stop them with it."""
    async with OrderService(os.environ.get("BOOTSTRAP", "localhost:9092")) as service:
        app.state.orders = service
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/kafka", DebugApp())  # /kafka/health/live, /kafka/health/ready, /kafka/metrics


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Fail when the task that reads has ended, of which the clients know nothing."""
    if not app.state.orders.is_well():
        raise HTTPException(503, "orders are not read any more")
    return {"ok": True}


@app.post("/orders/{customer}")
async def place(customer: str, amount: int) -> dict[str, int]:
    try:
        return await app.state.orders.place(customer, amount)
    except KafkaError as error:
        raise HTTPException(503, str(error)) from error


@app.get("/totals")
async def totals() -> dict[str, int]:
    return app.state.orders.totals
