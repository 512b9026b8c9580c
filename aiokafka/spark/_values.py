"""Convert the text of an option to a value. Every error names the option and what is accepted."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

__all__ = ["OptionReader", "parse_duration"]

log = logging.getLogger("aiokafka.spark")

# Spark's own units; a number without one is in milliseconds.
_UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)


def parse_duration(text: str) -> float:
    """Parse a duration such as `500`, `500ms`, `30s`, `15m`, `1h` or `7d`; return seconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or (found[2] and found[2] not in _UNITS):
        raise ValueError
    return int(found[1]) * _UNITS[found[2] or "ms"]


class OptionReader:
    """The options of one query, read by name. Knows in the end which were never read.

    Spark passes names in lower case; errors show them as the guide writes them.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._read: set[str] = set()

    def text(self, name: str) -> str | None:
        """Return the value as it was given, None if it was not."""
        self._read.add(name.lower())
        return self._options.get(name.lower())

    def given(self, *names: str) -> list[str]:
        """Return those of `names` that were given."""
        return [name for name in names if name.lower() in self._options]

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int | None:
        """Return a whole number of at least `minimum`."""
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"[+-]?\d+", text.strip(), re.ASCII) or int(text) < minimum:
            raise ValueError(f"{name}={text!r}: must be an integer of at least {minimum}")
        return int(text)

    def whole(self, name: str, default: int, minimum: int = 1) -> int:
        """Do the same as `integer`, for an option that always has a value."""
        number = self.integer(name, default, minimum)
        return default if number is None else number

    def flag(self, name: str, default: bool) -> bool:
        """Return a flag, given as `true` or `false` in any case."""
        text = self.text(name)
        if text is None:
            return default
        value = text.strip().lower()
        if value not in ("true", "false"):
            raise ValueError(f"{name}={text!r}: must be true or false")
        return value == "true"

    def choice(self, name: str, values: tuple[str, ...], default: str) -> str:
        """Return one of a few words, given in any case."""
        text = self.text(name)
        if text is None:
            return default
        value = text.strip().lower()
        if value not in values:
            raise ValueError(f"{name}={text!r}: must be one of {', '.join(values)}")
        return value

    def duration(self, name: str, default: str) -> float:
        """Return the seconds of a duration such as `15m`; a bare number is in milliseconds."""
        text = self.text(name)
        try:
            return parse_duration(default if text is None else text)
        except ValueError:
            raise ValueError(
                f"{name}={text!r}: must be milliseconds, or a number with one of the units "
                f"{', '.join(_UNITS)}"
            ) from None

    def by_partition(self, name: str) -> dict[str, dict[int, int]] | None:
        """Return a number for each partition, from JSON such as `{"topic": {"0": 23, "1": -2}}`."""
        text = self.text(name)
        return None if text is None else _numbers(name, text)

    def partitions(self, name: str) -> dict[str, list[int]] | None:
        """Return partitions of topics, from JSON such as `{"topic": [0, 1]}`."""
        text = self.text(name)
        if text is None:
            return None
        example = '{"topic": [0, 1]}'
        parsed = _json_object(name, text, example)
        for numbers in parsed.values():
            if not isinstance(numbers, list) or not all(_is_partition(n) for n in numbers):
                raise ValueError(f"{name}={text!r}: must be JSON as {example}")
        return {topic: sorted(set(numbers)) for topic, numbers in parsed.items()}

    def starting_with(self, prefix: str) -> dict[str, str]:
        """Return the options under a prefix, by the rest of their names; all of them count as
        read."""
        found = {name: text for name, text in self._options.items() if name.startswith(prefix)}
        self._read.update(found)
        return {name[len(prefix) :]: text for name, text in found.items()}

    def refuse_rest(self, known: tuple[str, ...], what: str, others: Iterable[str] = ()) -> None:
        """Raise ValueError naming the options that do not exist, with the most similar of those
        that do: `known`, or `others` with a prefix.

        Those in `known` belong to another kind of query: a job may have one set of options for all
        its queries, so a warning is enough.
        """
        rest = sorted(self._options.keys() - self._read)
        proper = {name.lower(): name for name in known}
        unknown = [name for name in rest if name not in proper]
        if unknown:
            names = {**proper, **{name: name for name in others}}
            similar = [names[n] for name in unknown for n in get_close_matches(name, names, 1)]
            raise ValueError(
                f"unknown option for {what}: {', '.join(unknown)}"
                + (f"; is it {', '.join(similar)}?" if similar else "")
            )
        if rest:
            _warn_once(tuple(proper[name] for name in rest), what)


@functools.lru_cache(maxsize=100)
def _warn_once(names: tuple[str, ...], what: str) -> None:
    """Warn once in a process, although options are parsed many times for a query."""
    log.warning("%s: no meaning for %s", ", ".join(names), what)


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    twice: list[str] = []

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Of two values for one name, one would be lost without a word.
        twice.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return dict(pairs)

    try:
        parsed = json.loads(text, object_pairs_hook=take)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not parsed or "" in parsed:
        raise ValueError(f"{name}={text!r}: must be JSON as {example}")
    if twice:
        raise ValueError(f"{name}={text!r}: {', '.join(twice)} is there more than once")
    return parsed


def _numbers(name: str, text: str) -> dict[str, dict[int, int]]:
    example = '{"topic": {"0": 23, "1": -2}}'
    found: dict[str, dict[int, int]] = {}
    for topic, by_partition in _json_object(name, text, example).items():
        is_right = isinstance(by_partition, dict) and all(
            re.fullmatch(r"\d+", number, re.ASCII)
            and isinstance(value, int)
            and not isinstance(value, bool)
            for number, value in by_partition.items()
        )
        if not is_right:
            raise ValueError(f"{name}={text!r}: must be JSON as {example}")
        found[topic] = {int(number): value for number, value in by_partition.items()}
    return found


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
