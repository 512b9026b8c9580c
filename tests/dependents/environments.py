"""One environment for each project that depends on aiokafka, with its current release and ours.

``python -m tests.dependents.environments`` makes those that are missing, two at a time.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiokafka import __version__

REPOSITORY = Path(__file__).parent.parent.parent
HOME = REPOSITORY / ".venv-dependents"
# Those that take longest first.
PACKAGES = {
    "ddtrace": ("ddtrace",),
    "faust": ("faust-streaming",),
    "faststream": ("faststream[kafka,otel,prometheus]",),
    # Its partitioner and assignors are kafka-python's, which are no functions since version 3.
    "taskiq": ("taskiq-aio-kafka", "kafka-python<3"),
    "opentelemetry": ("opentelemetry-instrumentation-aiokafka", "opentelemetry-sdk"),
}


def python_of(name: str) -> Path:
    """The interpreter of a project's environment."""
    return HOME / name / "bin" / "python"


def install(name: str) -> None:
    """Make the environment of a project, unless it is there as it should be."""
    stamp = HOME / name / ".stamp"
    if stamp.exists() and stamp.read_text() == _state(name):
        return
    print(f"Installing {', '.join(PACKAGES[name])}", flush=True)
    shutil.rmtree(HOME / name, ignore_errors=True)
    _run(sys.executable, "-m", "venv", "--without-pip", str(HOME / name))
    _refer_to_ours(name)
    constraints = HOME / f"{name}.txt"
    constraints.write_text(f"aiokafka=={__version__}\n")
    # pip finds our metadata through that reference, so it takes aiokafka for installed.
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python")
    wanted = ("-q", "-c", str(constraints), "aiokafka", *PACKAGES[name])
    _run(*pip, str(python_of(name)), "install", *wanted)
    _run(*pip, str(python_of(name)), "check")
    stamp.write_text(_state(name))


def _refer_to_ours(name: str) -> None:
    """Make the interpreter find this repository, compiled or not, as an editable install does."""
    scheme = {"base": str(HOME / name), "platbase": str(HOME / name)}
    packages = Path(sysconfig.get_path("purelib", "posix_prefix", scheme))
    (packages / "aiokafka-of-the-repository.pth").write_text(f"{REPOSITORY}\n")


def _state(name: str) -> str:
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return f"{sys.version} {__version__} {name} {own}\n"


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}")


def main() -> None:
    """Make all environments."""
    HOME.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(install, PACKAGES))


if __name__ == "__main__":
    main()
