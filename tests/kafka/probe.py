"""Asks a broker who is in its cluster, with bytes of our own: no client is under test here."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA = 3
_NO_CONTROLLER = -1


@dataclass(frozen=True)
class ClusterView:
    """What one broker says: the ids of the brokers it knows, and the controller (-1: none)."""

    brokers: frozenset[int]
    controller: int

    def is_complete(self, nodes: frozenset[int]) -> bool:
        return self.brokers >= nodes and self.controller != _NO_CONTROLLER


def ask(address: tuple[str, int], *, names_controller: bool, timeout: float = 2.0) -> ClusterView:
    """One Metadata request; OSError or ValueError if the broker does not answer it.

    Kafka before 0.10 does not name a controller: there the response counts as complete without.
    """
    version = 1 if names_controller else 0
    client_id = b"probe"
    body = struct.pack(">hhih", _METADATA, version, 1, len(client_id)) + client_id
    body += struct.pack(">i", 0)
    with socket.create_connection(address, timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        if not 0 < size < 1 << 24:
            raise ValueError(f"a response of {size} bytes")
        return _parse(_read(connection, size), names_controller)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
    return data


def _parse(answer: bytes, names_controller: bool) -> ClusterView:
    _correlation, count = struct.unpack_from(">ii", answer)
    at, brokers = 8, set()
    for _ in range(count):
        node, host_size = struct.unpack_from(">ih", answer, at)
        brokers.add(node)
        at += 6 + host_size + 4
        if names_controller:
            (rack_size,) = struct.unpack_from(">h", answer, at)
            at += 2 + max(rack_size, 0)
    controller = struct.unpack_from(">i", answer, at)[0] if names_controller else 0
    return ClusterView(frozenset(brokers), controller)
