"""Install this checkout into the environment of the interpreter, and report the progress.

With `--dependencies`, install its dependencies only, for a run of the checkout as it is; with
`--group NAME`, the packages of a dependency group. pip prints either nothing or everything, and
compiling takes minutes. This prints a line when a step begins, and the number of compiled modules
while the compiler runs. After a failure it prints all of pip's output.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PIP = ("-m", "pip", "--disable-pip-version-check")
_CYTHON = re.compile(r"\[\s*(\d+)/(\d+)\] Cythonizing (\S+)")
_COMPILER = re.compile(r"building '([\w.]+)' extension")
_STEPS = {
    "Installing build dependencies": "fetching setuptools and Cython",
    "Preparing editable metadata": "writing the codecs of Kafka's messages",
    "Building editable for": "building",
    "Installing collected packages": "installing",
}
_RARELY = 5.0
"""Seconds between two lines about the same step."""


class Progress:
    """Converts lines of pip's output to lines of progress."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._compiled = 0
        self._began = time.monotonic()
        self._last = -_RARELY

    def report(self, line: str) -> None:
        """Print the progress that a line of pip shows, if any."""
        for text, step in _STEPS.items():
            if line.strip().startswith(text) and "finished" not in line:
                self._print(step)
                return
        if found := _CYTHON.search(line):
            self._print_rarely(f"translating to C: {found[1]} of {found[2]}")
        elif _COMPILER.search(line):
            self._compiled += 1
            self._print_rarely(f"compiling: {self._compiled} of {self._total}")

    def _print_rarely(self, text: str) -> None:
        if time.monotonic() - self._last >= _RARELY:
            self._print(text)

    def _print(self, text: str) -> None:
        self._last = time.monotonic()
        print(f"  {self._last - self._began:4.0f} s  {text}", flush=True)


def project() -> dict[str, Any]:
    """Return the content of `pyproject.toml`."""
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        _install_pip()
        from pip._vendor import tomli as toml
    found: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text())
    return found


def install_packages(requirements: list[str]) -> int:
    """Install packages into the environment. Returns pip's exit code.

    An environment without pip uses that of the interpreter it was made by, if that is 22.3 or
    later. Otherwise it gets a pip of its own, which takes much longer.
    """
    if importlib.util.find_spec("pip") is None:
        base = str(Path(sys.executable).resolve())
        command = [base, *_PIP, "--python", sys.executable, "install", "-q", *requirements]
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0:
            return 0
        _install_pip()
    return subprocess.run([sys.executable, *_PIP, "install", "-q", *requirements]).returncode


def _install_pip() -> None:
    if importlib.util.find_spec("pip") is None:
        subprocess.run([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL, check=True)
        importlib.invalidate_caches()


def install() -> int:
    """Install the checkout. Returns pip's exit code."""
    is_pure = os.environ.get("AIOKAFKA_NO_EXTENSIONS", "") not in ("", "0")
    sources = [path.with_suffix(".py") for path in (ROOT / "aiokafka").rglob("*.pxd")]
    modules = len([path for path in sources if path.exists()])
    if not is_pure:
        print(
            f"Compiling {modules} modules on {os.cpu_count()} cores: 2 to 4 minutes on two. "
            "AIOKAFKA_NO_EXTENSIONS=1 installs pure Python in seconds.",
            flush=True,
        )
    progress = Progress(modules)
    output: list[str] = []
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, *_PIP, "install", "-v", "-e", "."],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            progress.report(line)
    if process.returncode:
        sys.stderr.writelines(output)
    return process.returncode


def main(arguments: list[str]) -> int:
    match arguments:
        case ["--dependencies"]:
            return install_packages(project()["project"]["dependencies"])
        case ["--group", name]:
            return install_packages(project()["dependency-groups"][name])
    return install()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
