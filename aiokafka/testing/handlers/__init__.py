"""The APIs of fake brokers, one module per family, as in `aiokafka.protocol.messages`.

A handler is registered for its request class::

    @handles(HeartbeatRequest)
    def heartbeat(context, request):
        # plain or async: returns the response, or None for no response

    @refuses(HeartbeatRequest)
    def refuse_heartbeat(context, request, errno):
        # returns a response with the error for everything in the request
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from aiokafka.protocol.schema import Request, Response
from aiokafka.testing.script import RequestContext

__all__ = ["Api", "handles", "known", "load", "refuses"]

# Modules are imported on first use, because messages cost time to declare.
_FAMILIES = {
    "acls": (29, 30, 31),
    "classic_group": (11, 12, 13, 14),
    "cluster": (55, 57, 64, 80, 81),
    "configs": (32, 33, 44, 74),
    "consumer_group": (68, 69),
    "delegation_tokens": (38, 39, 40, 41),
    "fetch": (1,),
    "group_offsets": (8, 9, 28, 47),
    "groups": (15, 16, 42),
    "handshake": (17, 18, 36),
    "list_offsets": (2, 23),
    "metadata": (3, 10, 60),
    "produce": (0, 22),
    "quotas": (48, 49),
    "replicas": (34, 35, 43, 45, 46),
    "scram": (50, 51),
    "share_groups": (77, 89, 90, 91, 92),
    "telemetry": (71, 72),
    "topics": (19, 20, 21, 37, 75),
    "transactions": (24, 25, 26, 27, 61, 65, 66),
}
_MODULES = {api_key: family for family, keys in _FAMILIES.items() for api_key in keys}

_F = TypeVar("_F", bound=Callable[..., Any])


class Api:
    """One API of the fake brokers."""

    __slots__ = ("handle", "refuse", "request_class")

    def __init__(self, request_class: type[Request[Any]]) -> None:
        self.request_class = request_class
        #: Carries out a request: `(context, request)`.
        self.handle: Callable[[RequestContext, Any], Any]
        #: Makes the response with an error: `(context, request, errno)`.
        self.refuse: Callable[[RequestContext, Any, int], Response]


_apis: dict[int, Api] = {}


def handles(request_class: type[Request[Any]]) -> Callable[[_F], _F]:
    """Register the function that carries out requests of this class."""

    def register(function: _F) -> _F:
        _apis.setdefault(request_class.API_KEY, Api(request_class)).handle = function
        return function

    return register


def refuses(request_class: type[Request[Any]]) -> Callable[[_F], _F]:
    """Register the function that makes responses with an error to requests of this class."""

    def register(function: _F) -> _F:
        _apis.setdefault(request_class.API_KEY, Api(request_class)).refuse = function
        return function

    return register


def known(api_key: int) -> bool:
    """Return whether the fake brokers have this API."""
    return api_key in _MODULES


def load(api_key: int) -> Api:
    """Return an API."""
    api = _apis.get(api_key)
    if api is None:
        import_module(f"{__name__}.{_MODULES[api_key]}")
        api = _apis[api_key]
    return api
