"""An environment for each peer, made once; ours is the one that runs the harness."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import (
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_ASYNCIO,
    KAFKA_PYTHON,
    OURS,
    OURS_ASSIGNED,
)

WORK_FOLDER = Path(__file__).parent / ".work"
CLIENTS = Path(__file__).parent / "clients"

_CODECS = ("lz4", "zstandard", "python-snappy")
_PACKAGES = {
    AIOKAFKA: ("aiokafka==0.14.0", *_CODECS),
    CONFLUENT: ("confluent-kafka",),
    KAFKA_PYTHON: ("kafka-python>=3", *_CODECS),
}
_SCRIPTS = {
    OURS: "aiokafka_client.py",
    OURS_ASSIGNED: "aiokafka_client.py",
    AIOKAFKA: "aiokafka_client.py",
    CONFLUENT: "confluent_client.py",
    CONFLUENT_ASYNCIO: "confluent_asyncio_client.py",
    KAFKA_PYTHON: "kafka_python_client.py",
}
_DISTRIBUTIONS = {
    OURS: "aiokafka",
    OURS_ASSIGNED: "aiokafka",
    AIOKAFKA: "aiokafka",
    CONFLUENT: "confluent-kafka",
    KAFKA_PYTHON: "kafka-python",
}


@dataclass(frozen=True)
class Usage:
    """What a whole client process used, from its start to its end."""

    cpu_seconds: float
    rss_mib: float


def python_of(client: str) -> str:
    """The interpreter that has this client installed; made on first use."""
    if client in (OURS, OURS_ASSIGNED):
        return sys.executable
    name = CONFLUENT if client == CONFLUENT_ASYNCIO else client
    folder = WORK_FOLDER / f"{name}-{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    done = folder / ".installed"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "-q", *_PACKAGES[name]]
        subprocess.run(install, check=True)
        done.touch()
    return str(python)


def version_of(client: str) -> str:
    """The version of the client's package, and of librdkafka where that does the work."""
    distribution = _DISTRIBUTIONS.get(client, _DISTRIBUTIONS[CONFLUENT])
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    shown = subprocess.run(
        [python_of(client), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    return f"{distribution} {shown.stdout.strip()}"


def run_client(client: str, workload: str, work: dict[str, object]) -> tuple[dict, Usage]:
    """Run a workload in a child process; its result and what the process used."""
    script = "import_time.py" if workload == "import_time" else _SCRIPTS[client]
    return run_script(python_of(client), script, workload, work)


def run_script(
    python: str, script: str, workload: str, work: dict[str, object]
) -> tuple[dict, Usage]:
    command = [python, str(CLIENTS / script), json.dumps(work), workload]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    with process.stdout:
        shown = process.stdout.read()
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{script} {workload} ended with {process.returncode}")
    usage = Usage(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
    return json.loads(shown.splitlines()[-1]), usage
