"""`aiokafka profile`: the configuration file with the connection options of clusters."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import click

from aiokafka.cli.output import FORMATS, Output
from aiokafka.cli.session import Verbs
from aiokafka.cli.settings import (
    NAMES,
    default_file,
    expanded,
    profile_settings,
    profiles_in,
    read_file,
)
from aiokafka.errors import KafkaConfigurationError

commands = Verbs(help="Create, list, show and choose profiles of connection options.")

_CONFIG = click.option("--config", metavar="FILE", help="The configuration file (TOML).")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SECRETS = {"password", "key_password"}


def _path(config: str | None) -> Path:
    named = config or os.environ.get("AIOKAFKA_CONFIG")
    path = expanded(named) if named else default_file(os.environ)
    if path is None:
        raise KafkaConfigurationError("there is no home directory for the file; use --config")
    return path


def _text(path: Path) -> str:
    return read_file(path) if path.exists() else ""


def _write(path: Path, text: str) -> None:
    """Replace the file atomically. Only its owner can read it, because it may contain a
    password."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _with_default(text: str, name: str) -> str:
    """Return the text of a configuration file with another default profile."""
    line = f"default = {json.dumps(name)}\n"
    head, table, rest = text.partition("\n[") if not text.startswith("[") else ("", "[", text[1:])
    head, count = re.subn(r"(?m)^default\s*=.*\n?", line, head, count=1)
    return (head if count else line + head) + table + rest


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name not in NAMES:
        raise click.UsageError(f"{text!r} must be NAME=VALUE; names are {', '.join(NAMES)}")
    if name in _SECRETS:
        raise click.UsageError(
            f"{name}: other users see command lines; give password_file, or edit the file"
        )
    return name, value


@commands.command("list")
@_CONFIG
@click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Format of the output; json has one object per line.",
)
def list_(config: str | None, output: str) -> None:
    """List the profiles of the configuration file.

    \b
    Example:
      aiokafka profile list
    """
    path = _path(config)
    found, default = profiles_in(_text(path), str(path))
    rows: list[dict[str, Any]] = [
        {"profile": name, "default": name == default, **_public(each)}
        for name, each in sorted(found.items())
        if isinstance(each, dict)
    ]
    Output(output).rows(rows, ("profile", "default", "bootstrap_servers", "security_protocol"))


def _public(profile: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in profile.items() if name not in _SECRETS}


@commands.command("create")
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@_CONFIG
def create(name: str, settings: tuple[str, ...], config: str | None) -> None:
    """Add a profile to the configuration file, which is created if it does not exist. The first
    profile becomes the default.

    \b
    Example:
      aiokafka profile create prod bootstrap_servers=kafka:9093 security_protocol=SSL
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} must be letters, digits, - and _")
    given = dict(map(_setting, settings)) or {"bootstrap_servers": "localhost:9092"}
    path = _path(config)
    text = _text(path)
    found, default = profiles_in(text, str(path))
    if name in found:
        raise KafkaConfigurationError(f"{path}: there is a profile {name!r} already")
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given.items()]
    table = "\n".join([f"[profiles.{name}]", *lines, ""])
    text = f"{text.rstrip()}\n\n{table}" if text.strip() else table
    made = text if default else _with_default(text, name)
    profile_settings(made, str(path), name)  # raises if the new file could not be read
    _write(path, made)
    click.echo(f"{path}: profile {name}", err=True)


@commands.command("use")
@click.argument("name")
@_CONFIG
def use(name: str, config: str | None) -> None:
    """Make a profile the default of commands without --profile.

    \b
    Example:
      aiokafka profile use prod
    """
    path = _path(config)
    text = _text(path)
    profile_settings(text, str(path), name)  # raises for an unknown profile
    _write(path, _with_default(text, name))
    click.echo(f"{path}: the default is {name}", err=True)


@commands.command("show")
@click.argument("name", required=False)
@_CONFIG
def show(name: str | None, config: str | None) -> None:
    """Show the settings of a profile, by default of the default profile, without passwords.

    \b
    Example:
      aiokafka profile show prod
    """
    path = _path(config)
    settings = profile_settings(_text(path), str(path), name)
    rows = [{"setting": key, "value": value} for key, value in sorted(_public(settings).items())]
    Output().rows(rows, ("setting", "value"))
