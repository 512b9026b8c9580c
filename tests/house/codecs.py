"""Write the codecs that come with the package, `aiokafka.protocol._ahead`.

`python -m tests.house.codecs` writes them, from the messages and from what writes any codec.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aiokafka.protocol import _source
from aiokafka.protocol._decoder import make_decoder
from aiokafka.protocol._encoder import make_encoder
from aiokafka.protocol._source import AHEAD, Source
from aiokafka.protocol.messages import APIS, request_class
from aiokafka.protocol.schema import EMPTY, Struct

FOLDER = Path(_source.__file__).parent / "_ahead"
HEAD = '''# mypy: ignore-errors
"""Codecs of the newest version. Written by `python -m tests.house.codecs`."""

from aiokafka.protocol._decoder import _bad_length as bad_length
from aiokafka.protocol._decoder import _bad_value as bad_value
from aiokafka.protocol._decoder import _Unpackers
from aiokafka.protocol._encoder import _as_bytes as as_bytes
from aiokafka.protocol._encoder import _as_list as as_list
from aiokafka.protocol._encoder import _as_uuid as as_uuid
from aiokafka.protocol._encoder import _Packers
from aiokafka.protocol._encoder import _put_long_length as put_long_length
from aiokafka.protocol._encoder import _unsupported as unsupported
from aiokafka.protocol._source import packing
from aiokafka.protocol.messages.{module} import {classes}
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {{False: 0, True: 1}}
'''


class Module:
    """One of the modules while it is written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._classes: set[str] = set()
        self._constants: dict[str, None] = {}
        self._functions: list[str] = []
        self._deferred: list[Callable[[], Source]] = []

    def constant(self, source: Source, prefix: str, value: object) -> str:
        if isinstance(value, type):
            self._classes.add(value.__name__)
            return value.__name__
        if value is None or value is EMPTY:
            return "None" if value is None else "EMPTY"
        text = self._attribute(value) if isinstance(value, Struct) else repr(value)
        name = f"default{len(self._constants)}"
        self._constants[f"{name} = {text}"] = None
        return name

    def _attribute(self, default: Struct) -> str:
        """Return where the default of a field is: it is the attribute of its class."""
        module = import_module(f"aiokafka.protocol.messages.{self.name}")
        for owner in vars(module).values():
            for name, value in vars(owner).items() if isinstance(owner, type) else ():
                if value is default:
                    self._classes.add(owner.__name__)
                    return f"{owner.__name__}.{name}"
        raise AssertionError(default)

    def defer(self, source: Source, prefix: str, write: Callable[[str], Source]) -> str:
        name = f"{prefix}_{len(self._functions)}_{len(self._deferred)}"
        self._deferred.append(lambda: write(name))
        return name

    def define(self, source: Source, name: str) -> None:
        self._functions.append(source.text())
        while self._deferred:
            self._functions.append(self._deferred.pop()().text())
        for known in source.scope:
            kind, _, codes = known.partition("_")
            if kind in ("pack", "unpack"):
                method = "pack" if kind == "pack" else "unpack_from"
                self._constants[f"{known} = packing({codes!r}).{method}"] = None
            elif kind == "packers":
                self._constants[f"{known} = _Packers({codes!r})"] = None
            elif kind == "unpackers":
                integer, _, behind = codes.partition("_")
                self._constants[f"{known} = _Unpackers({integer!r}, {behind!r})"] = None

    def add(self, make: Callable[..., Any], *what: Any) -> None:
        """Add a codec."""
        with (
            patch.object(Source, "constant", lambda *args: self.constant(*args)),
            patch.object(Source, "define", lambda *args: self.define(*args)),
            patch.object(Source, "defer", lambda *args: self.defer(*args)),
            patch.object(_source, "AHEAD", frozenset()),
        ):
            make(*what)

    def text(self) -> str:
        names = f"({', '.join(sorted(self._classes))})"
        constants = "\n".join(self._constants)
        head = HEAD.format(module=self.name, classes=names)
        functions = "".join(f"\n\n\n{each.rstrip()}" for each in self._functions)
        return f"{head}{constants}{functions}\n"


def text_of(name: str) -> str:
    """Return the text of one module."""
    module = Module(name)
    for api_key, (home, _) in sorted(APIS.items()):
        if home == name:
            request = request_class(api_key)
            newest = request.VERSIONS[1]
            flexible = request.FLEXIBLE is not None and newest >= request.FLEXIBLE
            module.add(make_encoder, request, newest, flexible)
            module.add(make_decoder, request.RESPONSE, newest, flexible)
    return module.text()


def texts() -> dict[Path, str]:
    """Return each module with its text, as it should be."""
    return {FOLDER / f"{name}.py": text_of(name) for name in sorted(AHEAD)}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
