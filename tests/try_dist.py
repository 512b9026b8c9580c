"""Installs each built package into a clean environment and tries it: ``try_dist.py FOLDER``."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

SMOKE = Path(__file__).with_name("smoke.py").resolve()
# What is easily forgotten, for no import of the package needs it.
IN_ALL = {"aiokafka/py.typed", "aiokafka/spark/source.py", "pyspark_aiokafka.py"}
IN_WHEEL = {"aiokafka/protocol/_generated/client.py"}  # written by the build
IN_SDIST = {
    "tools/generate_codecs.py",
    "Makefile",
    "docs/spark.rst",
    "examples/spark/sessions.py",
    "tests/smoke.py",
}


def check_files(package: Path) -> None:
    """Fail if one of them is missing."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            names = archive.namelist()
        missing = (IN_ALL | IN_WHEEL) - set(names)
    else:
        with tarfile.open(package) as archive:
            names = archive.getnames()
        missing = (IN_ALL | IN_SDIST) - {name.partition("/")[2] for name in names}
    if package.suffix != ".whl" and any("/benchmarks/" in name for name in names):
        sys.exit(f"{package.name} has benchmarks, which need a checkout and other clients")
    if missing:
        sys.exit(f"{package.name} lacks {', '.join(sorted(missing))}")


def try_package(package: Path) -> None:
    """Run the smoke test away from the source tree, so that only the package can be imported."""
    with tempfile.TemporaryDirectory(prefix="aiokafka-dist-") as folder:
        venv.create(folder, with_pip=True)
        python = str(next(Path(folder).glob("[bS]*/python*")))
        run([python, "-m", "pip", "install", "-q", str(package.resolve())], folder)
        run([python, "-I", str(SMOKE)], folder)
    print(f"{package.name}: ok", flush=True)


def run(command: list[str], folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)


def main() -> None:
    folder = Path(sys.argv[1])
    packages = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    if {package.suffix for package in packages} != {".whl", ".gz"}:
        sys.exit(f"{folder} must hold an sdist and a wheel, but holds {packages}")
    for package in packages:
        check_files(package)
        try_package(package)


if __name__ == "__main__":
    main()
