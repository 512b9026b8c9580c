"""From records to bytes: lines, JSON lines, or a format of the user's."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka.cli.lines import as_bytes

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

    Record = ConsumerRecord[Any, Any]

__all__ = ["custom", "json_lines", "plain"]

Format = Callable[[Sequence["Record"]], bytes]


def plain(delimiter: bytes, key_delimiter: bytes | None, null: bytes) -> Format:
    """Return the function that prints values, or keys and values, each with a delimiter behind."""

    def values(records: Sequence[Record]) -> bytes:
        found = [null if r.value is None else r.value for r in records]
        return delimiter.join(found) + delimiter

    def pairs(records: Sequence[Record]) -> bytes:
        assert key_delimiter is not None
        parts: list[bytes] = []
        for r in records:
            key = null if r.key is None else r.key
            parts += (key, key_delimiter, null if r.value is None else r.value, delimiter)
        return b"".join(parts)

    return values if key_delimiter is None else pairs


def json_lines(records: Sequence[Record]) -> bytes:
    """Return one JSON object a line: text where bytes are UTF-8, else base64 by another name."""
    return "".join([json.dumps(_as_dict(r), ensure_ascii=False) + "\n" for r in records]).encode()


def _as_dict(r: Record) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": r.topic,
        "partition": r.partition,
        "offset": r.offset,
        "timestamp": r.timestamp,
    }
    for name, data in (("key", r.key), ("value", r.value)):
        try:
            found[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            found[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if r.headers:
        found["headers"] = [[name, _header(data)] for name, data in r.headers]
    return found


def _header(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _pairs(r: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (data or b"") for name, data in r.headers)


def custom(text: str, null: bytes) -> Format:
    r"""Return the function for a format such as ``%t %p %o: %k=%s\\n``.

    Raises ValueError for an unknown letter.
    """
    letters: dict[str, Callable[[Record], bytes]] = {
        "s": lambda r: null if r.value is None else r.value,
        "S": lambda r: _size(r.value),
        "k": lambda r: null if r.key is None else r.key,
        "K": lambda r: _size(r.key),
        "t": lambda r: r.topic.encode(),
        "p": lambda r: b"%d" % r.partition,
        "o": lambda r: b"%d" % r.offset,
        "T": lambda r: b"%d" % r.timestamp,
        "h": _pairs,
    }
    parts: list[Callable[[Record], bytes]] = []
    for piece in re.findall(r"%.?|[^%]+", text, re.DOTALL):
        if piece == "%%" or not piece.startswith("%"):
            parts.append(_constant(b"%" if piece == "%%" else as_bytes(piece)))
        elif piece[1:] in letters:
            parts.append(letters[piece[1:]])
        else:
            raise ValueError(f"format: {piece!r} is unknown; known: %{' %'.join(letters)} %%")

    def write(records: Sequence[Record]) -> bytes:
        return b"".join([part(r) for r in records for part in parts])

    return write


def _constant(data: bytes) -> Callable[[Record], bytes]:
    return lambda _: data
