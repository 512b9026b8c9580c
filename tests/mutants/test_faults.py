"""The lists of planted faults fit the source of today, and the check notices what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.copies import Run
from tests.mutants.faults import LISTS, REPOSITORY, Fault, WrongFaultError, load
from tests.mutants.judges import ask_suite

FAULTS = [
    pytest.param(fault, id=f"{name}-{fault.name}")
    for name, path in LISTS.items()
    for fault in load(path)
]

SOURCE = """\
def double(number):
    result = number
    result += number
    return result
"""


def listed(tmp_path: Path, *lines: str) -> list[Fault]:
    path = tmp_path / "list.txt"
    fields = ("# it-does-not-double", "file: double.py", "sees: half", "checks: tests/test_it.py")
    path.write_text("\n".join((*fields, *lines, "")))
    return load(path)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fits_the_source(fault: Fault) -> None:
    """When it does not any more, write the fault for the lines of today, or take it out."""
    assert fault.plant((REPOSITORY / fault.file).read_text())
    for check in fault.tests:
        assert (REPOSITORY / check).exists(), check


@pytest.mark.parametrize("fault", FAULTS)
def test_what_has_noticed_a_fault_is_there(fault: Fault) -> None:
    path, _, name = fault.noticed.partition("::")
    if name:
        assert f"def {name}(" in (REPOSITORY / path).read_text()
    else:
        assert not fault.noticed or fault.noticed.startswith("seed ")


def test_lines_are_replaced(tmp_path: Path) -> None:
    (fault,) = listed(tmp_path, "     result = number", "-    result += number")
    assert fault.plant(SOURCE) == SOURCE.replace("    result += number\n", "")


def test_several_changes_of_one_file(tmp_path: Path) -> None:
    lines = (
        "-    result = number",
        "+    result = 0",
        "...",
        "-    return result",
        "+    return 1",
    )
    (fault,) = listed(tmp_path, *lines)
    assert fault.plant(SOURCE) == SOURCE.replace("= number\n", "= 0\n", 1).replace(
        "result\n", "1\n"
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["-    result = something", "+    result = 0"], "occur 0 times"),
        (["-    result = number", "+    result ="], "invalid syntax"),
        (["-    result = number", "+    result = (number)"], "changes nothing"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path: Path, lines: list[str], reason: str) -> None:
    (fault,) = listed(tmp_path, *lines)
    with pytest.raises(WrongFaultError, match=reason):
        fault.plant(SOURCE)


def test_a_place_must_be_the_only_one(tmp_path: Path) -> None:
    (fault,) = listed(tmp_path, "-    return result", "+    return 0")
    with pytest.raises(WrongFaultError, match="occur 2 times"):
        fault.plant(SOURCE + SOURCE)


def test_an_entry_must_be_complete(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# a-fault\nfile: double.py\n-    result = number\n")
    with pytest.raises(WrongFaultError, match="needs file, sees, checks and a change"):
        load(path)


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
    (fault,) = listed(tmp_path, "-    result = number", "+    result = 0")
    verdict = ask_suite(Answering(code, output), fault, 10.0)  # type: ignore[arg-type]
    assert (verdict.by, verdict.is_noticed) == (by, bool(by))
