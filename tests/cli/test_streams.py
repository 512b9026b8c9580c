"""The pieces of produce and consume: delimiters, formats, places, rates."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiokafka.cli import formats, streams
from aiokafka.cli.arguments import Place, numbers, place
from aiokafka.cli.formats import InputError, Splitter, as_bytes, json_parser, line_reader
from aiokafka.cli.streams import Limit, Writer, read_blocks
from aiokafka.structs import ConsumerRecord
from aiokafka.testing.simulation import Simulation, simulate


def record(value: bytes | None, key: bytes | None = None, headers: Any = ()) -> Any:
    return ConsumerRecord("t", 1, 7, 1000, 0, key, value, None, 0, 0, headers)


@pytest.mark.parametrize("delimiter", [b"\n", b"--", b"aab"])
def test_pieces_do_not_depend_on_blocks(delimiter: bytes) -> None:
    text = delimiter.join([b"one", b"", b"a", b"-two-", b"three"])
    for size in range(1, len(text) + 1):
        splitter = Splitter(delimiter)
        found: list[bytes] = []
        for start in range(0, len(text), size):
            found += splitter.feed(text[start : start + size])
        assert [*found, *splitter.end()] == text.split(delimiter)


def test_lines_end_with_lf_or_crlf_whatever_the_blocks() -> None:
    text = b"one\r\ntwo\n\r\n\rthree\r\r\nfour\r"
    for size in range(1, len(text) + 1):
        splitter = Splitter(None)
        found: list[bytes] = []
        for start in range(0, len(text), size):
            found += splitter.feed(text[start : start + size])
        assert [*found, *splitter.end()] == [b"one", b"two", b"", b"\rthree\r", b"four\r"]
    assert Splitter(b"\n").feed(b"one\r\n") == [b"one\r"]


def test_a_delimiter_at_the_end_makes_no_piece_of_its_own() -> None:
    splitter = Splitter(b"\n")
    assert splitter.feed(b"a\nb\n") == [b"a", b"b"]
    assert splitter.end() == []


def test_input_without_a_delimiter_is_refused_before_memory_is_full() -> None:
    splitter = Splitter(b"\n", limit=1000)
    with pytest.raises(InputError, match="no delimiter"):
        for _ in range(1001):
            splitter.feed(b"x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\\n", b"\n"), ("\\t|", b"\t|"), ("\\x01", b"\x01"), ("\\xff", b"\xff"), ("é", "é".encode())],
)
def test_delimiters_may_be_escaped(text: str, expected: bytes) -> None:
    assert as_bytes(text) == expected


def test_delimiters_that_cannot_be() -> None:
    for text in ("\\x", "a\\x1", "\\\\\\xg0"):
        with pytest.raises(ValueError, match="two hexadecimal digits"):
            as_bytes(text)
    assert as_bytes("\\\\x") == b"\\x"
    with pytest.raises(ValueError, match="key delimiter: must not be empty"):
        line_reader(b"")


def test_a_line_has_a_key_if_there_is_a_delimiter() -> None:
    lines = [b"k:v:w", b"v", b"k:", b":"]
    read = line_reader(b":")
    assert read(lines)[:2] == ([b"v:w", b"v", b"", b""], [b"k", None, b"k", b""])
    read = line_reader(b":", key=b"fixed", empty_is_null=True)
    assert read(lines)[:2] == ([b"v:w", b"v", None, None], [b"k", b"fixed", b"k", None])
    assert line_reader(None)(lines) == (lines, None, None)


@pytest.mark.parametrize(
    ("value", "key", "headers"),
    [
        (b"v", b"k", [("a", b"1"), ("a", None)]),
        (None, b"\xff\x00", [("b", b"\xff")]),
        (b"", None, []),
        (b"\xfe", b"", []),
    ],
)
def test_json_lines_lose_nothing(value: Any, key: Any, headers: Any) -> None:
    line = formats.json_lines([record(value, key, headers)])
    parse = json_parser(keep_partitions=True, keep_timestamps=True)
    assert parse(line) == (value, key, 1, 1000, headers or None)


def test_json_that_others_write_is_understood() -> None:
    parse = json_parser()
    found = parse(b'{"value": {"a": [1, "\xc3\xa9"]}, "key": 5, "headers": {"h": "x"}}')
    assert found.value == '{"a":[1,"é"]}'.encode()
    assert found.key == b"5"
    assert found.headers == [("h", b"x")]


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"[]", b"{", b"\xff", b"[" * 100_000),
        *(b'{"value_base64": "?"}', b'{"value": "x", "headers": 5}'),
        *(b'{"value": "x", "headers": [["a"]]}', b'{"headers": {"a": {"base64": "?"}}}'),
    ],
)
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(InputError):
        json_parser()(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"valeu": 1, "value": 2}', "unknown field 'valeu'; did you mean value?"),
        ('{"value": 2, "heders": {}}', "unknown field 'heders'; did you mean headers?"),
        ('{"value": 2, "x": 1}', "unknown field 'x'; known: key, key_base64, value,"),
        ('{"value": 2, "value_base64": "AA=="}', "value and value_base64 exclude each other"),
    ],
)
def test_a_field_that_is_unknown_is_named(line: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        json_parser()(line.encode())


def test_a_record_without_a_timestamp_gets_a_new_one() -> None:
    parse = json_parser(keep_timestamps=True)
    for line in (b'{"value": "x", "timestamp": -1}', b'{"value": "x", "timestamp": null}'):
        assert parse(line).timestamp_ms is None
    assert parse(b'{"value": "x", "timestamp": 0}').timestamp_ms == 0


@pytest.mark.parametrize("value", ['"1"', "true", "[1]", "{}"])
def test_a_partition_or_timestamp_that_is_no_number_is_refused_with_its_line(value: str) -> None:
    for name in ("partition", "timestamp"):
        line = f'{{"value": "x", "{name}": {value}}}'.encode()
        with pytest.raises(InputError, match=f"{name}: must be a number or null: b'.*x"):
            json_parser(keep_partitions=True, keep_timestamps=True)(line)
        assert json_parser()(line).value == b"x"


def test_formats() -> None:
    every = [record(b"v", b"k", [("h", b"1"), ("i", None)]), record(None)]
    text = "%t %p %o %T %k %K %s %S %h 100%%\\n"
    assert formats.custom(text, b"NULL")(every) == (
        b"t 1 7 1000 k 1 v 1 h=1,i= 100%\nt 1 7 1000 NULL -1 NULL -1  100%\n"
    )
    assert formats.plain(b"\0", None, b"-")(every) == b"v\0-\0"
    assert formats.plain(b";", b"=", b"-")(every) == b"k=v;-=-;"
    assert json.loads(formats.json_lines(every[:1]))["headers"] == [["h", "1"], ["i", None]]
    with pytest.raises(ValueError, match="'%x' is unknown"):
        formats.custom("%x", b"")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Place("earliest")),
        ("42", Place("offset", 42)),
        ("-10", Place("tail", 10)),
        ("-90s", Place("time", 10_000)),
        ("@1700", Place("time", 1700)),
        ("1970-01-01T00:00:02", Place("time", 2000)),
        ("1970-01-01T01:00:02+01:00", Place("time", 2000)),
        ("1970-01-02", Place("time", 86_400_000)),
        ("-100000w", Place("time", 0)),
        ("-" + "9" * 400 + "w", Place("time", 0)),
        ("1900-01-01", Place("time", 0)),
    ],
)
def test_places(text: str, expected: Place) -> None:
    assert place(text, now=100) == expected


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system's time zone is another one than UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EST5")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone cannot be set")
@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-01-31T12:00", 12),
        ("2026-01-31", 0),
        ("2026-01-31T12:00Z", 12),
        ("2026-01-31T12:00-01:00", 13),
    ],
)
def test_a_time_without_a_zone_is_in_utc(text: str, hour: int) -> None:
    moment = datetime.datetime(2026, 1, 31, hour, tzinfo=datetime.timezone.utc)
    assert place(text) == Place("time", int(moment.timestamp()) * 1000)


@pytest.mark.parametrize("text", ["", "soon", "-2y", "@x", "1970-13-01"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        place(text)


def test_numbers_of_partitions() -> None:
    assert numbers("0,3-5,4") == [0, 3, 4, 5]
    for text in ("", "a", "5-3", "-1", "0-99999999999"):
        with pytest.raises(ValueError, match="partitions"):
            numbers(text)


async def test_a_full_pipe_waits_beside_the_loop_and_loses_nothing() -> None:
    reader, writer = os.pipe()
    data = os.urandom(1_000_003)

    async def write() -> None:
        await Writer(writer).write(data)
        os.close(writer)

    writing = asyncio.ensure_future(write())
    got = b"".join([block async for block in read_blocks(reader)])
    await writing
    os.close(reader)
    assert got == data


async def test_a_rate_counts_from_the_first_record() -> None:
    limit = Limit(1_000_000)
    assert limit.step == 50_000
    for _ in range(10):
        await limit.wait(limit.step)
    assert Limit(0.5).step == 1


@pytest.mark.parametrize(
    ("pause", "end"),
    [(0, 2.9), (0.5, 2.9), (60, 0.9 + 60 + 1.9)],
    ids=["no pause", "made up for", "not made up for"],
)
def test_the_rate_is_held_when_the_source_has_paused(
    monkeypatch: pytest.MonkeyPatch, pause: float, end: float
) -> None:
    """What was missed in less than a second follows faster, and no more than that."""

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=loop.time))
        limit, began = Limit(10), loop.time()
        for number in range(30):
            if number == 10:
                await asyncio.sleep(pause)
            await limit.wait(1)
        return loop.time() - began

    assert simulate(main) == pytest.approx(end, abs=0.01)
