"""An environment for each client, made once: what a program would have installed, and no more."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import (
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_ASYNCIO,
    FRANZ,
    JAVA,
    KAFKA_PYTHON,
    OURS,
    OURS_ASSIGNED,
    OURS_UVLOOP,
)
from tests.kafka.plugins import compile_class, missing_compiler
from tests.kafka.versions import DEFAULT_VERSION

WORK_FOLDER = Path(__file__).parent / ".work"
_NOT_PASSED_ON = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""What a user's program does not have: packages that pip installs come with byte code."""
CLIENTS = Path(__file__).parent / "clients"
_FRANZ_SOURCE = CLIENTS / "franz"
_JAVA_CLASS = "ShareReader"
_IS_OURS = (OURS, OURS_ASSIGNED, OURS_UVLOOP)

_CODECS = ("lz4", "zstandard", "python-snappy")
_PACKAGES = {
    OURS: ("crc32c", "packaging", "uvloop", "opentelemetry-sdk>=1.30", *_CODECS),
    AIOKAFKA: ("aiokafka==0.14.0", *_CODECS),
    CONFLUENT: ("confluent-kafka",),
    KAFKA_PYTHON: ("kafka-python>=3", *_CODECS),
}
_SCRIPTS = {
    OURS: "aiokafka_client.py",
    OURS_ASSIGNED: "aiokafka_client.py",
    OURS_UVLOOP: "aiokafka_client.py",
    AIOKAFKA: "aiokafka_client.py",
    CONFLUENT: "confluent_client.py",
    CONFLUENT_ASYNCIO: "confluent_asyncio_client.py",
    KAFKA_PYTHON: "kafka_python_client.py",
}
_DISTRIBUTIONS = {
    OURS: "aiokafka",
    OURS_ASSIGNED: "aiokafka",
    OURS_UVLOOP: "uvloop",
    AIOKAFKA: "aiokafka",
    CONFLUENT: "confluent-kafka",
    KAFKA_PYTHON: "kafka-python",
}


_OWN_SCRIPTS = ("import_time", "start_up", "pauses")
"""Workloads that are a script of that name, with whatever client the interpreter has."""


@dataclass(frozen=True)
class Usage:
    """What a whole client process used, from its start to its end."""

    cpu_seconds: float
    rss_mib: float


def python_of(client: str) -> str:
    """The interpreter that has this client installed; made on first use."""
    name = OURS if client in _IS_OURS else CONFLUENT if client == CONFLUENT_ASYNCIO else client
    folder = WORK_FOLDER / f"{name}-{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    done, packages = folder / ".installed", "\n".join(_PACKAGES[name])
    if not done.exists() or done.read_text() != packages:
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "-q", *_PACKAGES[name]]
        subprocess.run(install, check=True)
        if name == OURS:
            # The sources and extensions of here, found as fast as an installed package is.
            installed = next(folder.glob("lib/python*/site-packages"))
            (installed / "ours.pth").write_text(f"{CLIENTS.parent.parent}\n")
        done.write_text(packages)
    return str(python)


def why_not(client: str) -> str:
    """Say what this client lacks on this machine; empty if it can run."""
    if client == FRANZ and shutil.which("go") is None:
        return "there is no Go to build it with"
    return missing_compiler() if client == JAVA else ""


def franz() -> Path:
    """Return the program over franz-go; built on first use."""
    program = WORK_FOLDER / "franz"
    newest = max(path.stat().st_mtime for path in _FRANZ_SOURCE.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        WORK_FOLDER.mkdir(exist_ok=True)
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=_FRANZ_SOURCE, check=True)
    return program


def java_reader() -> list[str]:
    """Return the command of the program over Java's client, without arguments; compile it first."""
    folder = WORK_FOLDER / "java"
    folder.mkdir(parents=True, exist_ok=True)
    return ["java", "-cp", compile_class(CLIENTS / f"{_JAVA_CLASS}.java", folder), _JAVA_CLASS]


def version_of(client: str) -> str:
    """The version of the client's package, and of librdkafka where that does the work."""
    if client == FRANZ:
        text = (_FRANZ_SOURCE / "go.mod").read_text()
        (version,) = re.findall(r"franz-go v(\S+)", text)
        return f"franz-go {version}"
    if client == JAVA:
        return f"kafka-clients {DEFAULT_VERSION}"
    distribution = _DISTRIBUTIONS.get(client, _DISTRIBUTIONS[CONFLUENT])
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    python = sys.executable if client in (OURS, OURS_ASSIGNED) else python_of(client)
    shown = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    return f"{distribution} {shown.stdout.strip()}"


def run_client(client: str, workload: str, work: dict[str, object]) -> tuple[dict, Usage]:
    """Run a workload in a child process; its result and what the process used."""
    if client == FRANZ:
        return run_command([str(franz())], workload, work)
    if client == JAVA:
        return run_command(java_reader(), workload, work)
    script = f"{workload}.py" if workload in _OWN_SCRIPTS else _SCRIPTS[client]
    return run_script(python_of(client), script, workload, work)


def run_script(
    python: str, script: str, workload: str, work: dict[str, object]
) -> tuple[dict, Usage]:
    return run_command([python, str(CLIENTS / script)], workload, work)


def run_command(program: list[str], workload: str, work: dict[str, object]) -> tuple[dict, Usage]:
    """Run a client's program; its result is the last line that it prints."""
    command = [*program, json.dumps(work), workload]
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED_ON}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    with process.stdout:
        shown = process.stdout.read()
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{program[-1]} {workload} ended with {process.returncode}")
    usage = Usage(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
    return json.loads(shown.splitlines()[-1]), usage
