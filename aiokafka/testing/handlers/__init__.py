"""The APIs of fake brokers, one module per family.

A handler is registered for its request class::

    @handles(HeartbeatRequest)
    def heartbeat(context, request):
        # plain or async: returns the response, or None for no response

A handler rejects a request by raising RefusedError. `refuse_items` makes the error response from
the declared fields of the request and the response. An API whose error response `refuse_items`
cannot make registers a function that returns the error response::

    @refuses(ProduceRequest)
    def refuse_produce(context, request, errno):
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar, cast

from aiokafka.protocol.schema import NEVER, ZERO_UUID, Field, Request, Response, Struct, fields
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.script import RequestContext

__all__ = [
    "Api",
    "answer_items",
    "handles",
    "known",
    "load",
    "refuse",
    "refuse_items",
    "refuses",
    "require",
]

# Modules are imported on first use, because the creation of the message classes takes time.
_FAMILIES = {
    "clients": (48, 49, 71, 72),
    "cluster": (18, 55, 57, 64, 80, 81, 94),
    "configs": (32, 33, 44, 74),
    "fetch": (1, 2, 23),
    "group_offsets": (8, 9, 28, 47),
    "groups": (15, 16, 42, 69, 89),
    "members": (11, 12, 13, 14, 68),
    "metadata": (3, 10, 60),
    "produce": (0, 22),
    "replicas": (34, 35, 43, 45, 46),
    "security": (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51),
    "share": (76, 77, 78, 79, 90, 91, 92),
    "topics": (19, 20, 21, 37, 75),
    "transactions": (24, 25, 26, 27, 61, 65, 66),
}
_MODULES = {api_key: family for family, keys in _FAMILIES.items() for api_key in keys}

_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R", bound=Response)
_S = TypeVar("_S", bound=Struct)

_NOTHING: dict[str, Any] = {"string": "", "bytes": b"", "uuid": ZERO_UUID, "bool": False}
"""Values of required fields in an error response, by the kind of their type; numbers are 0."""

# Fields that `_derived` sets even if they are optional. Depending on the version, a topic in a
# message has its name, its id, or both.
_TOPIC = ("name", "topic_id")


class Api:
    """One API of the fake brokers.

    Args:
        request_class: The class of the API's requests.
        refusal: Values of fields in an error response, by name. All other fields get the values
            that `refuse_items` chooses: the default of the field, or else the value in the request,
            None, zero or empty. `answer_items` uses `refusal` for refused items, too.
    """

    __slots__ = ("handle", "refusal", "refuse", "request_class")

    def __init__(self, request_class: type[Request[Any]], refusal: Mapping[str, Any]) -> None:
        self.request_class = request_class
        self.refusal = refusal
        #: Handles a request: `(context, request)`.
        self.handle: Callable[[RequestContext, Any], Any]
        #: Returns an error response: `(context, request, errno)`.
        self.refuse: Callable[[RequestContext, Any, int], Response] = refuse_items


_apis: dict[int, Api] = {}
# The APIs whose module is fully imported. `_apis` may contain an API whose module another thread is
# still importing.
_loaded: dict[int, Api] = {}


def handles(
    request_class: type[Request[Any]], *, refusal: Mapping[str, Any] | None = None
) -> Callable[[_F], _F]:
    """Register the function that handles requests of this class.

    Args:
        request_class: The class of the requests.
        refusal: See `Api`.
    """
    api = _apis[request_class.API_KEY] = Api(request_class, refusal or {})

    def register(function: _F) -> _F:
        async def handle(context: RequestContext, request: Any) -> Any:
            try:
                return await function(context, request)
            except RefusedError as refused:
                return api.refuse(context, request, refused.errno)

        # Do not wrap a plain function: the wrapper is a coroutine function, so each request would
        # need a task. The broker catches the RefusedError of plain functions.
        api.handle = handle if inspect.iscoroutinefunction(function) else function
        return function

    return register


def refuses(request_class: type[Request[Any]]) -> Callable[[_F], _F]:
    """Register the function that returns error responses to requests of this class. Register the
    handler first. Needed only if `refuse_items` cannot make the error response.
    """

    def register(function: _F) -> _F:
        _apis[request_class.API_KEY].refuse = function
        return function

    return register


def refuse(context: RequestContext, request: Request[_R], errno: int) -> _R:
    """Return the error response to a request. The function that the API has registered by `refuses`
    creates the response, or else `refuse_items`.
    """
    return cast("_R", _apis[request.API_KEY].refuse(context, request, errno))


def require(errno: int) -> None:
    """Raise RefusedError, unless the error code is 0."""
    if errno:
        raise RefusedError(errno)


def refuse_items(context: RequestContext, request: Request[_R], errno: int) -> _R:
    """Return an error response, made from the declared fields of the request and the response.

    A response with a top-level error code has no items, such as topics. Any other response has an
    item for each item of the request, with the key of the item (such as its name) and the error.
    """
    return cast("_R", _derived(request.RESPONSE, request, errno, _apis[request.API_KEY].refusal))


def answer_items(
    request: Request[_R],
    result: Callable[..., Struct | None],
    items: Iterable[Any] | None = None,
    **values: Any,
) -> _R:
    """Return a response with the result of each item of the request, such as a topic or a group.

    Args:
        request: The request.
        result: Called with each item; if items are in groups, such as partitions in topics, with
            group and item. Returns the item of the response. None stands for an item without an
            error that has only its key, such as a name. If `result` raises RefusedError, the item
            has the key and the error.
        items: Items or groups to handle instead of the items of the request.
        values: Values of top-level fields of the response.
    """
    return cast("_R", _answered(request, request.RESPONSE, request, result, (), items, values))


def _answered(
    request: Request[Any],
    kind: type[_S],
    source: Any,
    result: Callable[..., Struct | None],
    groups: tuple[Any, ...],
    items: Iterable[Any] | None,
    values: Mapping[str, Any],
) -> _S:
    """Return the response of `answer_items`, or, in a recursive call, one group of its items."""
    name, struct = next((spec.name, found) for spec in fields(kind) if (found := _struct(spec)))
    refusal = _apis[request.API_KEY].refusal
    answers: list[Struct] = []
    for item in _items(source) if items is None else items:
        if not _has_code(struct):
            answers.append(_answered(request, struct, item, result, (*groups, item), None, {}))
            continue
        try:
            answer = result(*groups, item) or _derived(struct, item, 0, {})
        except RefusedError as refused:
            message = {}
            if refused.message or "error_message" in refusal:
                message = {"error_message": refused.message or None}
            answer = _derived(struct, item, refused.errno, {**refusal, **message})
        answers.append(answer)
    return _derived(kind, source, 0, {**values, name: answers})


def _derived(kind: type[_S], source: Any, errno: int, values: Mapping[str, Any]) -> _S:
    """Return a response, or an item of a response, such as a topic. Fields that are not in `values`
    are copied from `source`, or have an empty value.

    Args:
        kind: The class of the result.
        source: The request, or the item of the request with the same key; or the key itself.
        errno: The error code.
        values: Values of fields, by name.
    """
    specs = fields(kind)
    keys: dict[str, type[Struct] | None] = {}  # fields of `source`, to copy to the result
    if not isinstance(source, Struct):  # the item is the key itself
        key = next(spec.name for spec in specs if spec.required and spec.name != "error_code")
        values = {**values, key: source}
    elif not isinstance(source, Request):
        keys = {spec.name: _struct(spec) for spec in fields(type(source))}
    given: dict[str, Any] = {}
    for spec in specs:
        name, struct = spec.name, _struct(spec)
        if name in values:
            given[name] = values[name]
        elif name == "error_code":
            given[name] = errno
        elif not spec.required and name not in _TOPIC:
            continue
        elif struct is not None and not _has_code(kind):
            given[name] = [_derived(struct, each, errno, values) for each in _items(source)]
        elif name in keys and keys[name] is struct:
            given[name] = getattr(source, name)
        elif spec.nullable != NEVER:
            given[name] = None
        else:
            given[name] = [] if spec.type.element else _NOTHING.get(spec.type.kind, 0)
    return kind(**given)


def _struct(spec: Field) -> type[Struct] | None:
    """Return the class of the structs in a list field; None for other fields."""
    return None if spec.type.element is None else spec.type.element.struct


def _has_code(kind: type[Struct]) -> bool:
    return any(spec.name == "error_code" for spec in fields(kind))


def _items(source: Any) -> list[Any]:
    """Return the value of the only list field in a request, or in an item of a request."""
    (name,) = (spec.name for spec in fields(type(source)) if spec.type.element)
    items: list[Any] = getattr(source, name)
    return items


def known(api_key: int) -> bool:
    """Return whether the fake brokers have this API."""
    return api_key in _MODULES


def load(api_key: int) -> Api:
    """Return an API. Imports its module on first use."""
    api = _loaded.get(api_key)
    if api is None:
        import_module(f"{__name__}.{_MODULES[api_key]}")
        api = _loaded[api_key] = _apis[api_key]
    return api
