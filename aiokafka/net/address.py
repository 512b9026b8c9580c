"""Addresses as text and as sockets use them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

from aiokafka._compat import timeout_at
from aiokafka._tasks import together

__all__ = ["canonical", "format_address", "is_address", "resolve"]

# Characters of a host name; resolvers do not even look up longer ones.
_LONGEST_NAME = 255


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(host: str, port: int) -> bool:
    """Return whether a broker can have this address.

    A broker that is shutting down may be listed with an empty address.
    """
    return 0 < len(host) <= _LONGEST_NAME and host.isprintable() and 0 < port < 65536


async def resolve(host: str, port: int) -> list[str]:
    """Return every address of `host` (KIP-302), in the resolver's order, each once.

    Raises OSError (socket.gaierror) when the name is unknown.
    """
    if _is_ip_address(host):
        return [host]
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(_text_of(info[4]) for info in infos))
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address for this name")
    return addresses


def _text_of(place: tuple[Any, ...]) -> str:
    """Return the address in a socket address; a link-local one is useless without its zone."""
    zone = place[3] if len(place) == 4 else 0
    return f"{place[0]}%{zone}" if zone and "%" not in str(place[0]) else str(place[0])


async def canonical(
    servers: Iterable[tuple[str, int]], deadline: float
) -> tuple[tuple[str, int], ...]:
    """Return the canonical name of every address of every server (KIP-235), each once.

    A name that the resolver does not know, or does not resolve before `deadline` (loop time), stays
    as it is.
    """

    async def names_of(host: str, port: int) -> list[tuple[str, int]]:
        try:
            async with timeout_at(deadline):
                return [(await _name_of(ip, port), port) for ip in await resolve(host, port)]
        except (asyncio.TimeoutError, OSError, UnicodeError):
            return [(host, port)]

    # At once, for one name may take the resolver as long as all the others have.
    found = await together(names_of(*server) for server in servers)
    return tuple(dict.fromkeys(place for places in found for place in places))


async def _name_of(address: str, port: int) -> str:
    flags = socket.NI_NAMEREQD | socket.NI_NUMERICSERV
    name, _ = await asyncio.get_running_loop().getnameinfo((address, port), flags)
    return name


def _is_ip_address(host: str) -> bool:
    """Return whether `host` needs no resolver (which costs a thread)."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False
