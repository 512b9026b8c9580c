"""Install commands of README, manual and examples install this package, not its namesake."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import try_install
from tools.install_lines import VERSION, console, image
from tools.repository import links, public

REPOSITORY = Path(__file__).parent.parent
PAGES = [REPOSITORY / "README.rst", REPOSITORY / "CONTRIBUTING.rst"]
PAGES += sorted((REPOSITORY / "docs").glob("*.rst"))
PAGES += sorted(path for path in (REPOSITORY / "examples").rglob("*") if path.suffix == ".py")
COMMAND = re.compile(r"pip install (?!aiokafka`)[^`\n]*aiokafka(?![-/])[^`\n]*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_the_exact_version(page: Path) -> None:
    explained = ("pip install aiokafka`` without", "--upgrade aiokafka``", "uninstall aiokafka")
    for line in page.read_text().splitlines():
        if "git+URL" in line:
            pytest.fail(f"{line!r} cannot be copied")
        if COMMAND.search(line) and not any(text in line for text in explained):
            assert f"=={VERSION}" in line, line


def test_the_readme_has_the_commands_of_the_manual() -> None:
    text = (REPOSITORY / "README.rst").read_text()
    for line in console():
        assert line.partition("   #")[0].strip() in text


def test_a_command_without_its_wheel_cannot_install_the_other_package() -> None:
    _, wheel = console("cli,lz4")
    assert f'"aiokafka[cli,lz4]=={VERSION}"' in wheel
    assert image("spark")[1].endswith(f'"aiokafka[spark]=={VERSION}"')


def test_every_command_of_the_manual_is_tried() -> None:
    commands = try_install.commands()
    assert "pip install ." in commands
    assert any("[cli]" in each for each in commands)
    assert any("[spark]" in each for each in commands)
    assert not [each for each in commands if "#" in each]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://example.org/team/aiokafka.git\n", "https://example.org/team/aiokafka"),
        ("https://user:secret@example.org/team/aiokafka", "https://example.org/team/aiokafka"),
        ("git@example.org:team/aiokafka.git", "https://example.org/team/aiokafka"),
        ("ssh://git@example.org/team/aiokafka", "https://example.org/team/aiokafka"),
        ("/srv/git/aiokafka", ""),
        ("../aiokafka", ""),
        ("", ""),
    ],
)
def test_the_address_in_the_metadata_has_no_credentials(given: str, expected: str) -> None:
    assert public(given) == expected


def test_without_an_address_there_are_no_links() -> None:
    assert links("") == {}
    assert links("https://example.org/a")["Issues"] == "https://example.org/a/issues"


def test_the_source_distribution_has_every_example() -> None:
    manifest = (REPOSITORY / "MANIFEST.in").read_text()
    listed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files", "examples", "docs"],
        capture_output=True,
        text=True,
    ).stdout.split()
    for top in ("examples", "docs"):
        kinds = set(re.findall(rf"recursive-include {top} (.*)", manifest)[0].split())
        found = {Path(name).suffix for name in listed if name.startswith(f"{top}/")}
        assert not {f"*{kind}" for kind in found} - kinds
