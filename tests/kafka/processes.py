"""Java processes and the ports they listen on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kafka.guard import guard

# Below the range from which systems take the ports of outgoing connections.
_PORT_RANGE = (20000, 32000)
_PORTS = Path(tempfile.gettempdir()) / f"aiokafka-test-ports-{os.getuid()}"
# Ports, and the files that are locked for them until this process ends.
_taken: dict[int, int] = {}


def free_port() -> int:
    """A port that nothing listens on and that no process of any test run has been given."""
    _PORTS.mkdir(exist_ok=True)
    for _ in range(1000):
        port = random.randrange(*_PORT_RANGE)
        if port not in _taken and _take(port):
            return port
    raise RuntimeError(f"no free port between {_PORT_RANGE[0]} and {_PORT_RANGE[1]}")


def _take(port: int) -> bool:
    # Without the lock, two would find the same port free in the seconds until a broker listens
    # there, or while a broker that is killed and started again does not.
    lock = os.open(_PORTS / str(port), os.O_CREAT | os.O_RDWR)
    with socket.socket() as probe, contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        probe.bind(("127.0.0.1", port))
        _taken[port] = lock
        return True
    os.close(lock)
    return False


class JavaProcess:
    """One JVM in a process group of its own; its output goes to ``log``."""

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["java", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        guard.add(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL, None)

    def terminate(self, grace: float) -> None:
        """SIGTERM, and SIGKILL when it is still there after ``grace`` seconds."""
        self._end(signal.SIGTERM, grace)

    def wait(self, timeout: float) -> int:
        """Exit status of a process that ends by itself."""
        try:
            return self._process.wait(timeout)
        finally:
            self.kill()

    def log_tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _end(self, first: signal.Signals, grace: float | None) -> None:
        if self.is_alive:
            os.killpg(self._process.pid, first)
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        guard.remove(self._process.pid)
