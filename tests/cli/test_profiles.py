"""Profiles are created, listed and chosen by commands, and secrets stay out of the output."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafka.cli.settings import find_settings
from tests.cli.support import Cli


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "aiokafka" / "config.toml"


def test_the_first_profile_is_the_default(cli: Cli, file: Path) -> None:
    servers = cli.served.cluster.bootstrap_servers
    cli("profile", "create", "local", f"bootstrap_servers={servers}")
    cli("profile", "create", "prod", "bootstrap_servers=kafka:9093", "security_protocol=SSL")
    rows = cli.rows("profile", "list")
    assert [(row["profile"], row["default"]) for row in rows] == [("local", True), ("prod", False)]
    assert find_settings({}, {"XDG_CONFIG_HOME": str(file.parent.parent)}) == {
        "bootstrap_servers": servers
    }
    cli("profile", "use", "prod")
    assert [row["default"] for row in cli.rows("profile", "list")] == [False, True]
    assert "SSL" in cli("profile", "show").out
    assert file.stat().st_mode & 0o077 == 0


def test_a_default_and_other_tables_of_the_file_are_kept(cli: Cli, file: Path) -> None:
    file.parent.mkdir()
    file.write_text('# mine\ndefault = "a"\n\n[profiles.a]\npassword = "secret"\n')
    cli("profile", "create", "b")
    text = file.read_text()
    assert text.startswith('# mine\ndefault = "a"\n\n[profiles.a]\npassword = "secret"\n')
    cli("profile", "use", "b")
    assert file.read_text().startswith('# mine\ndefault = "b"\n\n[profiles.a]\n')
    assert "secret" not in cli("profile", "show", "a").out + cli("profile", "list").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("use", "nobody"), "no profile 'nobody'"),
        (("create", "a b"), "letters, digits"),
        (("create", "c", "bootstrap=x"), "names are bootstrap_servers"),
        (("create", "c", "password=x"), "other users see command lines"),
        (("create", "c", "security_protocol"), "must be NAME=VALUE"),
    ],
)
def test_mistakes(cli: Cli, file: Path, arguments: tuple[str, ...], said: str) -> None:
    done = cli.run("profile", *arguments)
    assert done.code == 2
    assert said in done.err
    assert not file.exists()


def test_a_profile_without_a_file_says_how_to_make_one(cli: Cli, file: Path) -> None:
    done = cli.run("topics", "list", "--profile", "prod")
    assert done.code == 2
    assert "`aiokafka profile create prod` makes it" in done.err
    assert done.err.startswith("aiokafka: profile 'prod': ")
