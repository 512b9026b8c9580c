"""What a name in single backticks, and one in a signature, leads to.

`default_role` is ``py:obj``: a name of the API becomes a link. So do an option, which leads to the
configuration page, and an error, which leads to the page of errors. Everything else in backticks
is a value, a file or a name of yours, and stays code. The build is nitpicky: a name below
``aiokafka.`` that does not exist, and a role such as ``:class:`` that leads nowhere, is a warning,
and warnings are errors. Types of Python, and of modules that are not public, are not links.
"""

from __future__ import annotations

import builtins
import collections.abc
import importlib
import re
import sys
import typing
from typing import Any

from docutils import nodes
from option_list import anchors
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from aiokafka import errors

logger = logging.getLogger(__name__)

# Whose methods the names without a class are, page by page.
CLASS_OF_PAGE = {
    "producer": "AIOKafkaProducer",
    "transactions": "AIOKafkaProducer",
    "consumer": "AIOKafkaConsumer",
    "groups": "AIOKafkaConsumer",
    "parallel": "ParallelConsumer",
    "testing": "FakeCluster",
    "simulation": "Simulation",
}
# What variables of that name are in every example.
VARIABLES = {
    "producer": "AIOKafkaProducer",
    "consumer": "AIOKafkaConsumer",
    "admin": "AIOKafkaAdminClient",
    "cluster": "FakeCluster",
}
# Where to read of a module.
PAGE_OF_MODULE = {"aiokafka.errors": "errors"}
# Types in signatures that only type checkers see.
SHORT_TYPES = {
    "Answer",
    "Apis",
    "Dialer",
    "Place",
    "Random",
    "Run",
    "SaslMechanism",
    "Seconds",
    "TlsSource",
}
# Names that begin as ours do: of spans, and of what there was in another version.
ELSEWHERE = {"aiokafka.transaction.outcome", "aiokafka.protocol.types"}
OTHERS = ("opentelemetry.", "pyarrow.", "pyspark.")

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CALL = re.compile(r"\((?:\.\.\.)?\)$")
_PYTHON = vars(builtins).keys() | vars(typing).keys() | vars(collections.abc).keys()

_PYTHON_MANUAL = "https://docs.python.org/3/library/"
_BUILT_IN = {
    **dict.fromkeys(("bool", "float", "int", "object", "type", "property"), "functions"),
    **dict.fromkeys(("bytes", "bytearray", "dict", "frozenset", "list"), "stdtypes"),
    **dict.fromkeys(("memoryview", "set", "str", "tuple"), "stdtypes"),
    **{
        name: "exceptions"
        for name, found in vars(builtins).items()
        if isinstance(found, type) and issubclass(found, BaseException)
    },
}
_ASYNCIO = {
    **dict.fromkeys(("AbstractEventLoop", "Server", "TimerHandle", "Handle"), "eventloop"),
    **dict.fromkeys(("Future",), "future"),
    **dict.fromkeys(("Task", "TaskGroup", "timeout"), "task"),
    **dict.fromkeys(("StreamReader", "StreamWriter"), "stream"),
    **dict.fromkeys(("Transport", "BaseTransport", "Protocol"), "protocol"),
}
_MODULES = {"collections.abc", "datetime", "enum", "logging", "random", "ssl", "typing"}

Place = tuple[str, str]
"""A page, and a name on it."""


def resolve(
    app: Sphinx, env: BuildEnvironment, node: Any, content: nodes.TextElement
) -> nodes.Node | None:
    """Return a link for a name, or plain text; None, which is a warning, if it leads nowhere."""
    if node.get("refdomain") != "py":
        return None
    target, page = node["reftarget"], node["refdoc"]
    if node["reftype"] == "obj":
        return _in_backticks(app, env, node, content)
    where = _error(target) or _module(target)
    where = where or (None if target.islower() else _object(env, target, page))
    if where is not None:
        return _link(app, page, where, content)
    if (address := _python(target)) is not None:
        link = nodes.reference("", "", internal=False, refuri=address)
        link += content
        return link
    return content if _is_known(target) else None


def _python(target: str) -> str | None:
    """Return the address of a name in Python's own manual; None for a name of a private module."""
    module, _, name = target.rpartition(".")
    if not module:
        if target in vars(collections.abc):
            module = "collections.abc"
        elif target in vars(typing):
            module = "typing"
        elif target not in _BUILT_IN:
            return None
        else:
            return f"{_PYTHON_MANUAL}{_BUILT_IN[target]}.html#{target}"
        name = target
    if module == "asyncio":
        page = _ASYNCIO.get(name)
        return f"{_PYTHON_MANUAL}asyncio-{page}.html#asyncio.{name}" if page else None
    if module not in _MODULES:
        return None
    return f"{_PYTHON_MANUAL}{module}.html#{module}.{name}"


def _in_backticks(
    app: Sphinx, env: BuildEnvironment, node: Any, content: nodes.TextElement
) -> nodes.Node:
    target, page = _CALL.sub("", node["reftarget"]), node["refdoc"]
    if not _NAME.fullmatch(target):
        return content
    where = _option(target, page) or _error(target) or _object(env, target, page)
    if where is not None:
        return _link(app, page, where, content)
    if target.startswith("aiokafka.") and not (target in ELSEWHERE or _is_importable(target)):
        logger.warning("there is no %r", target, location=node, type="ref", subtype="obj")
    return content


def _link(app: Sphinx, page: str, where: Place, content: nodes.TextElement) -> nodes.Node:
    document, name = where
    uri = f"{app.builder.get_relative_uri(page, document)}{'#' if name else ''}{name}"
    if page == document:
        uri = f"#{name}"
    link = nodes.reference("", "", internal=True, refuri=uri)
    link += content
    return link


def _option(target: str, page: str) -> Place | None:
    found = anchors().get(target, [])
    if len(found) > 1:  # of a producer and of a consumer, or of token providers
        wanted = page if page in {"oauth", "producer", "consumer"} else ""
        found = [name for name in found if name.startswith(wanted)] or found
        if page != "oauth":
            found = [name for name in found if not name.startswith("oauth")] or found
    return ("configuration", found[0]) if found else None


def _error(target: str) -> Place | None:
    name = target.removeprefix("aiokafka.").removeprefix("errors.")
    if name not in errors.__all__ or not isinstance(getattr(errors, name), type):
        return None
    # The base class of all broker errors has no row in the tables.
    is_base = name == errors.BrokerResponseError.__name__
    return ("errors", f"aiokafka.errors.{name}" if is_base else error_anchor(name))


def error_anchor(name: str) -> str:
    """Return the part of the address of the page of errors that leads to a class."""
    found = getattr(errors, name)
    return f"error-{getattr(found, '__name__', name).lower()}"


def _module(target: str) -> Place | None:
    return (PAGE_OF_MODULE[target], "") if target in PAGE_OF_MODULE else None


def _object(env: BuildEnvironment, target: str, page: str) -> Place | None:
    objects = env.domains["py"].objects  # type: ignore[attr-defined]
    first, _, rest = target.partition(".")
    if first in VARIABLES and rest:
        target = f"{VARIABLES[first]}.{rest}"
    elif not rest and target.islower():
        if page not in CLASS_OF_PAGE:
            return None  # a word such as `send`, of several classes
        target = f"{CLASS_OF_PAGE[page]}.{target}"
    found = [full for full in objects if full == target or full.endswith(f".{target}")]
    if not found:
        return None
    entry = objects[min(found, key=len)]
    return entry.docname, entry.node_id


def _is_known(target: str) -> bool:
    """Say whether a name in a signature exists, though the manual has no entry for it."""
    first = target.partition(".")[0]
    if first in _PYTHON or target in SHORT_TYPES or target.startswith(OTHERS):
        return True
    if first.removeprefix("_") in sys.stdlib_module_names:
        return True
    return _is_importable(target) if first == "aiokafka" else _is_ours(target)


def _is_ours(target: str) -> bool:
    """Say whether a module of the library has a name: annotations have them without the module."""
    modules = [found for name, found in [*sys.modules.items()] if name.startswith("aiokafka.")]
    return target.isidentifier() and any(target in vars(module) for module in modules)


def _is_importable(target: str) -> bool:
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return _has(found, parts[length:])
    return False


def _has(found: Any, names: list[str]) -> bool:
    for name in names:
        fields = getattr(found, "__annotations__", {})
        if not hasattr(found, name):
            return name in fields
        found = getattr(found, name)
    return True


_written: dict[str, list[str]] = {}


def note_docstring(
    app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Note the docstring of an attribute before napoleon reads it."""
    _written[name] = [*lines]


def restore_docstring(
    app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Undo what napoleon does to attributes: it takes what is before a colon for their type."""
    written = _written.pop(name)
    if what in {"attribute", "data", "property"}:
        lines[:] = written


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("missing-reference", resolve)
    # Napoleon has 500.
    app.connect("autodoc-process-docstring", note_docstring, priority=400)
    app.connect("autodoc-process-docstring", restore_docstring, priority=600)
    return {"parallel_read_safe": True}
