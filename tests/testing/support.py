"""A client that knows only frames and the codec, to ask fake and real brokers the same."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, TypeVar

from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from aiokafka.protocol.schema import Request, Response
from aiokafka.record.batch import RecordBatchBuilder

R = TypeVar("R", bound=Response)


class RawClient:
    """One connection; one request at a time."""

    def __init__(self, address: str, client_id: str | None = "raw") -> None:
        self._address = address
        self._client_id = client_id
        self._correlation = 0

    async def __aenter__(self) -> RawClient:
        host, _, port = self._address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    def send(self, request: Request[R], version: int) -> None:
        self._correlation += 1
        cls = type(request)
        flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
        header = struct.pack(">hhi", cls.API_KEY, version, self._correlation)
        if self._client_id is None:
            header += b"\xff\xff"
        else:
            header += struct.pack(">h", len(self._client_id)) + self._client_id.encode()
        header += b"\x00" if flexible else b""
        body = codec(cls, version).encode_bytes(request)
        self.writer.write(struct.pack(">i", len(header) + len(body)) + header + body)

    async def receive_frame(self) -> bytes:
        """The next answer, correlation id first; b"" when the connection is closed."""
        try:
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def call(self, request: Request[R], version: int) -> R:
        """Send, and decode the response. ConnectionError if there is none."""
        self.send(request, version)
        frame = await self.receive_frame()
        if not frame:
            raise ConnectionResetError("closed without a response")
        cls = type(request)
        assert int.from_bytes(frame[:4], "big") == self._correlation
        flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE and cls.API_KEY != 18
        return codec(cls.RESPONSE, version).decode(frame, 5 if flexible else 4)  # type: ignore


def batch(
    *values: bytes,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: int = 0,
    timestamp: int = 1_700_000_000_000,
    key: bytes | None = None,
) -> bytes:
    """A record batch of these values."""
    builder = RecordBatchBuilder(compression=compression, level=None, size_limit=1 << 30)
    for i, value in enumerate(values):
        builder.append(timestamp + i, key, value, [])
    return bytes(
        builder.build(
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def produce_request(
    topic: str,
    records: bytes,
    *,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


async def produce(
    client: RawClient, topic: str, records: bytes, *, version: int = 9, **options: Any
) -> PartitionProduceResponse:
    """Send one batch to one partition, and give that partition's answer."""
    response = await client.call(produce_request(topic, records, **options), version)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topic: str | bytes,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
    rack_id: str = "",
) -> FetchRequest:
    wanted = FetchTopic(
        partitions=[
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
                partition_max_bytes=partition_max_bytes,
            )
        ]
    )
    if isinstance(topic, bytes):
        wanted.topic_id = topic
    else:
        wanted.topic = topic
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[wanted],
        rack_id=rack_id,
    )
