"""The processes of a chain."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.chain.options import MemberOptions
from tests.kafka.guard import guard

_ROOT = Path(__file__).parents[2]
_FENCED = 3
# Told to go before it could listen, a process ends by the signal.
_EXPECTED = {0, _FENCED, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT}


class Member:
    """One process; what it wrote is in `folder`."""

    def __init__(self, options: MemberOptions, folder: Path, number: int) -> None:
        self.options = options
        self.is_frozen = False
        self._said = folder / f"{options.group}-{options.slot}-{number}.out"
        self.log = self._said.with_suffix(".err")
        with self._said.open("wb") as out, self.log.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chain.worker", options.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=_ROOT,
                start_new_session=True,
            )
        guard.add(self._process.pid)

    def __str__(self) -> str:
        state = "frozen" if self.is_frozen else self._process.poll()
        return f"{self._said.stem} (pid {self._process.pid}, {state})"

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_failed(self) -> bool:
        """Ended in a way that it may not."""
        code = self._process.poll()
        return code is not None and code not in _EXPECTED

    def send(self, number: signal.Signals) -> None:
        if self.is_alive:
            self._process.send_signal(number)
            self.is_frozen = number == signal.SIGSTOP

    async def stop(self, patience: float = 60.0) -> None:
        """Have it leave; it must not need long for that."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, patience)
        except subprocess.TimeoutExpired:
            for number in (signal.SIGUSR2, signal.SIGUSR1):
                self.send(number)
                await asyncio.sleep(1)
            raise AssertionError(f"{self} does not stop:\n{self.tail()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()
        guard.remove(self._process.pid)

    def ends(self) -> Counter[str]:
        """How its work ended, how often."""
        lines = self._said.read_text().splitlines()
        return Counter(json.loads(line)["ended"] for line in lines if line.endswith("}"))

    def tail(self, lines: int = 80) -> str:
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return f"--- {self}\n" + "\n".join([self._said.read_text()[-2000:], *text])
