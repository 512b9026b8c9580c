"""Parse `sasl.jaas.config` as Java does. Pure.

`module flag key=value ...;` with Java's StreamTokenizer: words of letters, digits and `._-$`,
strings in either kind of quotes with escapes, comments by `//`, `/* */` and `/`. No error shows the
text, because it contains a password.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["LoginModule", "parse_jaas"]

_SKIP = re.compile(r"(?:[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*)+", re.DOTALL)
# A word does not begin with a digit, a dot or a minus: to Java that would be a number.
_WORD = re.compile(r"[A-Za-z_$\x80-\U0010ffff][\w.\-$\x80-\U0010ffff]*")
_QUOTED = re.compile(
    r"\"((?:[^\"\\\r\n]|\\.)*)(?:\"|(?=[\r\n])|\Z)|'((?:[^'\\\r\n]|\\.)*)(?:'|(?=[\r\n])|\Z)",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_FORM = 'must be as in Java: a login module, "required", key="value" pairs and a semicolon'


class LoginModule(NamedTuple):
    """An entry of a JAAS configuration."""

    name: str
    """The class, without its package, which may be a shaded one."""

    options: dict[str, str]


class _Token(NamedTuple):
    text: str
    is_text: bool
    """A word or a string; otherwise one character."""


def parse_jaas(text: str) -> LoginModule:
    """Return the one login module in `text`. Raises ValueError that says what is wrong."""
    tokens = _tokens(text)
    name, flag = _text(tokens, 0, "a login module"), _text(tokens, 1, "a control flag")
    if flag.lower() not in _FLAGS:
        raise ValueError(f"{_FORM}; the word after the login module is none of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != _Token(";", False):
        key = _text(tokens, at, "a key")
        if at + 1 >= len(tokens) or tokens[at + 1] != _Token("=", False):
            raise ValueError(f"{_FORM}; there is no = after the key {key}")
        options[key] = _text(tokens, at + 2, f"a value of {key}, in quotes if it is not a word,")
        at += 3
    if at >= len(tokens):
        raise ValueError(f"{_FORM}; the semicolon at the end is missing")
    if at + 1 < len(tokens):
        raise ValueError(f"{_FORM}; there is more than one login module")
    return LoginModule(name.rpartition(".")[2], options)


def _text(tokens: list[_Token], at: int, what: str) -> str:
    if at >= len(tokens) or not tokens[at].is_text:
        raise ValueError(f"{_FORM}; {what} is missing")
    return tokens[at].text


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        if skipped := _SKIP.match(text, at):
            at = skipped.end()
        elif word := _WORD.match(text, at):
            found.append(_Token(word[0], True))
            at = word.end()
        elif quoted := _QUOTED.match(text, at):
            inside = quoted[1] if quoted[1] is not None else quoted[2]
            found.append(_Token(_ESCAPE.sub(_unescape, inside), True))
            at = quoted.end()
        else:
            found.append(_Token(text[at], False))
            at += 1
    return found


def _unescape(found: re.Match[str]) -> str:
    what = found[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _CONTROLS.get(what, what)
