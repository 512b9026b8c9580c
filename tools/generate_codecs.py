"""Write the codecs of common messages as Python modules, `aiokafka/protocol/_generated/`.

`setup.py` runs this before it builds anything, and `make` after a change of a message. A process
compiles any codec that is missing on its first use, so the generated modules only save time: most
of what a client needs until its first record is written by them and compiled once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":
    # Extensions of an earlier build may lack what the sources have.
    os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"

from aiokafka.protocol import _codegen
from aiokafka.protocol._codegen import Source, make_decoder, make_encoder
from aiokafka.protocol.compiler import GENERATED, generated_versions
from aiokafka.protocol.messages import APIS, request_class
from aiokafka.protocol.schema import EMPTY, Struct

FOLDER = Path(_codegen.__file__).parent / "_generated"
HEAD = '''# mypy: ignore-errors
"""Codecs of common messages, written by `tools/generate_codecs.py`."""

{messages}
from aiokafka.protocol.primitives import Packers, Unpackers, as_bytes, as_list, bad_length
from aiokafka.protocol.primitives import bad_uuid, bad_value, packing, put_long_length, put_uvarint
from aiokafka.protocol.primitives import skip_tags, unsupported
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {{False: 0, True: 1}}
'''

COMPILED = ("commits", "producer")
"""The roles whose codecs Cython compiles: their messages are encoded for each batch of records, or
for each record that an application commits. The codecs of all roles would double the time of the
build."""

# The functions of a generated module: the pattern of the first line, the C signature, and the local
# variables that are C integers. `Writer` in `_codegen` chooses these names. C integers are checked
# as Python's are: no length exceeds 32 bits, so sums do not overflow.
_SIGNATURES = (
    (r"encode_\w+\(o, out\)", "cpdef list {}(object o, bytearray out)", r"n\d+"),
    (r"decode_\w+\(buf, pos\)", "cpdef tuple {}(object buf, Py_ssize_t pos)", r"size|[ne]\d+"),
    (
        r"tags_\w+\(buf, pos, limit, o\)",
        "cpdef Py_ssize_t {}(object buf, Py_ssize_t pos, Py_ssize_t limit, object o) except -1",
        r"size|count|tag|length|previous|[ne]\d+",
    ),
)


def declarations(text: str) -> str:
    """Return the C types of the functions in `text`, a generated module."""
    found = ["cimport cython"]
    for function in re.split(r"^def ", text, flags=re.MULTILINE)[1:]:
        for head, signature, integers in _SIGNATURES:
            if re.match(head, function):
                names = sorted(
                    set(re.findall(rf"\b(?:{integers})\b(?= [-+]?= |, pos = |,\) = )", function))
                )
                typed = ", ".join(f"{name}=Py_ssize_t" for name in names)
                found.append(
                    "\n"
                    + (f"@cython.locals({typed})\n" if names else "")
                    + signature.format(function.partition("(")[0])
                )
    return "\n".join(found) + "\n"


class Module:
    """A generated module under construction."""

    def __init__(self) -> None:
        self._home = ""
        self._classes: set[tuple[str, str]] = set()
        self._constants: dict[str, None] = {}
        self._functions: list[str] = []
        self._deferred: list[Callable[[], Source]] = []

    def constant(self, source: Source, prefix: str, value: object) -> str:
        if isinstance(value, type):
            self._classes.add((value.__module__, value.__name__))
            return value.__name__
        if value is None or value is EMPTY:
            return "None" if value is None else "EMPTY"
        # Encoders compare a tagged field with its default by `is`, so it has to be that object.
        is_shared = isinstance(value, str) or value in (b"", *range(-5, 257))
        text = repr(value) if is_shared else self._attribute(value)
        name = f"default{len(self._constants)}"
        self._constants[f"{name} = {text}"] = None
        return name

    def _attribute(self, default: object) -> str:
        """Return an expression for the default of a field, which is an attribute of its class."""
        for owner in vars(import_module(self._home)).values():
            for name, value in vars(owner).items() if isinstance(owner, type) else ():
                if value is default:
                    self._classes.add((owner.__module__, owner.__name__))
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
                self._constants[f"{known} = Packers({codes!r})"] = None
            elif kind == "unpackers":
                integer, _, behind = codes.partition("_")
                self._constants[f"{known} = Unpackers({integer!r}, {behind!r})"] = None

    def add(self, kind: str, cls: type[Struct], version: int, flexible: bool) -> None:
        """Add an encoder or a decoder."""
        make = make_encoder if kind == "encode" else make_decoder
        self._home = cls.__module__
        with (
            patch.object(Source, "constant", lambda *args: self.constant(*args)),
            patch.object(Source, "define", lambda *args: self.define(*args)),
            patch.object(Source, "defer", lambda *args: self.defer(*args)),
        ):
            make(f"{kind}_{cls.__name__}_v{version}", cls, version, flexible)

    def text(self) -> str:
        names = [name for _, name in self._classes]
        assert len(names) == len(set(names)), "two messages of a role have structs of one name"
        imported: dict[str, list[str]] = {}
        for module, name in sorted(self._classes):
            imported.setdefault(module, []).append(name)
        messages = [
            f"from {module} import ({', '.join(found)})" for module, found in imported.items()
        ]
        constants = "\n".join(self._constants)
        functions = "".join(f"\n\n\n{each.rstrip()}" for each in self._functions)
        return f"{HEAD.format(messages=chr(10).join(messages))}{constants}{functions}\n"


def text_of(role: str) -> str:
    """Return the text of the module of a role."""
    module = Module()
    for api_key, (_, name) in sorted(APIS.items()):
        if GENERATED.get(name) == role:
            request = request_class(api_key)
            for version in generated_versions(name, request):
                flexible = request.FLEXIBLE is not None and version >= request.FLEXIBLE
                module.add("encode", request, version, flexible)
                module.add("decode", request.RESPONSE, version, flexible)
    return module.text()


def texts() -> dict[Path, str]:
    """Return the files with the text that each should have."""
    found = {FOLDER / f"{role}.py": text_of(role) for role in sorted(set(GENERATED.values()))}
    for role in COMPILED:
        found[FOLDER / f"{role}.pxd"] = declarations(found[FOLDER / f"{role}.py"])
    found[FOLDER / "__init__.py"] = '"""Codecs, written by `tools/generate_codecs.py`."""\n'
    return found


def main() -> None:
    """Write the files whose text has changed."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in texts().items():
        if not path.exists() or path.read_text() != text:
            # In one step, for another process may import it.
            written = path.with_suffix(f".{os.getpid()}")
            written.write_text(text)
            written.replace(path)


if __name__ == "__main__":
    main()
