"""The English of the code and of the manual, as far as a machine can check it.

Four rules, checked room by room. A room is a package below `aiokafka/`, the modules at its root,
or a folder beside it.

verbs: The docstring of a function or method begins with an imperative verb and says what the call
    does for its caller. Properties, pytest fixtures and classes are things: theirs may be noun
    phrases. A verb that is missing in tests/house/words.py is added there.
words: Comments, messages and the manual use Kafka's terms, and call things "it". What stands in
    backticks, and a string of one word, is a name and may be anything.
public: Every function, method and class with a public name has a docstring, in modules that are not
    private. A method may have it from the class that it overrides. The methods of asyncio's
    classes are described by Python's manual, the declarations of messages by Kafka.
sections: Arguments that are listed one a line stand under `Args:`. Errors are a sentence that
    begins with "Raises", or stand under `Raises:`. There is no other style of sections.
"""

from __future__ import annotations

import ast
import asyncio
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.words import begins_with_a_verb

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "aiokafka"

# What to write is on the right.
BANNED = {
    r"he|him|his|himself|she|her|hers": "it, its",
    r"who(?:so)?ever|whom": "a subject: the broker, the caller",
    r"nobody|somebody|anybody|everybody": "a subject, or 'no client', 'another producer'",
    r"anew": "again, newly; re-authenticate, rejoin",
    r"shar(?:e|es|ed|ing) out": "assign",
    r"hand(?:s|ed|ing)? out": "return, give",
    r"told of|told by": "learn, given, described",
    r"goes on its way": "is re-raised",
    r"picture of the cluster": "metadata",
    r"may come of|comes of": "originate from",
    r"data base": "database",
    r"time-outs?": "timeout",
    r"(?:an|the|its|their|whose|any|error|broker's|leader's|coordinator's) answers?": "response",
    r"thereof|lest|till|thus|shall": "a plain word",
}
FORBIDDEN = re.compile(rf"(?<![\w'-])(?:{'|'.join(BANNED)})(?![\w-])", re.IGNORECASE)
QUOTED = re.compile(r"``.*?``|`[^`]*`")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Finding = str


def _room(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).parts
    if parts[0] == "aiokafka":
        return "aiokafka/" + (parts[1] if len(parts) > 2 else "*.py")
    return parts[0] if len(parts) > 1 else "project files"


@cache
def rooms() -> dict[str, list[Path]]:
    """Return the files of each room."""
    found: dict[str, list[Path]] = {}
    for folder in ("aiokafka", "examples", "tests", "benchmarks"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if path != Path(__file__).resolve() and not _is_made(path):
                found.setdefault(_room(path), []).append(path)
    for path in sorted(
        [*REPOSITORY.glob("*.rst"), *REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.rst")]
    ):
        found.setdefault(_room(path), []).append(path)
    return found


def _is_made(path: Path) -> bool:
    return any(part.startswith(".") or part == "build" for part in path.parts[len(PACKAGE.parts) :])


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def at(path: Path, line: int, text: str) -> Finding:
    return f"{path.relative_to(REPOSITORY)}:{line}: {text}"


# -- verbs


def is_thing(function: Function) -> bool:
    """Return whether a function is read like an attribute: a property or a fixture."""
    names = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(
        "property" in name or "fixture" in name or name.endswith(".setter") for name in names
    )


def verbs(path: Path) -> Iterator[Finding]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, Function) and not is_thing(node):
            docstring = ast.get_docstring(node)
            if docstring is not None and not begins_with_a_verb(docstring):
                yield at(path, node.lineno, docstring.splitlines()[0] if docstring else "empty")


# -- words


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text of what people read: comments and strings, or a whole page."""
    text = path.read_text()
    if path.suffix != ".py":
        yield 1, text
        return
    comments: list[tuple[int, str]] = []
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in kinds:
            continue
        if token.type != tokenize.COMMENT and not re.search(r"\s", token.string):
            continue  # a name
        line = token.start[0]
        if token.type == tokenize.COMMENT and comments and comments[-1][0] == line - 1:
            # The next line of a comment goes on with its sentence.
            yield line, " ".join(comments[-1][1].split()[-1:] + token.string.split()[1:2])
        if token.type == tokenize.COMMENT:
            comments.append((line, token.string))
        yield line, token.string


def words(path: Path) -> Iterator[Finding]:
    if not FORBIDDEN.search(re.sub(r"\n[ #]*", " ", path.read_text())):
        return
    for line, text in prose(path):
        plain = QUOTED.sub(lambda found: re.sub(r"[^\n]", "`", found[0]), text)
        for found in FORBIDDEN.finditer(re.sub(r"(?<=\w)\n[ #]*", " ", plain)):
            yield at(path, line + plain[: found.start()].count("\n"), repr(found[0]))


# -- public


@cache
def documented_methods() -> dict[str, set[str]]:
    """Return the methods of each class of the package that have docstrings."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                methods = found.setdefault(node.name, set())
                for item in node.body:
                    if isinstance(item, Function) and ast.get_docstring(item):
                        methods.add(item.name)
    return found


@cache
def bases() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                names = {re.split(r"[\[(]", ast.unparse(base))[0] for base in node.bases}
                found.setdefault(node.name, set()).update(name.split(".")[-1] for name in names)
    return found


def is_asyncios(name: str, method: str) -> bool:
    """Return whether asyncio has such a class with such a method, and Python's manual its text."""
    return hasattr(getattr(asyncio, name, None), method)


def inherits_docstring(name: str, method: str) -> bool:
    seen, waiting = {name}, [*bases().get(name, ())]
    while waiting:
        base = waiting.pop()
        if base in seen:
            continue
        if method in documented_methods().get(base, ()) or is_asyncios(base, method):
            return True
        seen.add(base)
        waiting += bases().get(base, ())
    return False


def undocumented(node: ast.Module | ast.ClassDef) -> Iterator[tuple[int, str]]:
    for item in node.body:
        if not isinstance(item, (*Function.__args__, ast.ClassDef)) or item.name.startswith("_"):
            continue
        if isinstance(item, Function) and any(
            ast.unparse(d).endswith(("setter", "overload")) for d in item.decorator_list
        ):
            continue
        inherited = isinstance(node, ast.ClassDef) and inherits_docstring(node.name, item.name)
        if not ast.get_docstring(item) and not inherited:
            yield item.lineno, item.name
        if isinstance(item, ast.ClassDef):
            yield from undocumented(item)


def public(path: Path) -> Iterator[Finding]:
    if PACKAGE not in path.parents:
        return
    parts = path.relative_to(PACKAGE).parts
    if parts[:2] == ("protocol", "messages"):
        return
    if any(part.startswith("_") and part != "__init__.py" for part in parts):
        return
    for line, name in undocumented(parsed(path)):
        yield at(path, line, f"{name} has no docstring")


# -- sections

OTHER_SECTIONS = re.compile(
    r"^\s*(?:(?:Arguments|Parameters|Return|Throws|Errors|Params):|:param|:return|:raise|-{4,})"
)
LISTED = re.compile(r"^`{0,2}(\w+)`{0,2}(?:(?:,| and) `{0,2}\w+`{0,2})*: ")


def names_taken(node: Function | ast.ClassDef) -> set[str]:
    """Return the arguments of a function, or the fields and the arguments of a class."""
    taken: set[str] = set()
    for item in [node] if isinstance(node, Function) else node.body:
        if isinstance(item, Function) and item.name in (node.name, "__init__"):
            arguments = item.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            taken.update(argument.arg for argument in every)
        elif isinstance(item, ast.AnnAssign):
            taken.add(ast.unparse(item.target))
    return taken


def sections(path: Path) -> Iterator[Finding]:
    if PACKAGE not in path.parents:
        return
    for node in ast.walk(parsed(path)):
        if not isinstance(node, (*Function.__args__, ast.ClassDef)):
            continue
        for line in (ast.get_docstring(node) or "").splitlines()[1:]:
            listed = LISTED.match(line)
            if OTHER_SECTIONS.match(line) or (listed and listed[1] in names_taken(node)):
                yield at(path, node.lineno, f"{node.name}: {line}")


RULES = {"verbs": verbs, "words": words, "public": public, "sections": sections}


def findings(rule: str, room: str) -> list[Finding]:
    """Return what breaks a rule in a room."""
    if rule != "words" and not room.startswith("aiokafka/"):
        return []
    paths = rooms().get(room, [])
    if rule != "words":
        paths = [path for path in paths if path.suffix == ".py"]
    return [found for path in paths for found in RULES[rule](path)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("room", rooms())
def test_rooms_keep_the_rules(room: str, rule: str) -> None:
    found = findings(rule, room)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Return the offset.", True),
        ("Re-authenticate, then open the gate.", True),
        ("The offset.", False),
        ("Group of the member.", False),
        ("", False),
    ],
)
def test_the_first_word_is_looked_at(docstring: str, expected: bool) -> None:
    assert begins_with_a_verb(docstring) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# It tells whom it may concern.", 1),
        ("# The broker gives\n# the answer.", 1),
        ("x = 'as time-outs are'", 1),
        ('"""Wait for the\n    answer of a broker."""', 1),
        ("anew = answer", 0),
        ("# `nobody` is a user, the answering broker is not.", 0),
        ("users = ['nobody', \"somebody\"]", 0),
    ],
)
def test_words_are_found(
    text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "REPOSITORY", tmp_path)
    file = tmp_path / "some.py"
    file.write_text(text + "\n")
    assert len(list(words(file))) == expected


if __name__ == "__main__":
    for rule in RULES:
        for room in rooms():
            for found in findings(rule, room):
                print(rule, found)
