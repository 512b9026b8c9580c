"""Runs the install commands of README and manual, each in a clean environment.

    python -m tests.try_install [PART OF A COMMAND]...

A copy of the checkout with the wheel in `dist` is the current directory of the commands. They build
pure Python, because the compiled form is tried by `make dist`. Every environment must then have
this package, and what the extra is for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tools.install_lines import console, image

REPOSITORY = Path(__file__).resolve().parent.parent
_PAGES = ("README.rst", "CONTRIBUTING.rst", "docs/*.rst")
# Extra -> what an environment with it can import.
_BRINGS = {
    "lz4": "lz4.frame",
    "snappy": "snappy",
    "zstd": "zstandard",
    "gssapi": "gssapi",
    "oauth": "httpx, cryptography",
    "cli": "click, yaml",
    "prometheus": "aiokafka.metrics.prometheus",
    "otel": "aiokafka.otel",
    "proxy": "python_socks",
    "schemas": "confluent_kafka.schema_registry",
    "spark": "pyarrow",
    "uvloop": "uvloop",
}


def commands() -> list[str]:
    """Return the commands of all pages without their comments, each once."""
    found: dict[str, None] = {}
    for pattern in _PAGES:
        for page in sorted(REPOSITORY.glob(pattern)):
            for line in page.read_text().splitlines():
                found.update(dict.fromkeys(_commands_of(line)))
    return [each for each in found if "--group" not in each]


def _commands_of(line: str) -> list[str]:
    if directive := re.match(r"\s*\.\. install::\s*(\S*)", line):
        run = image(directive[1])[1].removeprefix("RUN ").replace("/dist", "dist")
        return [*(each.partition("   #")[0].strip() for each in console(directive[1])), run]
    ours = re.match(r"\s{4}(?:\$ )?(pip install .*?)(?:\s{2,}#.*)?$", line)
    return [ours[1]] if ours and re.search(r'\s"?\.(?:["\[\s]|$)|aiokafka', ours[1]) else []


def try_command(command: str, checkout: Path) -> None:
    """Run a command in a new environment. Raises CalledProcessError if it or a check fails."""
    with tempfile.TemporaryDirectory(prefix="aiokafka-install-") as folder:
        venv.create(folder, with_pip=True)
        scripts = next(Path(folder).glob("[bS]*/python*")).parent
        environment = {
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "AIOKAFKA_NO_EXTENSIONS": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        quiet = command.replace("pip install", "pip install -q", 1)
        subprocess.run(quiet, shell=True, cwd=checkout, env=environment, check=True)
        # Away from the checkout, so that only the installed package can be imported.
        check = f"import aiokafka.ranges, {_imports(command)}"
        subprocess.run([scripts / "python", "-I", "-c", check], cwd=folder, check=True)
        if "cli" in _extras(command):
            subprocess.run([scripts / "aiokafka", "--version"], cwd=folder, check=True)


def _extras(command: str) -> list[str]:
    found = re.search(r"(?:\.|aiokafka)\[([\w,]+)\]", command)
    return found[1].split(",") if found else []


def _imports(command: str) -> str:
    return ", ".join(["asyncio", *(_BRINGS[extra] for extra in _extras(command))])


def _copy(folder: str) -> Path:
    """Return a copy of the files that git knows, with a wheel in `dist`."""
    copy = Path(folder) / "checkout"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, copy / name)
    environment = {**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", "."]
    subprocess.run(build, cwd=copy, env=environment, check=True)
    return copy


def main(wanted: list[str]) -> int:
    """Try the commands that contain one of these texts, or all. Return the number of failures."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="aiokafka-checkout-") as folder:
        checkout = _copy(folder)
        for command in commands():
            if wanted and not any(text in command for text in wanted):
                continue
            if "gssapi" in command and shutil.which("krb5-config") is None:
                print(f"skipped, Kerberos' headers are missing: {command}", flush=True)
                continue
            began = time.monotonic()
            try:
                try_command(command, checkout)
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"FAILED: {command}: {error}", flush=True)
            else:
                print(f"ok, {time.monotonic() - began:.0f} s: {command}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
