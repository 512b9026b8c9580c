"""From records to bytes: lines, JSON lines, or a format of the user's."""

from __future__ import annotations

import base64
import json
import json.encoder
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

from aiokafka.cli.lines import as_bytes

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

    Record = ConsumerRecord[Any, Any]

__all__ = ["custom", "json_lines", "plain"]

#: Takes the records of one partition.
Format = Callable[[Sequence["Record"]], bytes]
Column = Callable[[Sequence["Record"]], Iterable[bytes]]

_quoted = json.encoder.encode_basestring


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
    topic = _quoted(records[0].topic) if records else ""
    return "".join([_line(r, topic) for r in records]).encode()


def _line(r: Record, topic: str) -> str:
    # Faster than an encoder, by far: only texts are to be escaped.
    start = f'{{"topic": {topic}, "partition": {r.partition}, "offset": {r.offset}'
    headers = ""
    if r.headers:
        pairs = [[name, _header(data)] for name, data in r.headers]
        headers = f', "headers": {json.dumps(pairs, ensure_ascii=False)}'
    key, value = _field("key", r.key), _field("value", r.value)
    return f'{start}, "timestamp": {r.timestamp}, {key}, {value}{headers}}}\n'


def _field(name: str, data: bytes | None) -> str:
    if data is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {_quoted(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{base64.b64encode(data).decode()}"'


def _header(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def _sizes(found: Iterable[bytes | None]) -> list[bytes]:
    return [b"-1" if data is None else b"%d" % len(data) for data in found]


def _pairs(r: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (data or b"") for name, data in r.headers)


def custom(text: str, null: bytes) -> Format:
    r"""Return the function for a format such as ``%t %p %o: %k=%s\\n``.

    Raises ValueError for an unknown letter.
    """
    # A column each, of many records at once: a call for each cell would take most of the time.
    letters: dict[str, Column] = {
        "s": lambda records: [null if r.value is None else r.value for r in records],
        "S": lambda records: _sizes([r.value for r in records]),
        "k": lambda records: [null if r.key is None else r.key for r in records],
        "K": lambda records: _sizes([r.key for r in records]),
        "t": lambda records: repeat(records[0].topic.encode()),
        "p": lambda records: repeat(b"%d" % records[0].partition),
        "o": lambda records: [b"%d" % r.offset for r in records],
        "T": lambda records: [b"%d" % r.timestamp for r in records],
        "h": lambda records: [_pairs(r) for r in records],
    }
    columns: list[Column] = []
    for piece in re.findall(r"%.?|[^%]+", text, re.DOTALL):
        if piece == "%%" or not piece.startswith("%"):
            columns.append(_constant(b"%" if piece == "%%" else as_bytes(piece)))
        elif piece[1:] in letters:
            columns.append(letters[piece[1:]])
        else:
            raise ValueError(f"format: {piece!r} is unknown; known: %{' %'.join(letters)} %%")

    def write(records: Sequence[Record]) -> bytes:
        if not records:
            return b""
        rows = zip(*[column(records) for column in columns], strict=False)
        return b"".join(chain.from_iterable(islice(rows, len(records))))

    return write


def _constant(data: bytes) -> Column:
    return lambda _: repeat(data)
