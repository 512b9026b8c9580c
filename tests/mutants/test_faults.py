"""The lists of planted faults fit the source of today, and the check notices what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.copies import Run
from tests.mutants.faults import LISTS, REPOSITORY, Fault, Sources, WrongFaultError, load
from tests.mutants.judges import ask_suite

SOURCE = """\
def double(number):
    result = number
    result += number
    return result
"""


SOURCES = Sources({"double.py": SOURCE})


def listed(tmp_path: Path, *lines: str) -> list[Fault]:
    path = tmp_path / "list.txt"
    fields = ("# it-does-not-double", "sees: half", "checks: tests/test_it.py")
    path.write_text("\n".join((*fields, *lines, "")))
    return load(path)


@pytest.mark.parametrize("name", LISTS)
def test_planted_faults_fit_the_source(name: str) -> None:
    """When one does not any more, write it for the lines of today, or take it out."""
    for fault in load(LISTS[name]):
        assert fault.plant(Sources.of_package())
        for check in fault.tests:
            assert (REPOSITORY / check).exists(), f"{fault.name}: {check}"


@pytest.mark.parametrize("name", LISTS)
def test_what_has_noticed_a_fault_is_there(name: str) -> None:
    for fault in load(LISTS[name]):
        path, _, test = fault.noticed.partition("::")
        if test:
            assert f"def {test}(" in (REPOSITORY / path).read_text(), fault.name
        else:
            assert not fault.noticed or fault.noticed.startswith("seed "), fault.name


def test_lines_are_replaced(tmp_path: Path) -> None:
    (fault,) = listed(tmp_path, "in: double", " result = number", "-result += number")
    assert fault.plant(SOURCES) == {"double.py": SOURCE.replace("    result += number\n", "")}


def test_several_changes_of_one_function(tmp_path: Path) -> None:
    lines = (
        "in: double",
        "-    return result",
        "+    return 1",
        "...",
        "-    result = number",
        "+    result = 0",
    )
    (fault,) = listed(tmp_path, *lines)
    planted = SOURCE.replace("= number\n", "= 0\n", 1).replace("result\n", "1\n")
    assert fault.plant(SOURCES) == {"double.py": planted}


def test_changes_of_two_modules(tmp_path: Path) -> None:
    lines = ("in: B.b", "-return 1", "+return 2", "in: <module>", "-x = 1", "+x = 2")
    (fault,) = listed(tmp_path, *lines)
    b = "class A:\n  def b():\n    return 1\nclass B:\n  def b():\n    return 1\n"
    planted = fault.plant(Sources({"a.py": "x = 1\n", "b.py": b}))
    assert planted == {"a.py": "x = 2\n", "b.py": b[:-2] + "2\n"}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["-    result = something", "+    result = 0"], "occur 0 times"),
        (["-    result = number", "+    result ="], "invalid syntax"),
        (["-    result = number", "+    result = (number)"], "changes nothing"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, lines: list[str], reason: str) -> None:
    (fault,) = listed(tmp_path, "in: double", *lines)
    with pytest.raises(WrongFaultError, match=reason):
        fault.plant(SOURCES)


def test_a_place_must_be_the_only_one(tmp_path: Path) -> None:
    (fault,) = listed(tmp_path, "in: double", "-    return result", "+    return 0")
    with pytest.raises(WrongFaultError, match="occur 2 times"):
        fault.plant(Sources({"one.py": SOURCE, "two.py": SOURCE}))


def test_an_entry_must_be_complete(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# a-fault\nin: double\n-    result = number\n")
    with pytest.raises(WrongFaultError, match="needs sees, checks and a change"):
        load(path)


def test_a_change_names_its_function(tmp_path: Path) -> None:
    with pytest.raises(WrongFaultError, match="function of a change is not named"):
        listed(tmp_path, "-    result = number")


class Answering:
    """A copy whose runs have ended in a certain way."""

    def __init__(self, code: int | None, output: str) -> None:
        self._run = Run(code, output, 1.0)
        self.is_planted = False

    def planted(self, fault: Fault) -> Answering:
        return self

    def __enter__(self) -> None:
        self.is_planted = True

    def __exit__(self, *exc_info: object) -> None:
        self.is_planted = False

    def run(self, arguments: list[str], limit: float) -> Run:
        assert self.is_planted
        return self._run


@pytest.mark.parametrize(
    ("code", "output", "by"),
    [
        (0, "..\n2 passed", ""),
        (5, "no tests ran", ""),
        (1, "F\nFAILED tests/test_it.py::test_it - assert 1 == 2\n", "tests/test_it.py::test_it"),
        (2, "ERROR tests/test_it.py\n", "tests/test_it.py"),
        (None, "tests/test_it.py ..", "tests/test_it.py did not end"),
        (-9, "", "the run ended with -9"),
    ],
)
def test_what_a_run_says_of_a_fault(tmp_path: Path, code: int | None, output: str, by: str) -> None:
    (fault,) = listed(tmp_path, "in: double", "-    result = number", "+    result = 0")
    verdict = ask_suite(Answering(code, output), fault, 10.0)  # type: ignore[arg-type]
    assert (verdict.by, verdict.is_noticed) == (by, bool(by))
