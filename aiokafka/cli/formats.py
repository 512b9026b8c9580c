"""The formats of records that `produce` reads and `consume` prints: lines, JSON and others."""

from __future__ import annotations

import base64
import datetime
import json
import json.encoder
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.errors import KafkaError

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

    Record = ConsumerRecord[Any, Any]


# -- Input: split bytes into pieces, and parse each piece

#: Largest size in bytes of a piece of the input (see `Splitter`), so that memory is limited.
LONGEST = 64 * 1024 * 1024

#: The fields that `produce --json` accepts: those that `consume --json` prints.
_FIELDS = (
    *("key", "key_base64", "value", "value_base64", "headers"),
    *("topic", "partition", "offset", "timestamp"),
)
_FIELDS_WITHOUT_BASE64 = {name for name in _FIELDS if not name.endswith("_base64")}
_MOST_PARTITIONS = 1_000_000  # the limit of `aiokafka.record.rows.route_rows`
_MAX_TIMESTAMP = 2**63 - 1
_EPOCH = datetime.datetime(1970, 1, 1)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

Cells = Sequence[bytes | None]
Headers = list[tuple[str, bytes | None]]


NO_KEY_OR_VALUE = "a record needs a key or a value"


class LineColumns(NamedTuple):
    """Records from lines, as columns of equal length."""

    values: Cells
    keys: Cells | None = None
    headers: Headers | None = None
    """The headers of every record."""


class InputError(KafkaError):
    """The input cannot be converted to a record."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # without the class: a user of the shell does not need it


class NewRecord(NamedTuple):
    """A record to send, converted from the input."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers | None = None


Parser = Callable[[bytes], NewRecord]
Reader = Callable[[Sequence[bytes]], LineColumns]


def as_bytes(text: str) -> bytes:
    r"""Return the bytes of a delimiter, which may contain the escapes \n, \r, \t, \0, \\ and \xHH.

    Raises ValueError for a ``\x`` without two hexadecimal digits.
    """
    if re.search(r"(?<!\\)(?:\\\\)*\\x(?![0-9a-fA-F]{2})", text):
        raise ValueError(rf"{text!r}: behind \x there must be two hexadecimal digits")

    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if code.startswith("x"):
            return chr(int(code[1:], 16))
        return _ESCAPES[code].decode() if code in _ESCAPES else code

    if re.search(r"\\x[89a-fA-F]", text):
        return raw(text).decode("unicode_escape").encode("latin-1")
    return raw(re.sub(r"\\(x[0-9a-fA-F]{2}|.)", plain, text))


def raw(text: str) -> bytes:
    """Return the original bytes of a command line argument, which need not be UTF-8."""
    return text.encode(errors="surrogateescape")


class Splitter:
    """Splits blocks of bytes into pieces that end at a delimiter, or at the end of the input.

    If `delimiter` is None, a piece is a line that ends with LF or CRLF.
    """

    def __init__(self, delimiter: bytes | None, limit: int = LONGEST) -> None:
        if delimiter == b"":
            raise ValueError("delimiter: must not be empty")
        self._delimiter = delimiter or b"\n"
        self._splits_lines = delimiter is None
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, block: bytes) -> list[bytes]:
        """Add a block; return the pieces that end in it.

        Raises InputError if a piece has no end within `limit` bytes.
        """
        if len(self._delimiter) > 1 and self._parts:
            # The delimiter may begin in the previous block.
            block, self._parts = b"".join((*self._parts, block)), []
        pieces = block.split(self._delimiter)
        if len(pieces) == 1:
            self._keep(block)
            return []
        pieces[0] = b"".join((*self._parts, pieces[0]))
        self._parts, self._size = [], 0
        self._keep(pieces.pop())
        # The CR of the first piece may be the last byte of the previous block.
        if self._splits_lines and (b"\r" in block or pieces[0].endswith(b"\r")):
            return [piece.removesuffix(b"\r") for piece in pieces]
        return pieces

    def _keep(self, rest: bytes) -> None:
        if rest:
            self._parts.append(rest)
        self._size = sum(map(len, self._parts)) if len(self._parts) < 2 else self._size + len(rest)
        if self._size > self._limit:
            raise InputError(
                f"no delimiter {self._delimiter!r} in {self._size} bytes; is it the right one?"
            )

    def end(self) -> list[bytes]:
        """Return a list with the piece after the last delimiter; an empty list if there is none."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return [rest] if rest else []


def line_reader(
    key_delimiter: bytes | None,
    *,
    key: bytes | None = None,
    headers: Headers | None = None,
    empty_is_null: bool = False,
    warn: Callable[[int], None] | None = None,
) -> Reader:
    """Return a function that converts lines to records.

    With `key_delimiter`, a line is a key and a value. The key of a line without `key_delimiter` is
    `key`; `warn` is called once, with the number (from 1) of the first such line. With
    `empty_is_null`, an empty key or value becomes None. Raises ValueError for an empty
    `key_delimiter`.
    """
    if key_delimiter == b"":
        raise ValueError("key delimiter: must not be empty")

    is_warned = warn is None
    count = 0

    def read(lines: Sequence[bytes]) -> LineColumns:
        nonlocal is_warned, count
        values: Sequence[bytes | None] = lines
        keys: Sequence[bytes | None] | None = None if key is None else [key] * len(lines)
        if key_delimiter is not None:
            parts = [line.partition(key_delimiter) for line in lines]
            separators = [separator for _, separator, _ in parts]
            if b"" in separators:
                if not is_warned:
                    is_warned = True
                    assert warn is not None
                    warn(count + separators.index(b"") + 1)
                keys = [before if separator else key for before, separator, _ in parts]
                values = [after if separator else before for before, separator, after in parts]
            else:
                keys = [before for before, _, _ in parts]
                values = [after for _, _, after in parts]
        count += len(lines)
        if empty_is_null:
            keys = None if keys is None else [each or None for each in keys]
            values = [each or None for each in values]
        return LineColumns(values, keys, headers)

    return read


def json_parser(
    *,
    partition: int | None = None,
    keep_partitions: bool = False,
    keep_timestamps: bool = False,
) -> Parser:
    """Return a function that converts a JSON object, as `consume --json` prints it, to a record.

    `key` and `value` are text, null, or another JSON value, which is sent as JSON text;
    `key_base64` and `value_base64` are bytes. All records go to `partition`, if it is given. The
    partition and timestamp in the input are used only with `keep_partitions` and
    `keep_timestamps`. The function raises InputError for malformed input and for unknown fields.
    """

    keeps_partitions = keep_partitions and partition is None

    def parse(line: bytes) -> NewRecord:
        found = _json_of(line)
        if not isinstance(found, dict):
            raise InputError(f"not a JSON object: {line[:80]!r}")
        try:
            if found.keys() <= _FIELDS_WITHOUT_BASE64:
                value, key = _as_bytes(found.get("value")), _as_bytes(found.get("key"))
            else:
                _check_fields(found)
                value, key = _bytes_of(found, "value"), _bytes_of(found, "key")
            if value is key is None:
                raise ValueError(NO_KEY_OR_VALUE)
            return NewRecord(
                value,
                key,
                _partition(found) if keeps_partitions else partition,
                _timestamp(found) if keep_timestamps else None,
                _headers(found["headers"]) if "headers" in found else None,
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"{error}: {line[:80]!r}") from None

    return parse


_read_json = json.JSONDecoder().raw_decode
_write_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _json_of(line: bytes) -> Any:
    try:
        text = line.decode()
        found, end = _read_json(text)
        if end == len(text):
            return found
    except (ValueError, RecursionError):
        pass
    # The line is malformed, begins or ends with spaces, or has another encoding than UTF-8.
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at column {error.colno}: {line[:80]!r}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}: {line[:80]!r}") from None


def _check_fields(found: dict[str, Any]) -> None:
    for name in found:
        if name not in _FIELDS:
            import difflib  # imported only for this error

            near = difflib.get_close_matches(name, _FIELDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_FIELDS)}"
            raise ValueError(f"unknown field {name!r}; {hint}")
    for name in ("key", "value"):
        if name in found and f"{name}_base64" in found:
            raise ValueError(f"{name} and {name}_base64 exclude each other")


def _partition(found: dict[str, Any]) -> Any:
    value = _number(found, "partition", int)
    if value is not None and not 0 <= value < _MOST_PARTITIONS:
        raise ValueError(f"partition: must be from 0 to {_MOST_PARTITIONS - 1}")
    return value


def _timestamp(found: dict[str, Any]) -> int | None:
    value = _number(found, "timestamp", int | float)
    # Kafka's oldest record format has no timestamps; `consume` prints -1 for these records.
    if value is None or value < 0:
        return None
    if not value <= _MAX_TIMESTAMP:  # also true for NaN
        raise ValueError("timestamp: must be milliseconds since 1970")
    return int(value)


def _bytes_of(found: dict[str, Any], name: str) -> bytes | None:
    coded = found.get(f"{name}_base64")
    if coded is None:
        return _as_bytes(found.get(name))
    return base64.b64decode(coded, validate=True)


def _number(found: dict[str, Any], name: str, kind: Any) -> Any:
    value = found.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        raise TypeError(f"{name}: must be a number or null")
    return value


def _as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return _write_json(value).encode()


def _headers(found: Any) -> Headers | None:
    if not found:
        return None
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise ValueError("headers: must be an object, or a list of pairs")
    headers = [(str(name), _header_value(value)) for name, value in pairs]
    for name, _ in headers:
        name.encode()  # raises ValueError for half of a surrogate pair
    return headers


def _header_value(value: Any) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return _as_bytes(value)


# -- Output: convert records of one partition to bytes

#: A function that converts records of one partition to bytes.
Format = Callable[[Sequence["Record"]], bytes]
Column = Callable[[Sequence["Record"]], Iterable[bytes]]

_quoted = json.encoder.encode_basestring


def plain(delimiter: bytes, key_delimiter: bytes | None, null: bytes) -> Format:
    """Return a `Format`: each value, or key and value, followed by a delimiter. `null` replaces a
    key or value that is None."""

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
    """Return one line with a JSON object for each record. A key or value is text if it is UTF-8,
    otherwise it is base64 in a field such as `key_base64`."""
    topic = _quoted(records[0].topic) if records else ""
    return "".join([_line(r, topic) for r in records]).encode()


def pretty_json(records: Sequence[Record]) -> bytes:
    """Return a JSON object over several lines for each record, with the time as ISO 8601.

    A key or value that contains JSON is part of the object as JSON, not as a string. So `produce
    --json` cannot restore the original text.
    """
    return "".join(
        [json.dumps(_pretty(r), indent=2, ensure_ascii=False) + "\n" for r in records]
    ).encode()


def _pretty(r: Record) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": r.topic, "partition": r.partition, "offset": r.offset}
    found["time"] = iso_time(time_of(r))
    for name, data in (("key", r.key), ("value", r.value)):
        try:
            found[name] = _decoded(data)
        except UnicodeDecodeError:
            found[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if r.headers:
        found["headers"] = [[name, _header(data)] for name, data in r.headers]
    return found


def _decoded(data: bytes | None) -> Any:
    if data is None:
        return None
    text = data.decode()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def time_of(r: Record) -> int:
    """Return the timestamp of a record, in milliseconds since 1970; -1 if it has none, as records
    from brokers before Kafka 0.10."""
    found: Any = r.timestamp
    return -1 if found is None else int(found)


def iso_time(ms: int) -> str | None:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; None for -1 (no time) and for
    times beyond the year 9999."""
    if ms < 0:
        return None
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + "Z"


def _line(r: Record, topic: str) -> str:
    # Formatting a string is much faster than a JSON encoder. Only text needs escapes.
    start = f'{{"topic": {topic}, "partition": {r.partition}, "offset": {r.offset}'
    headers = ""
    if r.headers:
        pairs = [[name, _header(data)] for name, data in r.headers]
        headers = f', "headers": {json.dumps(pairs, ensure_ascii=False)}'
    key, value = _field("key", r.key), _field("value", r.value)
    return f'{start}, "timestamp": {time_of(r)}, {key}, {value}{headers}}}\n'


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
    r"""Return a `Format` from a template such as ``%t %p %o: %k=%s\n``. `null` replaces a key or
    value that is None.

    Raises ValueError for an unknown letter after `%`.
    """
    # Each function converts all records at once: a call for each record and letter would be slow.
    letters: dict[str, Column] = {
        "s": lambda records: [null if r.value is None else r.value for r in records],
        "S": lambda records: _sizes([r.value for r in records]),
        "k": lambda records: [null if r.key is None else r.key for r in records],
        "K": lambda records: _sizes([r.key for r in records]),
        "t": lambda records: repeat(records[0].topic.encode()),
        "p": lambda records: repeat(b"%d" % records[0].partition),
        "o": lambda records: [b"%d" % r.offset for r in records],
        "T": lambda records: [b"%d" % time_of(r) for r in records],
        "I": lambda records: [(iso_time(time_of(r)) or "-").encode() for r in records],
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
