"""Servers that send more than a version has: what is known is read, as other clients do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.testing import FakeCluster
from tests.net.support import Handler, read_frame, serve, split


def padding(address: str, pad: bytes) -> Handler:
    """Before a broker: adds some bytes to each of its responses."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(*split(address))
        forwarding = asyncio.ensure_future(forward(reader, requests))
        try:
            while True:
                frame = await read_frame(answers) + pad
                writer.write(len(frame).to_bytes(4, "big") + frame)
        finally:
            requests.close()
            with contextlib.suppress(OSError):
                await forwarding

    return handle


@contextlib.asynccontextmanager
async def padded(version: str, pad: bytes) -> AsyncIterator[str]:
    async with FakeCluster(as_version=version) as cluster:
        async with serve(padding(cluster.bootstrap_servers, pad)) as address:
            cluster.advertise(0, *split(address))
            yield address


@pytest.mark.parametrize("version", ["0.11", "2.8", "4.3"])
@pytest.mark.parametrize("pad", [b"\0", b"\xff" * 7, b"\x01\x02\x03"], ids=["0", "ff", "tags"])
async def test_every_answer_may_be_longer(version: str, pad: bytes) -> None:
    async with padded(version, pad) as address:
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            for i in range(3):
                await producer.send_and_wait("topic", b"%d" % i)
        async with AIOKafkaConsumer(
            "topic", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            found = [(await consumer.getone()).value for _ in range(3)]
            assert found == [b"0", b"1", b"2"]
            await consumer.commit()
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        assert "topic" in await admin.list_topics()
        await admin.close()


async def test_it_is_logged_once_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka.conn")
    async with padded("4.3", b"\0\0") as address:
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            for i in range(5):
                await producer.send_and_wait("topic", b"%d" % i)
    lines = [r.getMessage() for r in caplog.records if "after the response" in r.getMessage()]
    produced = [line for line in lines if "ProduceRequest" in line]
    assert len(produced) == 1 and "2 bytes after the response" in produced[0]
